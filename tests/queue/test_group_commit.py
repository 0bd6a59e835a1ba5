"""Before a sync there is a pause for those who are about to send more, as long as that pays."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.support.simulated import SimulatedHost
from warrenmq.queue import group_commit
from warrenmq.queue.group_commit import MOST_SKIPPED, WORTH_NS, GroupCommit
from warrenmq.settings import Settings


def after_round(
    took: int | None = WORTH_NS, delivered: int = 0, *, several: bool = False, syncs: bool = True
) -> GroupCommit:
    group = GroupCommit(syncs=syncs)
    group.synced(took, delivered, several=several)
    return group


@pytest.mark.parametrize(
    ("group", "delivered"),
    [(after_round(several=True), 0), (after_round(delivered=7), 8)],
    ids=["several publishes were confirmed", "a consumer may ack"],
)
def test_a_round_has_one_pause(group: GroupCommit, delivered: int) -> None:
    assert group.pauses(delivered)
    group.paused(in_vain=False)
    assert not group.pauses(delivered)
    group.synced(WORTH_NS, delivered, several=True)
    assert group.pauses(delivered)


@pytest.mark.parametrize(
    "group",
    [
        GroupCommit(syncs=True),
        after_round(delivered=7),
        after_round(took=WORTH_NS - 1, delivered=7, several=True),
        after_round(took=None, delivered=7, several=True),
        after_round(took=100 * WORTH_NS, several=True, syncs=False),
    ],
    ids=[
        "nothing is known",
        "a lone publisher",
        "a sync that costs nothing",
        "no sync so far",
        "without fsync",
    ],
)
def test_a_round_has_no_pause(group: GroupCommit) -> None:
    assert not group.pauses(7)


def test_a_round_that_needed_no_sync_does_not_change_what_one_costs() -> None:
    group = after_round(several=True)
    group.synced(None, 0, several=True)
    assert group.pauses(0)


def test_after_pauses_in_vain_twice_as_many_rounds_have_none_each_time() -> None:
    group = after_round(several=True)
    rounds: list[bool] = []
    for _ in range(600):
        rounds.append(group.pauses(0))
        if rounds[-1]:
            group.paused(in_vain=True)
        group.synced(WORTH_NS, 0, several=True)
    paused = [number for number, pauses in enumerate(rounds) if pauses]
    gaps = [later - sooner - 1 for sooner, later in pairwise(paused)]
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
    with_pauses = sum(syncs_of(seed, profile) for seed in range(5))
    monkeypatch.setattr(group_commit, "WORTH_NS", 1 << 60)
    without = sum(syncs_of(seed, profile) for seed in range(5))
    assert with_pauses < without * 3 / 4
