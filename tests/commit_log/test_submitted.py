"""Commits that are submitted: made by another thread, along with those of others, and told of."""

import errno
from random import Random
from threading import Lock

import pytest

from warrenmq.commit_log import disk as logged_disk
from warrenmq.commit_log.contents import FILE_NAMES
from warrenmq.commit_log.disk import LARGE, open_logged, replay
from warrenmq.runtime import Server, Simulation
from warrenmq.runtime.simulated_blocking import SimSuspension
from warrenmq.testing import SimulatedDisk
from warrenmq.testing.disk import SimulatedFile

ROOT = "/data"


class Waiter:
    """Keeps the job that it is given, and counts how often it is told."""

    def __init__(self):
        self.jobs = []
        self.told = 0

    def run_later(self, job):
        self.jobs.append(job)

    def over(self):
        self.told += 1


class Directory:
    """A directory with a log, on a simulated disk."""

    def __init__(self, lock=Lock):
        self.raw = SimulatedDisk(Random(0))
        self.raw.mkdir(f"{ROOT}/Q")
        self.disk, _ = open_logged(self.raw, ROOT, 1, lock)
        self.syncs = []
        first = self.file("first.qs")  # the log makes its own files with the first commit
        first.append(b"x")
        first.datasync()
        self.raw.before_op = lambda op, path: op == "datasync" and self.syncs.append(path.rpartition("/")[2])

    def file(self, name):
        file = self.disk.open(f"{ROOT}/Q/{name}", create=True)
        self.raw.sync_dir(f"{ROOT}/Q")
        return file

    def files(self, count):
        made = [self.file(f"{number}.qi") for number in range(count)]
        for file in made:
            file.append(file.path.encode())
        return made

    def after_power_cut(self, name):
        self.raw.before_op = None
        self.raw.power_cut()
        replay(self.raw, ROOT)
        return self.raw.read(f"{ROOT}/Q/{name}")


def test_many_share_one_sync_and_none_is_safe_before_it():
    here, waiters = Directory(), [Waiter() for _ in range(5)]
    files = here.files(5)
    for file, waiter in zip(files, waiters, strict=True):
        assert here.disk.begin_sync([file], waiter)
    assert here.syncs == []
    (job,) = [job for waiter in waiters for job in waiter.jobs]
    job()
    assert [waiter.told for waiter in waiters] == [1] * 5
    for file in files:
        here.disk.sync_files([file])
    assert here.syncs == [FILE_NAMES[0]]
    assert here.after_power_cut("3.qi") == files[3].path.encode()


def test_a_commit_that_is_waited_for_takes_those_along_that_were_submitted():
    here, waiter = Directory(), Waiter()
    first, second = here.files(2)
    here.disk.begin_sync([first], waiter)
    second.datasync()
    assert waiter.told == 1
    waiter.jobs.pop()()
    first.datasync()
    assert here.syncs == [FILE_NAMES[0]]
    assert waiter.told == 1
    assert here.after_power_cut("0.qi") == first.path.encode()


def test_what_is_written_behind_a_submitted_commit_is_not_taken_for_safe():
    here, waiter = Directory(), Waiter()
    (file,) = here.files(1)
    here.disk.begin_sync([file], waiter)
    waiter.jobs.pop()()
    file.append(b" and more")
    here.disk.sync_files([file])
    assert here.after_power_cut("0.qi") == file.path.encode() + b" and more"


@pytest.mark.parametrize("what", ["nothing written", "too much", "cut"])
def test_a_file_that_has_to_be_synced_itself_is_not_submitted(what):
    here, waiter = Directory(), Waiter()
    file, other = here.file("0.qi"), here.file("1.qi")
    other.append(b"x")
    if what == "too much":
        file.append(bytes(LARGE + 1))
    elif what == "cut":
        file.truncate(0)
        file.append(b"x")
    assert not here.disk.begin_sync([other, file], waiter)
    assert not waiter.jobs
    here.disk.sync_files([other, file])
    assert here.after_power_cut("1.qi") == b"x"


def test_whoever_submitted_meets_the_error_of_the_disk_in_its_own_sync():
    here, waiter = Directory(), Waiter()
    (file,) = here.files(1)
    here.disk.begin_sync([file], waiter)
    here.raw.fail_next("datasync", FILE_NAMES[0], errno.EIO)
    waiter.jobs.pop()()
    assert waiter.told == 1
    here.raw.fail_next("datasync", "0.qi", errno.EIO)
    here.raw.fail_next("datasync", "first.qs", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        here.disk.sync_files([file])


def test_files_that_do_not_fit_into_the_log_together_are_synced_themselves(monkeypatch):
    monkeypatch.setattr(logged_disk, "FILE_SIZE", 4096)
    here, waiter = Directory(), Waiter()
    files = here.files(10)
    for file in files:
        file.append(bytes(400))
    here.disk.begin_sync(files, waiter)
    waiter.jobs.pop()()
    assert waiter.told == 1
    here.disk.sync_files(files)
    assert here.syncs == [f"{number}.qi" for number in range(10)]
    assert here.after_power_cut("9.qi") == files[9].path.encode() + bytes(400)


def test_a_commit_of_an_actor_that_is_gone_does_not_put_old_bytes_over_those_of_its_successor():
    """It is still on its way when the successor overwrites its bytes and syncs."""
    here, waiter = Directory(), Waiter()
    old = here.file("0.qi")
    old.append(b"published")
    here.disk.begin_sync([old], waiter)
    new = here.disk.open(old.path)
    new.pwrite(b"acked    ", 0)
    new.datasync()
    for job in waiter.jobs:
        job()
    assert here.after_power_cut("0.qi") == b"acked    "


class Suspended(Server):
    """A queue that is suspended while a commit has what it wrote."""

    def init(self, disk, file):
        self.disk, self.file = disk, file

    def handle_cast(self, data):
        self.file.append(data)

    def mailbox_empty(self):
        if self.file.written and not self.suspend(self.begin, self.go_on):
            self.go_on()

    def begin(self, waiter):
        return self.disk.begin_sync([self.file], waiter)

    def go_on(self):
        self.disk.sync_files([self.file])

    def handle_call(self, request, sender):
        return self.file.written


class Leading(Server):
    """A store that waits for its sync."""

    def init(self, file):
        self.file = file

    def handle_cast(self, data):
        self.file.append(data)
        self.file.datasync()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("where", ["before its turn", "before its pwrite", "before its datasync"])
def test_one_that_is_suspended_goes_on_when_the_leader_of_its_batch_is_killed(monkeypatch, seed, where):
    """In a simulation, where no `finally` tells it."""
    with Simulation(seed) as sim:
        here = Directory(sim.lock)
        own, other = here.file("0.qi"), here.file("1.qi")
        queue, store = sim.start(Suspended, here.disk, own), sim.start(Leading, other)
        jobs, killed = [], sim.event()
        suspension = SimSuspension(jobs.append, sim.event())
        monkeypatch.setattr(sim, "suspension", lambda: suspension)
        sim.cast(queue, b"published")
        while not jobs:
            sim.pause()
        turn = here.disk.log._turn

        def kill(op, path):
            if where == f"before its {op}" and path.endswith(FILE_NAMES[0]):
                here.raw.before_op = None
                killed.set()
                sim.kill(store)

        here.raw.before_op = kill
        if where == "before its turn":
            with turn:
                sim.cast(store, b"body")
                sim.event().wait(0.1)
                sim.kill(store)
        else:
            sim.cast(store, b"body")
            assert killed.wait(5.0)
        jobs.pop()()
        assert sim.call(queue, "written") == 0
        assert here.after_power_cut("0.qi") == b"published"


def test_the_system_is_asked_early_to_write_back_what_is_too_large_for_the_log(monkeypatch):
    here, begun = Directory(), []
    monkeypatch.setattr(SimulatedFile, "begin_sync", lambda file: begun.append(file.size()))
    file = here.file("0.qs")
    for _ in range(8):
        file.append(bytes(LARGE // 2))
    assert begun == [3 * LARGE // 2, 3 * LARGE]  # not with every write
    here.disk.sync_files([file])
    file.append(bytes(LARGE))
    assert len(begun) == 2  # the next one goes into the log
    here.disk.open(f"{ROOT}/other", create=True).append(bytes(4 * LARGE))
    assert len(begun) == 2  # nobody waits for it
