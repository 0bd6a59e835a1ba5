"""Publishes that a killed recover left in doubt: settled, or taken out of the target's queue and published again, in
order.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import chain
from pathlib import Path

import pytest

import warrenmq
from tests.inspect.mortal_disk import Cut
from warrenmq.inspect.inspection import Inspection
from warrenmq.mend.doubts import forget, settle
from warrenmq.mend.ledger import Ledger, key
from warrenmq.mend.moving import fingerprint
from warrenmq.mend.recover import recover
from warrenmq.seams.real_disk import RealDisk

VERSIONS = [{"queue_version": 1}, {"queue_version": 2}]


def queue_with(where: Path, settings: dict[str, int], count: int) -> Path:
    with warrenmq.open(where, settings=settings) as broker:
        jobs = broker.declare_queue("jobs")
        jobs.publish_many([b"%d" % number + b"." * (number % 3 * 3000) for number in range(count)]).result()
    (folder,) = (where / "msg_stores" / "vhosts").glob("*/queues/*")
    return folder


def numbers(where: Path, settings: dict[str, int]) -> list[int]:
    with warrenmq.open(where, settings=settings) as broker:
        return [int(each.body.rstrip(b".")) for each in iter(broker.queue("jobs").get, None)]


def a_ledger(where: Path, folder: Path, doubtful: list[int], lost: tuple[int, ...] = ()) -> Ledger:
    """In which these sequence ids are in doubt; those of `lost` were something else."""
    rows = [row for part, queue in Inspection(str(folder), 0).queues() for row in part.rows(queue)]
    prints = {row.entry.seq_id: fingerprint(row.message) for row in rows if row.message is not None}
    where.mkdir()
    ledger = Ledger(RealDisk(), str(where / "Q.log"))
    for seq_id in doubtful:
        ledger.moving(seq_id, [key(seq_id, bytes(16))], [bytes(16) if seq_id in lost else prints[seq_id]])
    return Ledger(RealDisk(), str(where / "Q.log"))


@pytest.mark.parametrize("settings", VERSIONS)
def test_messages_can_be_taken_out_of_a_queue_that_is_not_open(
    settings: dict[str, int], tmp_path: Path
) -> None:
    folder = queue_with(tmp_path / "data", settings, 10)
    forget(RealDisk(), str(folder), [2, 4, 5])
    assert numbers(tmp_path / "data", settings) == [0, 1, 3, 6, 7, 8, 9]


@pytest.mark.parametrize("settings", VERSIONS)
def test_messages_that_are_there_are_settled(settings: dict[str, int], tmp_path: Path) -> None:
    folder = queue_with(tmp_path / "data", settings, 5)
    ledger = a_ledger(tmp_path / "ledger", folder, [2, 3, 4])
    settle(RealDisk(), ledger, lambda _: str(folder))
    assert ledger.moved == {key(seq_id, bytes(16)) for seq_id in (2, 3, 4)}
    assert numbers(tmp_path / "data", settings) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("settings", VERSIONS)
def test_messages_behind_the_first_missing_one_are_taken_out(
    settings: dict[str, int], tmp_path: Path
) -> None:
    folder = queue_with(tmp_path / "data", settings, 6)
    ledger = a_ledger(tmp_path / "ledger", folder, [2, 3, 4], lost=(3,))
    settle(RealDisk(), ledger, lambda _: str(folder))
    assert ledger.moved == {key(2, bytes(16))}
    assert numbers(tmp_path / "data", settings) == [0, 1, 2, 3, 5]  # 3 and 5 are somebody else's


def test_a_queue_that_is_not_there_settles_nothing(tmp_path: Path) -> None:
    folder = queue_with(tmp_path / "data", {"queue_version": 1}, 3)
    ledger = a_ledger(tmp_path / "ledger", folder, [0, 1])
    settle(RealDisk(), ledger, lambda _: str(tmp_path / "nowhere"))
    assert len(ledger.doubtful) == 2


def test_a_killed_run_moves_no_message_of_a_queue_with_priorities_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue that is there has other priorities, so one folder of the source goes into several."""
    source, target = tmp_path / "source", tmp_path / "target"
    said = {priority: [b"%d-%d" % (priority, number) for number in range(5)] for priority in (5, 2, 0)}
    for where, highest in ((source, 2), (target, 4)):
        with warrenmq.open(where) as broker:
            broker.declare_queue("jobs", arguments={"x-max-priority": highest})
    with warrenmq.open(source) as broker:
        for priority, bodies in said.items():
            broker.queue("jobs").publish_many(bodies, priority=priority)
    left = 2

    def done(ledger: Ledger, first: int) -> None:
        nonlocal left
        left -= 1
        if not left:
            raise Cut
        confirmed(ledger, first)

    confirmed = Ledger.done
    with monkeypatch.context() as killed:
        killed.setattr(Ledger, "done", done)
        for _ in range(3):
            left = 2
            with suppress(Cut):
                recover(str(source), str(target), 0)
    recover(str(source), str(target), 0)
    with warrenmq.open(target) as broker:
        there = [each.body for each in iter(broker.queue("jobs").get, None)]
    assert there == [*chain.from_iterable(said.values())]
