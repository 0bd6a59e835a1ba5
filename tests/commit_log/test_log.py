"""The commit log: shared syncs, failed writes, large rounds and many files."""

from __future__ import annotations

import contextlib
import errno
import threading
from random import Random

import pytest

from warrenmq.commit_log import disk as logged_disk
from warrenmq.commit_log import log
from warrenmq.commit_log.contents import FILE_NAMES, read
from warrenmq.commit_log.disk import LARGE, LoggedDisk, open_logged, remove_log, replay
from warrenmq.seams.disk import SECTOR
from warrenmq.seams.disk_errors import FileDeleted, NoRoomToSync, is_full, lack_of
from warrenmq.testing import SimulatedDisk

ROOT = "/data"


def new_disk(seed: int = 0) -> SimulatedDisk:
    disk = SimulatedDisk(Random(seed))
    disk.mkdir(f"{ROOT}/Q")
    return disk


def begin(disk: SimulatedDisk) -> LoggedDisk:
    return open_logged(disk, ROOT, 1)[0]


def new_file(disk, name: str):
    file = disk.open(f"{ROOT}/Q/{name}", create=True)
    disk.sync_dir(f"{ROOT}/Q")
    return file


def syncs_of(disk: SimulatedDisk):
    """The paths of what is synced from now on."""
    seen: list[str] = []

    def before_op(op: str, path: str) -> None:
        if op == "datasync":
            seen.append(path.rpartition("/")[2])

    disk.before_op = before_op
    return seen


def test_two_files_take_one_sync():
    raw = new_disk()
    disk = begin(raw)
    bodies, entries = new_file(disk, "0.qs"), new_file(disk, "0.qi")
    bodies.append(b"a")
    bodies.datasync()
    seen = syncs_of(raw)
    bodies.append(b"bodies")
    entries.append(b"entries")
    disk.sync_files([bodies, entries])
    assert seen == [FILE_NAMES[0]]
    raw.power_cut()
    replay(raw, ROOT)
    assert raw.read(f"{ROOT}/Q/0.qs") == b"abodies"
    assert raw.read(f"{ROOT}/Q/0.qi") == b"entries"


def test_a_large_round_syncs_its_file_itself():
    raw = new_disk()
    disk = begin(raw)
    file = new_file(disk, "0.qs")
    seen = syncs_of(raw)
    file.append(bytes(LARGE))
    file.append(b"!")
    file.datasync()
    assert seen == ["0.qs"]
    file.append(b"small again")
    file.datasync()
    assert set(seen[1:]) == {FILE_NAMES[0]}


def test_other_files_are_synced_as_ever():
    raw = new_disk()
    disk = begin(raw)
    file = new_file(disk, "definitions.log")
    seen = syncs_of(raw)
    file.append(b"x")
    file.datasync()
    assert seen == ["definitions.log"]


class Gate(SimulatedDisk):
    """A disk whose syncs of the log wait until they are let through."""

    def __init__(self) -> None:
        super().__init__(Random(0))
        self.waits = threading.Semaphore(0)
        self.let = threading.Semaphore(0)
        self.syncs = 0
        self.before_op = self.wait

    def wait(self, op: str, path: str) -> None:
        if op == "datasync" and "warrenmq.log" in path:
            self.syncs += 1
            self.waits.release()
            assert self.let.acquire(timeout=60)


def in_thread(call):
    thread = threading.Thread(target=call)
    thread.start()
    return thread


def test_who_comes_while_a_sync_is_on_its_way_shares_the_next_one():
    raw = Gate()
    raw.mkdir(f"{ROOT}/Q")
    raw.let.release()  # the log's own first record
    disk = begin(raw)
    files = [new_file(disk, f"{number}.qs") for number in range(9)]
    for number, file in enumerate(files):
        file.append(b"%d" % number)
    first = in_thread(files[0].datasync)
    raw.waits.acquire()  # the log's own
    raw.waits.acquire()
    joined = threading.Barrier(9)

    def join(file):
        joined.wait()
        file.datasync()

    others = [in_thread(lambda file=file: join(file)) for file in files[1:]]
    joined.wait()
    collecting = disk.log
    while collecting._collecting is None or len(collecting._collecting.ranges) < 8:
        pass
    assert raw.syncs == 2
    raw.let.release()
    first.join()
    raw.let.release()
    for each in others:
        each.join()
    assert raw.syncs == 3, "eight files, one sync"
    raw.before_op = None
    raw.power_cut()
    replay(raw, ROOT)
    assert [raw.read(f"{ROOT}/Q/{number}.qs") for number in range(9)] == [b"%d" % n for n in range(9)]


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_all_who_share_a_sync_that_fails_hear_of_it(code):
    raw = Gate()
    raw.mkdir(f"{ROOT}/Q")
    raw.let.release()
    disk = begin(raw)
    files = [new_file(disk, f"{number}.qs") for number in range(3)]
    for file in files:
        file.append(b"x")
    failed = []

    def sync(file):
        try:
            file.datasync()
        except OSError as error:
            failed.append(error)

    first = in_thread(lambda: sync(files[0]))
    raw.waits.acquire()
    raw.waits.acquire()
    others = [in_thread(lambda file=file: sync(file)) for file in files[1:]]
    while disk.log._collecting is None or len(disk.log._collecting.ranges) < 2:
        pass
    raw.let.release()
    first.join()
    raw.waits.acquire()
    raw.fail_next("datasync", "warrenmq.log.0", code)
    raw.let.release()
    for each in others:
        each.join()
    assert [(error.errno, error.filename) for error in failed] == [(code, f"{ROOT}/warrenmq.log.0")] * 2
    assert not any(map(is_full, failed)), "a sync that found no room has failed for good"


def test_after_a_sync_that_failed_the_log_begins_anew():
    for seed in range(20):
        raw = new_disk(seed)
        disk = begin(raw)
        file = new_file(disk, "0.qs")
        file.append(b"one")
        file.datasync()
        file.append(b"two")
        raw.fail_next("datasync", "warrenmq.log.0", errno.EIO)
        with pytest.raises(OSError, match="Input/output"):
            file.datasync()
        file.append(b"three")
        file.datasync()
        file.append(b"four")
        file.datasync()
        raw.power_cut()
        assert not replay(raw, ROOT).damage
        assert raw.read(f"{ROOT}/Q/0.qs") == b"onetwothreefour"


def test_what_a_failed_sync_may_have_left_in_the_log_is_not_written_over_newer_bytes():
    """Its actor is gone, the next one puts another file in its place, and then the process is killed."""
    raw = new_disk()
    disk = begin(raw)
    other, file = new_file(disk, "0.qs"), new_file(disk, "journal.jif")
    other.append(b"the log's first record is behind it")
    other.datasync()
    file.append(b"old")
    raw.fail_next("datasync", "warrenmq.log.0", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        file.datasync()
    disk.replace(file.path, b"newer")
    assert not replay(raw, ROOT).damage
    assert raw.read(file.path) == b"newer"


def test_a_file_that_cannot_be_synced_when_the_log_is_cut_ends_the_log(monkeypatch):
    monkeypatch.setattr(logged_disk, "FILE_SIZE", 4096)
    raw = new_disk()
    disk = begin(raw)
    file = new_file(disk, "0.qs")
    raw.fail_next("datasync", "0.qs", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        for _ in range(20):
            file.append(b"x" * 300)
            file.datasync()
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output"):
            file.datasync()
    with pytest.raises(OSError, match="closed"):
        disk.close_log()
        file.datasync()
    assert not read(raw, ROOT).clean, "the next start replays it"


def test_without_room_for_the_log_files_are_synced_by_themselves():
    raw = new_disk()
    disk = begin(raw)
    files = [new_file(disk, name) for name in ("0.qi", "0.qs")]
    raw.free_bytes = 100
    for file in files:
        file.append(b"x")
    seen = syncs_of(raw)
    disk.sync_files(files)
    assert seen == ["0.qi", "0.qs"]
    raw.free_bytes = None
    files[0].append(b"y")
    disk.sync_files(files)
    raw.power_cut()
    replay(raw, ROOT)
    assert [raw.read(f"{ROOT}/Q/{name}") for name in ("0.qi", "0.qs")] == [b"xy", b"x"]


def test_a_round_larger_than_the_log_syncs_files_by_themselves(monkeypatch):
    monkeypatch.setattr(logged_disk, "FILE_SIZE", 4096)
    raw = new_disk()
    disk = begin(raw)
    files = [new_file(disk, f"{number}.qs") for number in range(10)]
    for file in files:
        file.append(bytes(400))
    seen = syncs_of(raw)
    disk.sync_files(files)
    assert seen == [f"{number}.qs" for number in range(10)]


def test_a_process_that_is_killed_again_and_again_at_the_end_of_a_full_log(monkeypatch):
    monkeypatch.setattr(logged_disk, "FILE_SIZE", 4096)
    raw = new_disk()
    for life in range(20):
        disk = begin(raw)
        file = disk.open(f"{ROOT}/Q/0.qs", create=True)
        if life % 3 == 0:
            for _ in range(life):
                file.append(b"x")
                file.datasync()
        if life % 4 == 0:
            disk.close_log()
        assert not read(raw, ROOT).damage
    assert raw.read(f"{ROOT}/Q/0.qs") == b"x" * (3 + 6 + 9 + 12 + 15 + 18)
    assert max(map(raw.size, [f"{ROOT}/{name}" for name in FILE_NAMES])) <= 4096


def test_a_directory_without_the_setting_is_replayed_once_and_goes_on_without_a_log():
    raw = new_disk()
    disk = begin(raw)
    file = new_file(disk, "0.qs")
    file.append(b"x")
    file.datasync()
    raw.power_cut()
    found = remove_log(raw, ROOT)
    assert found is not None
    assert found.writes
    raw.power_cut()
    assert raw.listdir(ROOT) == ["Q"]
    assert raw.read(f"{ROOT}/Q/0.qs") == b"x"
    assert remove_log(raw, ROOT) is None


def test_every_file_is_synced_by_itself_before_the_log_is_used_again(monkeypatch):
    monkeypatch.setattr(logged_disk, "FILE_SIZE", 8192)
    raw = new_disk()
    disk = begin(raw)
    files = [new_file(disk, f"{number}.qs") for number in range(5)]
    seen = syncs_of(raw)
    for turn in range(40):
        files[turn % 5].append(bytes(500))
        files[turn % 5].datasync()
    own = [name for name in seen if name.endswith(".qs")]
    assert len(own) < len(seen) / 2
    runs = "".join("o" if name.endswith(".qs") else "." for name in seen)
    assert "ooo" not in runs, "a few files a commit, not all at once"


@pytest.mark.parametrize("seed", range(100))
def test_what_was_synced_is_there_wherever_large_rounds_turn_the_log(monkeypatch, seed):
    """A large round comes to a full log before the files of the other one were synced in passing."""
    monkeypatch.setattr(logged_disk, "FILE_SIZE", 8192)
    draw, raw = Random(seed), new_disk(seed)
    disk = begin(raw)
    files = {f"{number}.qs": new_file(disk, f"{number}.qs") for number in range(8)}
    synced = dict.fromkeys(files, b"")
    for number in range(draw.randrange(5, 20)):
        name = draw.choice([*files])
        data = bytes([number]) * draw.choice([10, 300, 5000])
        files[name].append(data)
        files[name].datasync()
        synced[name] += data
    raw.power_cut()
    assert not replay(raw, ROOT).damage
    assert {name: raw.read(f"{ROOT}/Q/{name}") for name in files} == synced


def test_a_deleted_file_that_comes_back_has_its_bytes(monkeypatch):
    monkeypatch.setattr(logged_disk, "FILE_SIZE", 4096)
    came_back = 0
    for seed in range(20):
        raw = new_disk(seed)
        disk = begin(raw)
        gone, other = new_file(disk, "0.qs"), new_file(disk, "1.qs")
        gone.append(b"bytes of its own")
        gone.datasync()
        disk.unlink(f"{ROOT}/Q/0.qs")
        for _ in range(seed):
            other.append(b"x" * 300)
            other.datasync()
        raw.power_cut()
        replay(raw, ROOT)
        if raw.exists(f"{ROOT}/Q/0.qs"):
            assert raw.read(f"{ROOT}/Q/0.qs") == b"bytes of its own"
            came_back += 1
    assert came_back


def test_a_file_that_somebody_else_deleted_is_not_synced_and_the_log_goes_on():
    raw = new_disk()
    disk = begin(raw)
    bodies, entries = new_file(disk, "0.qs"), new_file(disk, "0.qi")
    for is_deleted in (False, True):
        for data in (b"small", bytes(2 * LARGE)):
            for file in (bodies, entries):
                file.append(data)
            with pytest.raises(FileDeleted, match=r"0\.qi") if is_deleted else contextlib.nullcontext():
                disk.sync_files([bodies, entries])
        raw.unlink(entries.path)
    other = new_file(disk, "1.qi")
    other.append(b"of another queue")
    other.datasync()
    raw.power_cut()
    assert not replay(raw, ROOT).damage
    assert raw.read(other.path) == b"of another queue"


def test_a_log_file_that_somebody_else_deleted_takes_no_commit():
    raw = new_disk()
    disk = begin(raw)
    file = new_file(disk, "0.qi")
    file.append(b"one")
    file.datasync()
    for name in FILE_NAMES:
        raw.unlink(f"{ROOT}/{name}")
    for _ in range(3):
        file.append(b"two")
        with pytest.raises(FileDeleted, match=r"warrenmq\.log"):
            file.datasync()


def test_a_file_that_its_actor_deletes_while_the_log_syncs_it_does_not_end_the_log():
    raw = new_disk()
    disk = begin(raw)
    file = new_file(disk, "0.qi")
    file.append(b"one")
    file.datasync()

    def before_op(op: str, path: str) -> None:
        if op == "datasync" and path.endswith("0.qi"):
            raw.before_op = None
            disk.unlink(path)

    raw.before_op = before_op
    disk.log._sync_file("Q/0.qi")
    other = new_file(disk, "1.qi")
    other.append(b"two")
    other.datasync()
    raw.power_cut()
    assert not replay(raw, ROOT).damage
    assert raw.read(f"{ROOT}/Q/1.qi") == b"two"
    assert not raw.exists(f"{ROOT}/Q/0.qi")


@pytest.mark.parametrize("closes", [True, False])
def test_deleted_files_share_the_sync_of_their_folder(closes, monkeypatch):
    """Of thousands of queues that came and went each one took a sync, at the close or with commits of others."""
    monkeypatch.setattr(log, "_FULL", 8 * SECTOR)
    monkeypatch.setattr(log, "_FULL_PER_FILE", 0)
    raw = new_disk()
    disk = begin(raw)
    for number in range(4 if closes else 7):
        disk.mkdir(f"{ROOT}/Q/{number}")
        file = new_file(disk, f"{number}/0.qi")
        file.append(b"bytes")
        file.datasync()
        file.close()
        disk.rmtree(f"{ROOT}/Q/{number}")
    folders: list[str] = []
    raw.before_op = lambda op, path: folders.append(path) if op == "sync_dir" else None
    if closes:
        disk.close_log()
    else:
        file = new_file(disk, "0.qi")
        for _ in range(8):
            file.append(b"bytes")
            file.datasync()
        assert folders.pop(0) == f"{ROOT}/Q", "of the new file"
        assert not disk.log._files[1].to_sync
    assert folders == [f"{ROOT}/Q"]
    raw.power_cut()
    replay(raw, ROOT)
    assert raw.listdir(f"{ROOT}/Q") == ([] if closes else ["0.qi"])


def test_a_file_that_is_not_logged_is_forgotten_once_it_is_closed():
    """A queue that sleeps has two of these, which nobody ever syncs."""
    disk = begin(new_disk())
    for name in ("recovery.terms", "0.qi"):
        file = new_file(disk, name)
        file.append(b"not synced")
        assert list(disk.unsynced) == [f"Q/{name}"]
        file.close()
    assert list(disk.unsynced) == ["Q/0.qi"]


def test_a_removed_folder_leaves_nothing_to_sync_and_its_files_can_be_made_again():
    for seed in range(20):
        raw = new_disk(seed)
        disk = begin(raw)
        file = new_file(disk, "0.qi")
        file.append(b"synced")
        file.datasync()
        file.append(b"not synced")
        disk.rmtree(f"{ROOT}/Q")
        assert not disk.unsynced
        disk.mkdir(f"{ROOT}/Q")
        again = new_file(disk, "0.qi")
        again.append(b"new")
        seen = syncs_of(raw)
        again.datasync()
        assert [name.rpartition(".")[0] for name in seen] == ["warrenmq.log"]
        raw.power_cut()
        replay(raw, ROOT)
        assert raw.read(f"{ROOT}/Q/0.qi") == b"new"


def test_a_log_whose_folder_could_not_be_synced_is_not_taken_for_a_safe_one():
    raw = new_disk()
    disk = begin(raw)
    file = new_file(disk, "0.qs")
    file.append(b"a")
    raw.fail_next("sync_dir", ROOT, errno.EMFILE)
    with pytest.raises(OSError, match="Too many open files"):
        file.datasync()
    file.datasync()
    raw.power_cut()
    replay(raw, ROOT)
    assert raw.read(f"{ROOT}/Q/0.qs") == b"a"


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("cut_often", [False, True])
def test_a_shortage_of_descriptors_leaves_the_log_as_it_was(monkeypatch, cut_often, seed):
    """As soon as there are descriptors everything is made durable: files that cannot be opened to be synced are none whose sync failed."""
    monkeypatch.setattr(logged_disk, "FILE_SIZE", 8192)
    if cut_often:
        monkeypatch.setattr("warrenmq.commit_log.log._FULL", 4096)
        monkeypatch.setattr("warrenmq.commit_log.log._FULL_PER_FILE", 0)
    rng = Random(seed)
    raw = new_disk(seed)
    disk = begin(raw)
    files = [new_file(disk, f"{number}.qs") for number in range(6)]
    written = [b""] * len(files)
    for _ in range(200):
        raw.no_descriptors = rng.random() < 0.5
        which = rng.randrange(len(files))
        data = rng.randbytes(rng.randrange(1, 700))
        files[which].append(data)
        written[which] += data
        with contextlib.suppress(OSError) if raw.no_descriptors else contextlib.nullcontext():
            files[which].datasync()
    raw.no_descriptors = False
    for file in files:
        file.datasync()
    raw.power_cut()
    assert not replay(raw, ROOT).damage
    assert [raw.read(f"{ROOT}/Q/{number}.qs") for number in range(6)] == written


def test_where_the_log_may_not_be_written_files_are_synced_by_themselves_and_no_sync_has_failed():
    """A limit to the size of files is met by what is within the log, too."""
    raw = new_disk()
    disk = begin(raw)
    file, other = new_file(disk, "0.qs"), new_file(disk, "1.qs")
    file.append(b"a")
    file.datasync()
    raw.fail_next("pwrite", FILE_NAMES[0], errno.EFBIG)
    seen = syncs_of(raw)
    other.append(b"b")
    other.datasync()
    assert seen == ["1.qs"]
    for _ in range(2):  # the record, and the one that forgets what the log has of the file
        raw.fail_next("pwrite", FILE_NAMES[0], errno.EFBIG)
    file.pwrite(b"c", 0)
    with pytest.raises(NoRoomToSync, match="File too large for the commit log") as refused:
        file.datasync()
    assert (
        lack_of(refused.value) == "the system lets no file grow further (File too large for the commit log)"
    )
    file.datasync()
    raw.power_cut()
    replay(raw, ROOT)
    assert (raw.read(f"{ROOT}/Q/0.qs"), raw.read(f"{ROOT}/Q/1.qs")) == (b"c", b"b")


@pytest.mark.parametrize("how", ["large", "cut", "sync_many"])
def test_a_sync_of_a_file_that_failed_outside_the_log_is_never_taken_for_a_good_one(how):
    """After a failed sync the next one says that all is well, though the disk lacks what the log was to be rid of."""
    raw = new_disk()
    disk = begin(raw)
    file = new_file(disk, "0.qs")
    file.append(b"confirmed")
    file.datasync()

    def sync_it(file):
        if how == "large":
            file.append(b"x" * (LARGE + 1))
            file.datasync()
        elif how == "cut":
            file.truncate(4)
        else:
            disk.sync_many([f"{ROOT}/Q/0.qs"])

    raw.fail_next("datasync", "0.qs", errno.EIO)
    if how == "sync_many":
        file.append(b"x")
    with pytest.raises(OSError, match="Input/output"):
        sync_it(file)
    with contextlib.suppress(OSError):
        sync_it(disk.open(f"{ROOT}/Q/0.qs"))
    raw.power_cut()
    replay(raw, ROOT)
    assert raw.read(f"{ROOT}/Q/0.qs").startswith(b"conf" if how == "cut" else b"confirmed")
