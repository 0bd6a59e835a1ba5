"""X1: which queues an exchange must have chosen, by names and patterns, by the machine, and by arrays, too."""

from __future__ import annotations

import pytest

from tests.support.trace_writer import Actor, RunRows, write_trace
from warrenmq.replay.drive.engine import replay_memory
from warrenmq.trace.events import Bound, Ev, ExchangeType, Reason
from warrenmq.trace.reader import open_memory

BROKER, VHOST, THREAD = 1, 2, 3
KINDS = {BROKER: "broker", VHOST: "VhostProcess", THREAD: "client"}
EXCHANGE = "exchange"
Bindings = list[tuple[str, str]]
"""(queue, key)"""


def trace(
    kind: ExchangeType, bindings: Bindings, asked: list[tuple[Ev, str, int]], named: tuple[str, ...] | None
) -> list[RunRows]:
    """An exchange that is bound, and then a thread's rows about its publishes: (event, key, queues or messages)."""
    names = (
        named
        if named is not None
        else (EXCHANGE, *(each for both in bindings for each in both), *(key for _, key, _ in asked))
    )
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names), 1)}
    run = RunRows("made", 1, texts={number: name for name, number in numbers.items()})
    run.actors = [Actor(number, f"actor {number}", kind, 0) for number, kind in KINDS.items()]
    number_of = numbers.get(EXCHANGE, 0)
    rows: list[tuple[int, Ev, int, int, int, int, int]] = [
        (BROKER, Ev.RUN_START, 0, 0, 0, 0, 0),
        (VHOST, Ev.EXCHANGE_DECLARED, kind, 0, number_of, 0, 0),
        *(
            (VHOST, Ev.BOUND, Bound.QUEUE, 0, number_of, numbers.get(queue, 0), numbers.get(key, 0))
            for queue, key in bindings
        ),
        *((THREAD, event, 0, 1900, number_of, count, numbers.get(key, 0)) for event, key, count in asked),
        *((who, Ev.ACTOR_STOP, Reason.SHUTDOWN, 0, 0, 0, 0) for who in (VHOST, THREAD)),
        (BROKER, Ev.RUN_END, 0, 0, 0, 0, 0),
    ]
    times = [
        1000 + place + 1000 * (who != VHOST and event != Ev.RUN_START)
        for place, (who, event, *_) in enumerate(rows)
    ]
    for t, (who, event, flag, pseq, *columns) in zip(times, rows, strict=True):
        its = run.actors[who - 1]
        its.last += 1
        its.rows.append([t, its.last, 0, 0, pseq, *columns, who << 16 | event << 8 | flag])
    return [run]


AB: Bindings = [("a", "a.#"), ("b", "*.b"), ("c", "#"), ("d", "")]
CASES = [
    (ExchangeType.TOPIC, AB, (Ev.ROUTED, "a.b", 3), False),
    (ExchangeType.TOPIC, AB, (Ev.ROUTED, "a.b", 2), True),
    (ExchangeType.TOPIC, AB, (Ev.ROUTED, "a", 2), False),
    (ExchangeType.TOPIC, AB, (Ev.ROUTED, "a", 1), True),
    (ExchangeType.TOPIC, AB, (Ev.ROUTED, "x.x.b", 1), False),
    (ExchangeType.TOPIC, AB, (Ev.ROUTED, "", 1), True),
    (ExchangeType.TOPIC, AB, (Ev.ROUTED, "a.b", 0), False),
    (ExchangeType.TOPIC, AB, (Ev.UNROUTED, "x", 1), True),
    (ExchangeType.TOPIC, AB[:2], (Ev.UNROUTED, "x", 1), False),
    (ExchangeType.DIRECT, AB, (Ev.UNROUTED, "*.b", 5), True),
    (ExchangeType.DIRECT, AB, (Ev.UNROUTED, "a.b", 5), False),
    (ExchangeType.FANOUT, AB, (Ev.UNROUTED, "a.b", 5), True),
    (ExchangeType.HEADERS, AB, (Ev.UNROUTED, "a.b", 5), False),
]


@pytest.mark.parametrize(("kind", "bindings", "asked", "broken"), CASES)
def test_a_publish_misses_no_queue_whose_binding_fits(kind, bindings, asked, broken):
    result = replay_memory(write_trace(trace(kind, bindings, [asked], None)))
    assert [each.rule for each in result.violations] == ["X1"] * broken
    assert not result.indeterminate


@pytest.mark.parametrize(("kind", "bindings", "asked", "broken"), CASES)
def test_the_same_by_arrays(kind, bindings, asked, broken):
    pytest.importorskip("numpy")
    from warrenmq.replay.drive.array_engine import replay_arrays

    found = replay_arrays(open_memory(write_trace(trace(kind, bindings, [asked], None))))
    assert [each.rule for each in found.violations] == ["X1"] * broken


@pytest.mark.parametrize("kind", [ExchangeType.DIRECT, ExchangeType.TOPIC])
def test_keys_beyond_the_names_that_a_trace_holds_are_not_taken_for_the_same(kind):
    runs = trace(
        kind, [("a", "key 5000"), ("b", "key 5001")], [(Ev.ROUTED, "key 5001", 1)], (EXCHANGE, "a", "b")
    )
    assert replay_memory(write_trace(runs)).verdict == "ok"
