"""The decisions about alarms, case by case, and the table of those that are set."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warrenmq.node.alarms import Alarm, Alarms, BlockedPublisher, Source, alarm_change, in_words
from warrenmq.node.disk_space import check_interval, disk_limit, is_disk_short

MB = 10**6
WHO = BlockedPublisher("a thread", "", "q", 1)


def alarm(source: Source) -> Alarm:
    return Alarm(source, measured=2_000_000, limit=1_000, since_ns=7)


@pytest.mark.parametrize(
    ("is_set", "due", "change"),
    [(False, False, None), (False, True, "set"), (True, True, None), (True, False, "clear")],
)
def test_a_monitor_asks_for_a_change_only_when_there_is_one(
    is_set: bool, due: bool, change: str | None
) -> None:
    assert alarm_change(is_set=is_set, due=due) == change


@pytest.mark.parametrize(
    ("limit", "in_bytes"), [(50_000_000, 50_000_000), (1.5, 1_500), (1.0005, 1_000), (0, 0)]
)
def test_the_disk_limit_is_bytes_or_a_multiple_of_the_memory(limit: float, in_bytes: int) -> None:
    assert disk_limit(limit, total_memory=1_000) == in_bytes


@pytest.mark.parametrize(("free", "due"), [(999, True), (1_000, False), (1_001, False)])
def test_the_disk_alarm_is_due_below_the_limit(free: int, due: bool) -> None:
    assert is_disk_short(free, 1_000) is due


@pytest.mark.parametrize(
    ("more_than_limit", "alarmed", "ms"),
    [(0, False, 100), (int(12.5 * MB), False, 100), (100 * MB, False, 800), (100 * MB + 124_999, False, 800),
     (1_250 * MB, False, 10_000), (10**12, False, 10_000), (-1, True, 10_000), (-40 * MB, True, 10_000)],
)  # fmt: skip
def test_the_disk_is_looked_at_twice_as_often_as_a_fast_writer_fills_it(
    more_than_limit: int, alarmed: bool, ms: int
) -> None:
    assert check_interval(50 * MB + more_than_limit, 50 * MB, alarmed=alarmed) == ms


@given(free=st.integers(50 * MB, 10**13))
def test_no_writer_at_250_mb_a_second_gets_far_below_the_limit_unseen(free: int) -> None:
    """At the next look it is at most the writes of 100 ms, or twice what there was to fill, below it."""
    ms = check_interval(free, 50 * MB, alarmed=False)
    assert 100 <= ms <= 10_000
    assert ms * 250_000 <= max(100 * 250_000, 2 * (free - 50 * MB))


@given(st.lists(st.tuples(st.sampled_from(["set", "clear"]), st.sampled_from(["memory", "disk"]))))
def test_publishers_are_woken_exactly_when_the_last_alarm_clears(steps: list[tuple[str, Source]]) -> None:
    alarms, model, woken = Alarms(), set[str](), 0
    calls: list[int] = []
    alarms.add_waiting(WHO, lambda: calls.append(1))
    for step, source in steps:
        if step == "set":
            assert alarms.set(alarm(source)) is (source not in model)
            model.add(source)
        else:
            assert alarms.clear(source) is (source in model)
            woken += model == {source}
            model.discard(source)
        assert {each.source for each in alarms.active} == model
        assert [alarms.is_set("memory"), alarms.is_set("disk")] == ["memory" in model, "disk" in model]
        assert len(calls) == woken


def test_waiting_callers_are_counted_and_those_that_left_are_not_woken() -> None:
    alarms, woken = Alarms(), list[str]()
    alarms.set(alarm("disk"))
    first = alarms.add_waiting(WHO, lambda: woken.append("first"))
    other = BlockedPublisher("another", "", "q", 2)
    alarms.add_waiting(other, lambda: woken.append("other"))
    assert alarms.waiting() == (WHO, other)
    alarms.remove_waiting(first)
    assert alarms.waiting() == (other,)
    alarms.clear("disk")
    assert woken == ["other"]


def test_the_error_of_a_blocked_caller_names_each_alarm_its_figures_and_the_remedy() -> None:
    assert in_words((alarm("memory"), alarm("disk"))) == (
        "nothing was published, the memory alarm is set (2,000,000 bytes were in use, vm_memory_high_watermark allows "
        "1,000): consume, or raise the watermark; the disk alarm is set (2,000,000 bytes were free, disk_free_limit "
        "wants 1,000): make room, or lower the limit; then publish again"
    )
