"""Files behind the commit log, and the power cut at any operation: what was synced is there, and no older byte has come back.

The model knows of each file what its last sync promised, and what may have become of the bytes that were written since.
"""

from __future__ import annotations

import posixpath
from random import Random

import pytest

from warrenmq.commit_log import disk as logged_disk
from warrenmq.commit_log import log
from warrenmq.commit_log.contents import read
from warrenmq.commit_log.disk import open_logged, remove_log, replay
from warrenmq.testing import SimulatedDisk
from warrenmq.testing.disk import PLENTY

ROOT = "/data"
FOLDER = f"{ROOT}/queues/Q"
NAMES = ("0.qi", "0.qs", "journal.jif", "1.rdq")


class Model:
    """One file: what the last sync promised, and which other bytes may stand there since."""

    def __init__(self) -> None:
        self.synced: bytes | None = None
        """None: its folder was not synced, so it need not be there."""
        self.now = b""
        self.since: dict[int, set[int]] = {}
        self.cut_to: int | None = None
        """The shortest that it was cut to since the last sync."""
        self.reach = 0
        """The end of what was written since the last sync: up to there zeros may stand where nothing else arrived."""
        self.durably_named = False

    def write(self, offset: int, data: bytes) -> None:
        self.reach = max(self.reach, offset + len(data))
        content = bytearray(self.now.ljust(offset, b"\0"))
        content[offset : offset + len(data)] = data
        self.now = bytes(content)
        for place, byte in enumerate(data, offset):
            self.since.setdefault(place, set()).add(byte)

    def truncate(self, size: int) -> None:
        self.now = self.now[:size]
        self.cut_to = size if self.cut_to is None else min(size, self.cut_to)

    def sync(self) -> None:
        self.synced, self.since, self.cut_to, self.reach = self.now, {}, None, 0

    def check(self, found: bytes) -> None:
        assert self.synced is not None
        sure = len(self.synced) if self.cut_to is None else min(len(self.synced), self.cut_to)
        assert len(found) >= sure, "synced bytes are gone"
        for place, byte in enumerate(found):
            allowed = set(self.since.get(place, ()))
            if place < len(self.synced):
                allowed.add(self.synced[place])
            if sure <= place < self.reach:
                allowed.add(0)
            assert byte in allowed, f"byte {place} is {byte}, which nobody wrote since the last sync"


class Play:
    """Random operations on a few files, as the owner of a directory does them."""

    def __init__(self, seed: int, *, in_order: bool) -> None:
        self.rng = Random(seed)
        self.calm = seed % 2 == 0
        """Files only grow and are overwritten: then everything goes through the log."""
        logged_disk.FILE_SIZE = (3584, 6144)[seed // 2 % 2]
        self.raw = SimulatedDisk(Random(seed))
        self.raw.in_order = in_order
        self.raw.mkdir(FOLDER)
        self.files: dict[str, Model] = {}
        self.handles: dict[str, object] = {}
        self.gone: set[str] = set()
        """Deleted, and the folder synced since."""
        self.in_doubt: set[str] = set()
        """Deleted or renamed over, and the folder not synced since."""
        self.deleted: dict[str, Model] = {}
        """Those of them that may come back as they were."""
        self.open()

    def open(self) -> None:
        self.disk, _ = open_logged(self.raw, ROOT, 42)
        self.handles = {}

    def begin_again(self) -> None:
        """The next process, which finds what the check has seen."""
        self.files = {}
        self.gone, self.in_doubt, self.deleted = set(NAMES), set(), {}
        with self.raw.power_fails_at(self.rng.randint(1, 40), reads=False) as outage:
            self.open()
        if outage.came:
            self.raw.power_cut()
            self.open()
        self.raw.sync_dir(FOLDER)
        for name in NAMES:
            if self.raw.exists(self.path(name)):
                self.files[name] = model = Model()
                model.write(0, self.raw.read(self.path(name)))
                model.durably_named = True
                model.sync()
                self.gone.discard(name)

    def path(self, name: str) -> str:
        return f"{FOLDER}/{name}"

    def handle(self, name: str):
        if name not in self.handles or self.rng.random() < 0.1:
            if name in self.handles and self.rng.random() < 0.5:
                self.handles[name].close()
            if name not in self.files:
                self.files[name] = Model()
                self.gone.discard(name)
                self.deleted.pop(name, None)
            self.handles[name] = self.disk.open(self.path(name), create=True)
        return self.handles[name]

    def data(self) -> bytes:
        return self.rng.randbytes(self.rng.choice([1, 40, 300]))

    def step(self) -> None:
        name = self.rng.choice(NAMES)
        match self.rng.randrange(11 if self.calm else 16):
            case 0 | 1 | 2 | 3 | 4:
                data = self.data()
                file = self.handle(name)
                model = self.files[name]
                model.write(len(model.now), data)
                file.append(data)
            case 5 | 6:
                file = self.handle(name)
                model = self.files[name]
                offset = self.rng.randint(0, len(model.now) + 20)
                data = self.data()
                model.write(offset, data)
                file.pwrite(data, offset)
            case 7 | 8 | 9 | 10:
                some = [each for each in NAMES if each in self.handles and self.rng.random() < 0.6]
                if some:
                    self.disk.sync_files([self.handles[each] for each in some])
                    for each in some:
                        if self.files[each].durably_named:
                            self.files[each].sync()
                        else:
                            self.sync_unnamed(each)
            case 11:
                file = self.handle(name)
                model = self.files[name]
                size = self.rng.choice([0, self.rng.randint(0, len(model.now))])
                model.truncate(size)
                file.truncate(size)
            case 12:
                self.sync_folder()
            case 13:
                if name in self.files:
                    self.in_doubt.add(name)
                    self.handles.pop(name, None)
                    model = self.files.pop(name)
                    if model.durably_named:
                        self.deleted[name] = model
                    self.disk.unlink(self.path(name))
            case 14:
                self.rewrite(name)
            case 15:
                there = [self.path(each) for each in self.files if self.files[each].durably_named]
                self.disk.sync_many(there)
                for path in there:
                    self.files[posixpath.basename(path)].sync()

    def sync_unnamed(self, name: str) -> None:
        """Its bytes are safe once its name is."""
        self.disk.sync_dir(FOLDER)
        self.after_folder_sync()
        self.files[name].sync()

    def sync_folder(self) -> None:
        self.disk.sync_dir(FOLDER)
        self.after_folder_sync()

    def after_folder_sync(self) -> None:
        for model in self.files.values():
            if not model.durably_named:
                model.durably_named = True
                model.synced = b""
        self.gone |= self.in_doubt - self.files.keys()
        self.in_doubt.clear()
        self.deleted.clear()

    def rewrite(self, name: str) -> None:
        """Replace a file as a journal restart or a combine does: write beside it, sync, rename over it."""
        data = self.data() + self.data()
        temporary = self.path(name) + ".tmp"
        new = self.disk.open(temporary, create=True)
        new.truncate(0)
        new.append(data)
        new.datasync()
        self.gone.discard(name)
        self.deleted.pop(name, None)
        self.in_doubt.add(name)
        self.files.pop(name, None)
        self.handles.pop(name, None)
        self.disk.rename(temporary, self.path(name))
        self.disk.sync_dir(FOLDER)
        self.files[name] = model = Model()
        model.write(0, data)
        self.after_folder_sync()
        model.sync()
        self.handles[name] = new

    def check(self) -> None:
        assert not replay(self.raw, ROOT).damage
        for name in NAMES:
            there = self.raw.exists(self.path(name))
            if there and name in self.deleted:
                self.deleted[name].check(self.raw.read(self.path(name)))
            if name in self.gone:
                assert not there, f"{name} has come back"
            if name in self.in_doubt or name not in self.files or not self.files[name].durably_named:
                continue
            assert there, f"{name} is gone"
            self.files[name].check(self.raw.read(self.path(name)))


def cut_at(seed: int, operation: int, *, in_order: bool, steps: int = 60, again_at: int = 0) -> bool:
    play = Play(seed, in_order=in_order)
    with play.raw.power_fails_at(operation, reads=False) as outage:
        for _ in range(steps):
            play.step()
    if not outage.came:
        return False
    play.raw.power_cut()
    if again_at:
        with play.raw.power_fails_at(again_at, reads=False):
            open_logged(play.raw, ROOT, 42)
        play.raw.power_cut()
    play.check()
    return True


@pytest.fixture(params=["room", "little room"])
def _room(request, monkeypatch):
    """With little room each start gives back what the log does not need."""
    if request.param == "little room":
        monkeypatch.setattr(log, "_ROOM_TO_START", PLENTY + 1)


@pytest.mark.usefixtures("_room")
@pytest.mark.parametrize("in_order", [True, False])
def test_lives_that_end_in_power_cuts_follow_each_other(in_order):
    chance = Random(in_order)
    for seed in range(24):
        play = Play(seed, in_order=in_order)
        for _ in range(6):
            with play.raw.power_fails_at(chance.randint(1, 60), reads=False):
                while True:
                    play.step()
            play.raw.power_cut()
            play.check()
            play.begin_again()


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(logged_disk, "FILE_SIZE", 0)  # each play sets it
    monkeypatch.setattr(logged_disk, "LARGE", 700)


@pytest.mark.parametrize("in_order", [True, False])
def test_the_power_is_cut_at_every_operation(in_order):
    """At one in three of each play; three plays one after the other have them all, each in a calm and in another one."""
    for seed in range(6):
        operation = 1 + seed % 3
        while cut_at(seed, operation, in_order=in_order):
            operation += 3
        assert operation > 60


@pytest.mark.usefixtures("_room")
@pytest.mark.parametrize("in_order", [True, False])
def test_it_is_cut_again_while_the_log_is_replayed(in_order):
    chance = Random(in_order)
    for seed in range(100, 160):
        cut_at(seed, chance.randint(20, 150), in_order=in_order, again_at=chance.randint(1, 12))


def test_a_killed_process_loses_nothing_that_was_synced():
    for seed in range(24):
        play = Play(seed, in_order=True)
        for _ in range(60):
            play.step()
        play.check()


def test_after_the_close_the_files_are_whole_without_the_log():
    for seed in range(40):
        play = Play(seed, in_order=False)
        for _ in range(40):
            play.step()
        play.disk.close_log()
        assert read(play.raw, ROOT).clean
        for name in read(play.raw, ROOT).writes:
            raise AssertionError(name)
        now = {name: play.raw.read(play.path(name)) for name in play.files}
        synced = {name: model.now for name, model in play.files.items()}
        assert now == synced
        remove_log(play.raw, ROOT)
        assert not [name for name in play.raw.listdir(ROOT) if "log" in name]
        assert {name: play.raw.read(play.path(name)) for name in play.files} == now
