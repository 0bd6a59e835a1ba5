"""Small wrongs, done anywhere in a consistent trace: what a broker would write if it did something wrong at that place.

A mutation is (what, event): it changes one row of that event, and keeps the numbers of all rows without a gap, so that
nothing looks like a missing row.

    drop        the row was never written
    twice       it was written twice
    late        it and the next row of its actor changed places
    flag        another flag that the event knows
    msg ... c   that column is one more

(forgotten recovery = drop RECOVERED, early confirm = late QI_SYNC or late FILE_SYNC, wrong trigger = flag FILE_WRITE, bad
offset = b APPEND.)
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache

from tests.support.simulated_trace import consistent_trace
from tests.support.trace_writer import (
    MSG,
    PEER,
    PSEQ,
    RECEIVES,
    SEQ,
    WHO,
    A,
    Actor,
    B,
    C,
    Row,
    RunRows,
    T,
    event,
    flag,
    insert,
    set_flag,
)
from warrenmq.trace.events import Ev
from warrenmq.trace.schema import EVENTS
from warrenmq.trace.sentences import flag_names

COLUMN = {"msg": MSG, "peer": PEER, "pseq": PSEQ, "a": A, "b": B, "c": C}
_FLAGS: dict[int, list[int]] = {}
for _event, _flag in flag_names({}):
    _FLAGS.setdefault(_event, []).append(_flag)

Mutation = tuple[str, Ev]


def mutations() -> Iterator[Mutation]:
    """Every one that makes sense: flags and columns only where the schema gives them a meaning."""
    for what in Ev:
        used = {column.place for column in EVENTS[what].columns}
        yield from ((change, what) for change in ("drop", "twice", "late"))
        if what in _FLAGS:
            yield "flag", what
        yield from ((name, what) for name in COLUMN if name in used)


def mutated(mutation: Mutation, seed: int, steps: int) -> list[RunRows] | None:
    """A consistent trace with one such wrong in it, somewhere; None when it has no row of this event."""
    runs = consistent_trace(seed, steps)
    what, which = mutation
    rng = random.Random(f"{seed} {what} {which.name}")
    rows = [
        (run, actor, row) for run in runs for actor in run.actors for row in actor.rows if event(row) == which
    ]
    rng.shuffle(rows)
    return runs if any(_mutate(what, run, actor, row, rng) for run, actor, row in rows) else None


def mutated_somewhere(mutation: Mutation) -> list[RunRows] | None:
    """The smallest of some consistent traces that has such a row; None for events that only other traces have."""
    traces = (mutated(mutation, seed, steps) for seed, steps in _smallest_first())
    return next((runs for runs in traces if runs is not None), None)


@cache
def _smallest_first() -> list[tuple[int, int]]:
    """Seed and steps of consistent traces, short ones in the order of their rows, then long ones: time goes with rows."""
    short = [(seed, steps) for steps in (2, 4, 8) for seed in range(6)]
    short.sort(
        key=lambda each: sum(len(actor.rows) for run in consistent_trace(*each) for actor in run.actors)
    )
    return [*short, *((seed, 25) for seed in range(6))]


def _mutate(what: str, run: RunRows, actor: Actor, row: Row, rng: random.Random) -> bool:
    index = row[SEQ] - 1
    match what:
        case "drop":
            remove(run, actor, index)
        case "twice":
            names = {name: row[place] for name, place in COLUMN.items()}
            insert(run, actor, index + 1, event(row), flag(row), **names)
        case "late":
            if index + 1 == len(actor.rows):
                return False
            change_places(run, actor, index)
        case "flag":
            others = [each for each in _FLAGS[event(row)] if each != flag(row)]
            set_flag(row, rng.choice(sorted(others) or [0]))
        case _:
            row[COLUMN[what]] += 1
    return True


def remove(run: RunRows, actor: Actor, index: int) -> None:
    """Take a row out, and count on as if it had never been written."""
    gone = actor.rows.pop(index)
    actor.last -= 1
    _renumber(run, actor, {seq: seq - 1 for seq in range(gone[SEQ] + 1, actor.last + 2)})


def change_places(run: RunRows, actor: Actor, index: int) -> None:
    """A row comes after the one that came after it: what each says stays with it, and who names it still does."""
    one, two = actor.rows[index : index + 2]
    one[T], two[T] = two[T], one[T]
    actor.rows[index : index + 2] = two, one
    _renumber(run, actor, {one[SEQ]: two[SEQ], two[SEQ]: one[SEQ]})


def _renumber(run: RunRows, actor: Actor, new: dict[int, int]) -> None:
    for row in actor.rows:
        row[SEQ] = new.get(row[SEQ], row[SEQ])
    for other in run.actors:
        for row in other.rows:
            if event(row) in RECEIVES and (row[PEER] or other.id) == actor.id and row[PSEQ]:
                row[PSEQ] = new.get(row[PSEQ], row[PSEQ])


def jumbled(seed: int) -> list[RunRows]:
    """A consistent trace with up to a dozen wrongs of any kind: no broker would ever write it."""
    rng = random.Random(seed)
    runs = consistent_trace(rng.randrange(50), rng.choice((5, 12, 25)))
    for _ in range(rng.choice((1, 2, 3, 6, 12))):
        run = rng.choice(runs)
        actor = rng.choice([each for each in run.actors if each.rows])
        at = rng.randrange(len(actor.rows))
        row, other = actor.rows[at], rng.choice(rng.choice([each for each in run.actors if each.rows]).rows)
        what = rng.choice(("number", "column", "flag", "event", "place"))
        if what == "number":
            column = rng.randrange(MSG, WHO)
            row[column] = max(0, row[column] + rng.choice((-2, -1, 1, 2)))
        elif what == "column":
            column = rng.randrange(MSG, WHO)
            row[column] = other[column]
        elif what == "flag":
            set_flag(row, rng.randrange(8))
        elif what == "event":
            _say(row, other)
        else:
            later = actor.rows[min(at + rng.randrange(1, 4), len(actor.rows) - 1)]
            before = list(row)
            _say(row, later)
            _say(later, before)
    return runs


def _say(row: Row, other: Row) -> None:
    """Have a row say what another one says, in its own place of its own actor."""
    row[MSG:WHO] = other[MSG:WHO]
    row[WHO] = row[WHO] & ~0xFFFF | other[WHO] & 0xFFFF
