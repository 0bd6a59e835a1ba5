"""One unit through everything: the sieves, the machines that have none, the landmarks."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np

from warrenmq.replay.drive.columns import Unit
from warrenmq.replay.drive.folding import FOLDS
from warrenmq.replay.drive.landmarks import landmarks_of
from warrenmq.replay.drive.machines import Key, Machine, Summariser, Summary
from warrenmq.replay.drive.sieve import Sieve
from warrenmq.replay.drive.world import Landmarks
from warrenmq.replay.rules.actors import Chain
from warrenmq.replay.rules.registry import all_machines
from warrenmq.replay.rules.sieves.confirms import ConfirmsSieve
from warrenmq.replay.rules.sieves.ledger import LedgerSieve
from warrenmq.replay.rules.sieves.mail import MailSieve
from warrenmq.replay.rules.sieves.on_disk import OnDiskSieve
from warrenmq.replay.rules.sieves.places import PlacesSieve
from warrenmq.replay.rules.sieves.references import ReferencesSieve
from warrenmq.replay.rules.sieves.settles import SettlesSieve
from warrenmq.replay.rules.sieves.waits import WaitsSieve
from warrenmq.trace.catalog import Chunk, Run

_SIEVES = (
    MailSieve,
    ConfirmsSieve,
    LedgerSieve,
    OnDiskSieve,
    ReferencesSieve,
    WaitsSieve,
    SettlesSieve,
    PlacesSieve,
)

Place = tuple[str, Key]
"""A machine, and one of its keys."""
Told = tuple[str, Key, Chunk, Summary]
"""A machine, a key of it, the piece that speaks (of leftovers: the unit's first), what it says."""


def sieves_and_machines(runs: Sequence[Run]) -> list[Machine]:
    """all_machines, the busy ones replaced by their sieves."""
    sieves = {each.name: each for each in _SIEVES}
    return [sieves[each.name](runs) if each.name in sieves else each for each in all_machines(runs)]


class Sifter:
    """Sifts units of the same runs."""

    def __init__(self, workers: Sequence[Machine]) -> None:
        """`workers` as of sieves_and_machines."""
        self._sieves = [each for each in workers if isinstance(each, Sieve)]
        self._folded = [each for each in workers if each.name in FOLDS]
        others = [each for each in workers if not isinstance(each, (Sieve, Chain)) and each.name not in FOLDS]
        self._events = frozenset().union(*(each.events for each in others))
        self._others = Summariser(others)
        self._all = Summariser(workers)

    def sift(self, unit: Unit) -> Iterator[Told]:
        """Everybody's summaries and leftovers."""
        if not unit.is_sound():
            for piece, first in unit.parts():
                whole = unit.rows.between(first, first + piece.rows)
                for name, key, summary in self._all.summarise(piece, whole.tuples()):
                    yield name, key, piece, summary
            return
        for sieve in self._sieves:
            for key, leftover in sieve.sift(unit):
                yield sieve.name, key, unit.pieces[0], leftover
        for machine in self._folded:
            for piece, rows in unit.of_each_piece(machine.events):
                for key, summary in FOLDS[machine.name](machine.runs, piece, rows):
                    yield machine.name, key, piece, summary
        for piece, rows in unit.of_each_piece(self._events):
            for name, key, summary in self._others.summarise(piece, rows.tuples()):
                yield name, key, piece, summary

    @staticmethod
    def landmarks(unit: Unit) -> Iterator[tuple[Chunk, Landmarks]]:
        """Of each piece."""
        for piece, first in unit.parts():
            yield piece, landmarks_of(unit.rows.between(first, first + piece.rows))


class SecondLook:
    """What the machines say of suspects."""

    def __init__(self, workers: Sequence[Machine], suspects: Collection[Place]) -> None:
        """`workers` as of sieves_and_machines: a suspect is a key of a sieve."""
        self._suspects = frozenset(suspects)
        self._asked: list[tuple[Sieve, list[Key]]] = []
        for sieve in workers:
            keys = [key for name, key in suspects if name == sieve.name]
            if keys and isinstance(sieve, Sieve):
                self._asked.append((sieve, keys))

    def summarise(self, unit: Unit) -> Iterator[Told]:
        """The summaries of a unit that speak to the suspects."""
        for sieve, keys in self._asked:
            machine = sieve.machine(sieve.runs)
            rows = unit.of(machine.events)
            concerned = np.flatnonzero(unit.chosen(machine.events))[sieve.concerned(rows, keys, unit.run)]
            for piece, its in unit.at_each_piece(concerned):
                for key, summary in machine.summarise(piece, its.tuples()):
                    if (machine.name, key) in self._suspects:
                        yield machine.name, key, piece, summary
