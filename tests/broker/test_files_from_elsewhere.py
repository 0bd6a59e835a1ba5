"""An older copy of one file is put back, a file is emptied or removed, or a directory is copied while it works: no other message's body is
delivered, nothing crashes, and what is missing is told, but for what a crash makes look the same (docs/deletions.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from posixpath import basename, dirname
from random import Random
from typing import NamedTuple

import pytest

from tests.support.simulated import EVERY_KIND, SimulatedHost, take_all
from warrenmq.testing import SimulatedDisk

Messages = set[tuple[str, bytes]]
"""(queue, body)."""


class Moment(NamedTuple):
    """A directory as it was once."""

    files: dict[str, bytes]
    due: Messages
    """Confirmed by then, and not acked."""


class Life:
    """Two queues, published to and read from over some starts and stops."""

    def __init__(self, host: SimulatedHost, draw: Random) -> None:
        self.host, self.draw = host, draw
        self.published: Messages = set()
        self.confirmed: Messages = set()
        self.acked: Messages = set()
        self.moments: list[Moment] = []

    def run(self, *, clean: bool) -> None:
        """Live three times; the last end is a clean stop or a kill."""
        draw, host = self.draw, self.host
        for last in (False, False, True):
            broker = host.open()
            queues = [broker.declare_queue(name) for name in "ab"]
            for _ in range(draw.randrange(2, 14)):
                queue = draw.choice(queues)
                if draw.random() < 0.6:
                    self.publish(queue)
                for _ in range(draw.randrange(8)):
                    if (delivery := queue.get()) is not None:
                        delivery.ack()
                        self.acked.add((queue.name, delivery.body))
                host.sleep(draw.choice([0, 0, 0.3, 20]))
                self.remember()
            host.sleep(20)
            if clean if last else draw.random() < 0.5:
                broker.close()
            else:
                host.crash(power_cut=False)
            self.remember()

    def publish(self, queue) -> None:
        confirms = {}
        for _ in range(self.draw.randrange(1, 10)):
            body = b"%d " % len(self.published) + bytes(self.draw.choice([5, 30, 300, 900]))
            confirms[body] = queue.publish(body)
            self.published.add((queue.name, body))
        for body, confirm in confirms.items():
            confirm.result()
            self.confirmed.add((queue.name, body))

    def remember(self) -> None:
        self.moments.append(Moment(self.host.disk.contents(), self.confirmed - self.acked))

    def missing(self, due: Messages) -> tuple[Messages, bool]:
        """The messages of `due` that an opening does not give back, and whether it tells damage."""
        broker = self.host.open()
        found = {(name, body) for name in "ab" for body in take_all(broker.queue(name))}
        assert found <= self.published, "another message's body"
        stats = broker.stats()
        assert [each.name for each in stats.actors if each.restarts] == []
        broker.close()
        return due - found, bool(stats.damage)


def put(disk: SimulatedDisk, files: Mapping[str, bytes | None]) -> None:
    """Give files other bytes; None removes one."""
    for path, data in files.items():
        if data is None:
            disk.unlink(path)
        else:
            disk.mkdir(dirname(path))
            disk.replace(path, data)


def changed(life: Life, how: str) -> tuple[str, bytes | None]:
    """A file to be changed, and its new bytes."""
    now = life.host.disk.contents()
    if how == "older":
        old = life.draw.choice(life.moments).files
        choice = sorted(path for path in old if old[path] != now.get(path))
        path = life.draw.choice(choice or sorted(now))
        return path, old.get(path)
    path = life.draw.choice(sorted(path for path in now if now[path]))
    return path, b"" if how == "empty" else None


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.parametrize("how", ["older", "empty", "gone"])
def test_after_a_clean_stop_one_file_that_is_not_as_it_was_is_told_if_anything_is_missing(
    how: str, seed: int
) -> None:
    draw = Random(f"{how} {seed}")
    settings = replace(EVERY_KIND[seed % len(EVERY_KIND)], commit_log=draw.random() < 0.6, disk_free_limit=0)
    with SimulatedHost(seed, settings, traced=False) as host:
        life = Life(host, draw)
        life.run(clean=True)
        put(host.disk, dict([changed(life, how)]))
        missing, told = life.missing(life.moments[-1].due)
        assert told or not missing


NOT_TOLD = {"older": {".qi", ".idx", "journal.jif"}, "empty": {".qi", "journal.jif"}, "gone": {".qi", ".idx"}}
"""Files that are, after a kill, as if the newest messages had not been written, or old ones had been acked."""


@pytest.mark.parametrize("seed", range(32))
@pytest.mark.parametrize("how", ["older", "empty", "gone"])
def test_after_a_kill_what_is_missing_is_told_unless_a_kill_may_leave_the_same(how: str, seed: int) -> None:
    draw = Random(f"killed {how} {seed}")
    settings = replace(EVERY_KIND[seed % len(EVERY_KIND)], commit_log=draw.random() < 0.6, disk_free_limit=0)
    with SimulatedHost(seed, settings, traced=False) as host:
        life = Life(host, draw)
        life.run(clean=False)
        path, data = changed(life, how)
        put(host.disk, {path: data})
        due = life.moments[-1].due
        missing, told = life.missing(due)
        name = basename(path).lstrip("0123456789")
        if missing and not told and name not in NOT_TOLD[how]:
            assert name == ".rdq"
            large = {(queue, int(body.split()[0])) for queue, body in due - missing if len(body) > 200}
            lost = {(queue, int(body.split()[0])) for queue, body in missing}
            for name in "ab":  # only the newest
                left = [number for queue, number in large if queue == name]
                assert all(number > max(left, default=-1) for queue, number in lost if queue == name)


@pytest.mark.parametrize("seed", range(24))
def test_a_directory_that_is_copied_while_it_works_opens_and_has_what_was_there_all_the_time(
    seed: int,
) -> None:
    """Each file is copied at another moment; what was confirmed before the first is there, or damage is told."""
    draw = Random(f"copied {seed}")
    settings = replace(EVERY_KIND[seed % len(EVERY_KIND)], commit_log=draw.random() < 0.6, disk_free_limit=0)
    with SimulatedHost(seed, settings, traced=False) as host:
        life = Life(host, draw)
        life.run(clean=draw.random() < 0.5)
        moment = begin = draw.randrange(len(life.moments))
        copies: dict[str, bytes | None] = dict.fromkeys(host.disk.paths())
        for path in sorted({path for each in life.moments for path in each.files}):
            moment = min(len(life.moments) - 1, moment + (draw.random() < 0.3))
            copies[path] = life.moments[moment].files.get(path)
        put(host.disk, copies)
        missing, told = life.missing(life.moments[begin].due - life.acked)
        assert told or not missing
