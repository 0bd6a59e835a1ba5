"""The planting of violations: functions that register a change to a consistent trace, and what they look for rows with."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from functools import cache, wraps
from itertools import pairwise

from tests.support.simulated_trace import consistent_trace
from tests.support.trace_writer import MSG, A, Actor, B, Row, RunRows, become, flag, set_flag
from warrenmq.trace.schema import COLUMNS

Runs = list[RunRows]
Places = Iterator[None]
Plant = Callable[[Runs], bool]
PLANTS: list[tuple[str, Plant, frozenset[str]]] = []
"""(rule, plant, other rules that the same change breaks of necessity)"""
SIZES = ((8, 12), (25, 40))
"""(steps, seeds) of traces with a plant: short ones first, because the time of a test goes with rows."""
QUEUE, STORE, COLLECTOR, CLIENT, SUPERVISOR = "QueueProcess", "MsgStore", "MsgStoreGc", "client", "QueueSup"


def plant(rule: str, *implied: str) -> Callable[[Callable[[Runs], Places]], Plant]:
    """Register a function that changes the runs and then yields; what it would change next stays as it is."""

    def register(function: Callable[[Runs], Places]) -> Plant:
        @wraps(function)
        def at_the_first_place(runs: Runs) -> bool:
            return any(True for _ in function(runs))

        PLANTS.append((rule, at_the_first_place, frozenset(implied)))
        return at_the_first_place

    return register


def row_plant(
    rule: str, kind: str, what: int, *implied: str, **columns: int
) -> Callable[[Callable[[RunRows, Actor, Row], Places]], Plant]:
    """Register a function that is called for each row of an event of such actors, until it yields."""

    def register(function: Callable[[RunRows, Actor, Row], Places]) -> Plant:
        @wraps(function)
        def at_each_row(runs: Runs) -> Places:
            for run, actor in every(runs, kind):
                for row in actor.find(what, **columns):
                    yield from function(run, actor, row)

        return plant(rule, *implied)(at_each_row)

    return register


def every(runs: Runs, kind: str) -> Iterator[tuple[RunRows, Actor]]:
    """Actors of a kind, each with its run; the transient store, which forgets all that it had, is left out."""
    return ((run, actor) for run in runs for actor in run.of(kind) if "transient" not in actor.name)


def rows(runs: Runs, kind: str, what: int, **columns: int) -> Iterator[Row]:
    """Rows of an event, of all actors of a kind."""
    return (row for _, actor in every(runs, kind) for row in actor.find(what, **columns))


def neighbours(runs: Runs, kind: str, what: int | None = None) -> Iterator[tuple[Row, Row]]:
    """Two rows in a row of one actor, of an event or of any."""
    return (
        pair
        for _, actor in every(runs, kind)
        for pair in pairwise(actor.rows if what is None else actor.find(what))
    )


def covers(row: Row, id_: int) -> bool:
    """True if the row is about the message of this sequence id."""
    return row[A] <= id_ < row[A] + row[B]


def meet(one: Row, two: Row) -> bool:
    """True if two rows are about a message in common."""
    return one[A] < two[A] + two[B] and two[A] < one[A] + one[B]


def exchange(one: Row, two: Row) -> None:
    """Swap what two rows say; each keeps its place."""
    one[MSG:], two[MSG:] = two[MSG:], one[MSG:]


def in_place(
    rule: str,
    name: str,
    kind: str,
    what: int,
    *implied: str,
    where: Callable[[Row], bool] = lambda _: True,
    last_run: bool = False,
    **columns: int | Callable[[Row], int],
) -> Plant:
    """Register a plant that changes columns (flag, event, a, b, ...) of one row: to a number, or to what a function of the row says."""

    def change(runs: Runs) -> Places:
        for row in filter(where, rows(runs[-1:] if last_run else runs, kind, what)):
            new = {each: value(row) if callable(value) else value for each, value in columns.items()}
            if "event" in new:
                become(row, new.pop("event"))
            if "flag" in new:
                set_flag(row, new.pop("flag"))
            for each, value in new.items():
                row[COLUMNS.index(each)] = value
            yield

    change.__name__ = name
    return plant(rule, *implied)(change)


def having(flag_: int) -> Callable[[Row], bool]:
    return lambda row: flag(row) == flag_


def more(column: int, by: int = 1) -> Callable[[Row], int]:
    return lambda row: row[column] + by


def planted(plant: Plant) -> list[RunRows]:
    """A small consistent trace with this plant in it."""
    runs: list[RunRows] = pickle.loads(_planted(plant))
    return runs


@cache
def _planted(plant: Plant) -> bytes:
    for steps, seeds in SIZES:
        for seed in range(seeds):
            runs = consistent_trace(seed, steps)
            if plant(runs):
                return pickle.dumps(runs)
    raise AssertionError(f"no consistent trace has a place for {plant.__name__}")
