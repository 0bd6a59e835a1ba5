"""Coverage of the state machines' tables: each machine has seen every event that it reads, with every flag.

`python -m tests.replay.test_coverage_of_machines` from the root prints the table.
"""

from __future__ import annotations

import random
import re
from functools import cache

import pytest

from tests.replay.planted_violations import PLANTS, planted
from tests.replay.trace_mutations import mutated
from tests.support.simulated import SMALL, SimulatedHost
from tests.support.simulated_trace import consistent_trace
from tests.support.trace_writer import write_trace
from warrenmq.replay.drive.engine import replay_memory
from warrenmq.replay.rules.registry import all_machines
from warrenmq.routing.delayed import X_DELAYED_MESSAGE, X_DELAYED_TYPE
from warrenmq.routing.exchange_types import TYPES
from warrenmq.trace.events import (
    CONFIRM_NACK,
    IN_STORE,
    PERSISTENT,
    ROLL_FOR_LARGE,
    ROLL_GARBAGE,
    ROLL_LARGE,
    ROLL_LONGEST,
    WANTS_CONFIRM,
    Decision,
    Ev,
    Reason,
    Trigger,
)
from warrenmq.trace.reader import open_memory
from warrenmq.trace.sentences import flag_names

_NO_TRIGGERS = {
    Ev.QI_SYNC: (Trigger.BUFFER_FULL, Trigger.ROLL_OVER, Trigger.READ, Trigger.JOURNAL_FLUSH),
    Ev.FILE_SYNC: (Trigger.BUFFER_FULL, Trigger.READ, Trigger.JOURNAL_FLUSH),
    Ev.FILE_WRITE: (Trigger.JOURNAL_FLUSH,),
}
NEVER_WRITTEN = {
    **{(event, flag): "no such trigger" for event, flags in _NO_TRIGGERS.items() for flag in flags},
    **{(Ev.STORE_WRITE, flag): "a remove's" for flag in (Decision.REMOVE, Decision.DEFER)},
    **{(Ev.STORE_REMOVE, flag): "a write's" for flag in (Decision.WRITE, Decision.CONFIRM)},
    **{
        (Ev.PUBLISH, flag): "every publish wants a confirm"
        for flag in (PERSISTENT, IN_STORE, PERSISTENT | IN_STORE)
    },
    (
        Ev.PUBLISH,
        WANTS_CONFIRM | IN_STORE,
    ): "of a transient message nobody knows yet whether it will be in a store",
    **{
        (
            Ev.ROLL,
            flag,
        ): "no message of these histories has 4 MB, no file of theirs is mostly garbage while it is idle, and any may grow"
        for flag in (ROLL_FOR_LARGE, ROLL_LARGE, ROLL_GARBAGE, ROLL_LONGEST)
    },
    (Ev.CHILD_EXIT, Reason.CRASH): "no process of these histories raises anything",
    (Ev.CONFIRM, CONFIRM_NACK): "nacks are answers to publishes that the queue has not taken",
}
"""Rows that the broker has no reason to write."""


@cache
def of_a_broker() -> frozenset[tuple[int, int]]:
    """The same of a simulated broker."""
    host = SimulatedHost(5, SMALL)
    rng = random.Random(5)
    held = []
    with host.open() as broker:
        queues = [
            broker.declare_queue("a"),
            broker.declare_queue("b", durable=False),
            broker.declare_queue("deleted"),
        ]
        for _ in range(120):
            queue = rng.choice(queues)
            queue.publish(b"m" * rng.choice((5, 2_000)), persistent=rng.random() < 0.5).result()
            if rng.random() < 0.4 and (message := queue.get(0, no_ack=rng.random() < 0.2)) is not None:
                held.append(message)
        broker.delete_queue("deleted")
        for kind in TYPES:
            arguments = {X_DELAYED_TYPE: "fanout"} if kind == X_DELAYED_MESSAGE else None
            broker.declare_exchange(kind, kind, arguments=arguments)
            for name, to in (("a", "queue"), ("amq.fanout", "exchange")):
                broker.bind(name, kind, destination_type=to)
                broker.unbind(name, kind, destination_type=to)
    trace = open_memory(host.sink.files())
    host.close()
    return frozenset(
        (row[8] >> 8 & 0xFF, row[8] & 0xFF) for piece in trace.catalog.chunks for row in trace.rows(piece)
    )


@cache
def seen() -> frozenset[tuple[int, int]]:
    """(event, flag) of every row of the traces that the tests replay: consistent ones, and a few of the wrong ones."""
    traces = [consistent_trace(seed) for seed in range(12)]
    traces += [
        planted(plant)
        for _, plant, _ in PLANTS
        if "escalation" in plant.__name__ or "damaged" in plant.__name__
    ]
    flagged = (
        Ev.FILE_SYNC, Ev.FILE_WRITE, Ev.DROP, Ev.CONSUMER_ADDED, Ev.CONSUMER_GONE, Ev.QUEUE_LIMITS, Ev.ACTOR_STOP, Ev.CHILD_EXIT,
    )  # fmt: skip
    traces += [mutated(("flag", event), seed, 8) or [] for event in flagged for seed in range(40)]
    return of_a_broker() | frozenset(
        (row[8] >> 8 & 0xFF, row[8] & 0xFF)
        for runs in traces
        for run in runs
        for actor in run.actors
        for row in actor.rows
    )


def asked() -> dict[str, set[tuple[int, int]]]:
    """Machine -> the rows it may be given; the flags of mail are message kinds, which no machine looks at."""
    flags: dict[int, set[int]] = {}
    for event, flag in flag_names({}):
        flags.setdefault(event, set()).add(int(flag))
    return {
        machine.name: {
            (event, flag)
            for event in machine.events
            for flag in (flags.get(event) or {None})
            if (event, flag) not in NEVER_WRITTEN
        }
        for machine in all_machines([])
    }


def untried(machine: str) -> list[str]:
    rows = seen()
    events = {event for event, _ in rows}
    return [
        f"{Ev(event).name} {flag}"
        for event, flag in sorted(asked()[machine], key=str)
        if ((event, flag) not in rows if flag is not None else event not in events)
    ]


@pytest.mark.parametrize("machine", sorted(asked()))
def test_a_machine_has_seen_every_row_that_it_reads(machine: str) -> None:
    assert untried(machine) == []


def complaint(text: str) -> str:
    """A finding's text without its numbers."""
    return re.sub(r"-?\d+", "#", text)


def test_the_plants_make_the_machines_complain_in_many_ways() -> None:
    """The kill matrix makes the others: here is a floor, so that no table loses its plants unseen."""
    said = {
        (finding.rule, complaint(finding.text))
        for _, plant, _ in PLANTS
        for finding in replay_memory(write_trace(planted(plant))).violations
    }
    assert len(said) >= len(PLANTS) - 5


def test_a_real_broker_writes_nothing_that_is_called_impossible() -> None:
    assert of_a_broker() & set(NEVER_WRITTEN) == set()


if __name__ == "__main__":
    for name, rows in sorted(asked().items()):
        print(f"{name:11} {len(rows):4} kinds of rows, untried: {', '.join(untried(name)) or 'none'}")
