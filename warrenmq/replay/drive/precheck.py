"""The interface of a precheck: a machine's quick twin, that proves keys fine and leaves the rest to the machine.

    open_rows(unit)            for each key that the unit speaks of: what of it is not proven fine yet (open rows)
    prove(key, open_rows)      all units are in: the outcome of a key that is fine, None if the machine has to say
    concerned(rows, keys)      the rows that it needs for that

A precheck knows when all is well, and nothing else.  It never finds anything: a key that it cannot prove fine
is unproven, whose rows the machine of the same name reads then, from the beginning.  So each rule is written
once, in its machine; the precheck's promise is that where it says "fine" the machine would have found
nothing, and counted the same.

Open rows are a few arrays of 64-bit integers.  A message that was sent and received, or published and acked, within one unit
is in none, which is why most rows are never sorted, sent or looked at one by one.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from warrenmq.replay.drive.columns import Bools, Ints, Rows, Unit, np
from warrenmq.replay.drive.machines import Key, Machine, Outcome
from warrenmq.replay.drive.trace_context import TraceContext
from warrenmq.trace.catalog import Chunk, Run
from warrenmq.trace.index import Row

OpenRows = tuple[Ints, ...]
"""The rows that a precheck leaves open."""
NEEDS_FULL_CHECK: OpenRows = ()
"""Stands in place of open rows: the machine has to check all rows."""


def joined(open_rows: Sequence[OpenRows], *widths: int) -> list[Ints]:
    """The first parts of open rows of several units as one table each, which has so many columns."""
    return [
        np.concatenate([each[part].reshape(-1, width) for each in open_rows])
        for part, width in enumerate(widths)
    ]


class Precheck(Machine):
    """The quick twin of `machine`; absorbs and finishes as one, so that what drives machines drives prechecks."""

    machine: ClassVar[type[Machine]]

    def __init_subclass__(cls) -> None:
        cls.name, cls.events, cls.stage = cls.machine.name, cls.machine.events, cls.machine.stage
        cls.machine.precheck = cls

    def __init__(self, runs: Sequence[Run], judges: Mapping[str, Any] | None = None) -> None:
        super().__init__(runs, judges)
        self._machine = self.machine(runs, judges)

    @abstractmethod
    def open_rows(self, unit: Unit) -> Iterator[tuple[Key, OpenRows]]:
        """The open rows of a sound unit (Unit.is_sound), by the machine's keys."""

    @abstractmethod
    def prove(
        self, key: Key, open_rows: Sequence[OpenRows], facts: Sequence[Any], context: TraceContext
    ) -> Outcome | None:
        """All open_rows of a key, in no order, and none of them NEEDS_FULL_CHECK; the facts that other
        machines told: decide.
        """

    def concerned(self, rows: Rows, keys: Collection[Key], run: int) -> Bools:
        """True for each row that the machine needs to judge these keys, of the machine's events; rather more rows than fewer.

        Here for keys of two parts: a run or a scope, and what `second_part` says of each row.
        """
        first = run if self.machine.of_one_run else self.runs[run].scope
        found: Bools = np.isin(self.second_part(rows), [int(key[1]) for key in keys if key[0] == first])
        return found

    def second_part(self, rows: Rows) -> Ints:
        """The second part of the key that each row speaks to."""
        return rows.actor

    def summarise(self, piece: Chunk, rows: list[Row]) -> Iterator[tuple[Key, OpenRows]]:
        """Summarise a unit that is not sound: everything its rows mention is unproven."""
        for key, _ in self._machine.summarise(piece, rows):
            yield key, NEEDS_FULL_CHECK

    def start(self, key: Key) -> list[Any]:  # noqa: ARG002
        """Open rows and facts, as they come."""
        return []

    def absorb(self, state: list[Any], summary: Any) -> None:
        state.append(summary)

    def finish(self, key: Key, state: list[Any], context: TraceContext) -> Outcome:
        """The outcome, or that the key is unproven."""
        open_rows = [each for each in state if _is_open_rows(each)]
        if NEEDS_FULL_CHECK in open_rows:
            return Outcome(needs_full_check=True)
        return self.prove(key, open_rows, facts_in(state), context) or Outcome(needs_full_check=True)


def facts_in(state: Iterable[Any]) -> list[Any]:
    """All facts that other machines sent to a key, out of the units that its precheck has absorbed."""
    return [each for each in state if not _is_open_rows(each)]


def _is_open_rows(summary: Any) -> bool:
    return not summary or hasattr(summary[0], "dtype")
