"""A sync waits for publishers that the last one has confirmed, as long as that pays."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.support.simulated import SimulatedHost
from warrenmq.queue import group_commit
from warrenmq.queue.group_commit import MOST_MESSAGES, MOST_NS, MOST_SKIPPED, WORTH_NS, GroupCommit
from warrenmq.settings import Settings

A, B, C = object(), object(), object()
SYNC = 200_000


def after_round(*publishers: object, took: int = SYNC, ended: int = 10 * SYNC) -> GroupCommit:
    group = GroupCommit()
    for publisher in publishers:
        group.came(publisher)
    group.synced(ended - took, ended)
    return group


def test_a_round_waits_until_all_of_the_last_one_are_there_again() -> None:
    group, now = after_round(A, B, C), 10 * SYNC
    assert not group.waits_until(now, 0)
    group.came(A)
    assert group.waits_until(now, 1) == now + SYNC * 3 // 2
    group.came(C)
    assert group.waits_until(now, 2)
    group.came(B)
    assert not group.waits_until(now, 3)


@pytest.mark.parametrize(
    ("group", "publisher", "now", "publishes"),
    [
        (after_round(A), A, 10 * SYNC, 1),
        (after_round(A, B), A, 10 * SYNC, MOST_MESSAGES),
        (after_round(A, B), A, 12 * SYNC, 1),
        (after_round(A, B, took=WORTH_NS - 1), A, 10 * SYNC, 1),
    ],
    ids=["one publisher", "many messages", "long after the sync", "a sync that costs nothing"],
)
def test_a_round_does_not_wait(group: GroupCommit, publisher: object, now: int, publishes: int) -> None:
    group.came(publisher)
    assert not group.waits_until(now, publishes)


def test_a_wait_is_short_on_a_slow_disk() -> None:
    group = after_round(A, B, took=100 * MOST_NS, ended=200 * MOST_NS)
    group.came(A)
    assert group.waits_until(200 * MOST_NS, 1) == 201 * MOST_NS


def test_rounds_after_waits_in_vain_do_not_wait_twice_as_many_each_time() -> None:
    group, now = after_round(A, B), 10 * SYNC
    rounds: list[bool] = []
    for number in range(600):
        group.came((A, B)[number % 2])  # never both
        waits = bool(group.waits_until(now, 1))
        rounds.append(waits)
        if waits:
            group.waited_in_vain()
        group.synced(now - SYNC, now)
    waited = [number for number, waits in enumerate(rounds) if waits]
    gaps = [later - sooner - 1 for sooner, later in pairwise(waited)]
    assert gaps[:7] == [1, 2, 4, 8, 16, 32, MOST_SKIPPED]
    assert {*gaps[7:]} == {MOST_SKIPPED}


def syncs_of(seed: int, profile: str) -> int:
    """The syncs of an index for 80 messages of four publishers, each of whom waits for every confirm."""
    messages, publishers, syncs = 20, 4, 0
    with SimulatedHost(seed, Settings(profile=profile, commit_log=False)) as host:

        def before_op(op: str, path: str) -> None:
            nonlocal syncs
            host.before_op(op, path)
            if op == "datasync" and path.endswith((".qi", ".jif")):
                syncs += 1
                host.sleep(0.002)

        def publish() -> None:
            queue = broker.queue("q")
            for number in range(messages):
                queue.publish(b"%d" % number).result()
            done.append(1)

        broker, done = host.open(), list[int]()
        broker.declare_queue("q")
        host.disk.before_op = before_op
        for _ in range(publishers):
            host.sim.spawn(publish)
        host.wait_until(lambda: len(done) == publishers)
        broker.close()
        host.check_trace()
    return syncs


@pytest.mark.parametrize("profile", ["classic", "modern"])
def test_publishers_that_wait_for_each_confirm_share_the_syncs(
    profile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_waits = sum(syncs_of(seed, profile) for seed in range(5))
    monkeypatch.setattr(group_commit, "WORTH_NS", 1 << 60)
    without = sum(syncs_of(seed, profile) for seed in range(5))
    assert with_waits < without * 3 / 4
