"""What a sieve is: a machine's quick twin, that proves keys fine and leaves the rest to the machine.

    sift(unit)                 for each key that the unit speaks of: what of it is not proven fine yet (a leftover)
    settle(key, leftovers)     all units are sifted: the outcome of a key that is fine, None if the machine has to say
    concerned(rows, keys)      the rows that it needs for that

A sieve knows when all is well, and nothing else.  It never finds anything: a key that it cannot prove fine is a suspect,
whose rows the machine of the same name reads then, from the beginning.  So each rule is written once, in its machine; the sieve's
promise is that where it says "fine" the machine would have found nothing, and counted the same.

A leftover is a few arrays of 64-bit integers.  What was begun and ended within one unit (sent and received, published and acked)
is in none, which is why most rows are never sorted, sent or looked at one by one.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterator, Sequence
from typing import Any, ClassVar

from warrenmq.replay.drive.columns import Bools, Ints, Rows, Unit
from warrenmq.replay.drive.machines import Key, Machine, Outcome
from warrenmq.replay.drive.world import World
from warrenmq.trace.catalog import Chunk, Run
from warrenmq.trace.index import Row

Leftover = tuple[Ints, ...]
"""What the sieve makes of it."""
SUSPECT: Leftover = ()
"""In place of a leftover: the machine has to look."""


class Sieve(Machine):
    """The quick twin of `machine`; absorbs and finishes as one, so that what drives machines drives sieves."""

    machine: ClassVar[type[Machine]]

    def __init_subclass__(cls) -> None:
        cls.name, cls.events, cls.stage = cls.machine.name, cls.machine.events, cls.machine.stage

    def __init__(self, runs: Sequence[Run]) -> None:
        super().__init__(runs)
        self._machine = self.machine(runs)

    @abstractmethod
    def sift(self, unit: Unit) -> Iterator[tuple[Key, Leftover]]:
        """What a sound unit (Unit.is_sound) leaves open, by the machine's keys."""

    @abstractmethod
    def settle(
        self, key: Key, leftovers: Sequence[Leftover], facts: Sequence[Any], world: World
    ) -> Outcome | None:
        """All leftovers of a key, in no order, and none of them SUSPECT; the facts that other machines told: decide."""

    @abstractmethod
    def concerned(self, rows: Rows, keys: Collection[Key], run: int) -> Bools:
        """Which rows, of the machine's events, the machine has to see to judge these keys; rather more than fewer."""

    def summarise(self, piece: Chunk, rows: list[Row]) -> Iterator[tuple[Key, Leftover]]:
        """Of a unit that is not sound: whatever the rows speak of is a suspect."""
        for key, _ in self._machine.summarise(piece, rows):
            yield key, SUSPECT

    def start(self, key: Key) -> list[Any]:  # noqa: ARG002
        """Leftovers and facts."""
        return []

    def absorb(self, state: list[Any], summary: Any) -> None:
        state.append(summary)

    def finish(self, key: Key, state: list[Any], world: World) -> Outcome:
        """The outcome, or that the key is a suspect."""
        leftovers = [each for each in state if self._is_leftover(each)]
        if SUSPECT in leftovers:
            return Outcome(is_suspect=True)
        facts = [each for each in state if not self._is_leftover(each)]
        return self.settle(key, leftovers, facts, world) or Outcome(is_suspect=True)

    @staticmethod
    def _is_leftover(summary: Any) -> bool:
        return not summary or hasattr(summary[0], "dtype")
