"""Run one unit through the prechecks, the machines that have none, and the summaries of actors."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np

from warrenmq.replay.drive.actor_summaries import actor_summary_of
from warrenmq.replay.drive.columns import Unit
from warrenmq.replay.drive.findings import Place
from warrenmq.replay.drive.machines import Key, Machine, Summariser, Summary
from warrenmq.replay.drive.precheck import Precheck
from warrenmq.replay.drive.trace_context import ActorSummary
from warrenmq.replay.rules.rule import Rule
from warrenmq.trace.catalog import Chunk
from warrenmq.trace.schema import events_of

EVERY_KEY: Key = ()
"""Stands in place of a key for every key of the machine."""
Summarised = tuple[str, Key, Chunk, Summary]
"""A machine, a key of it, the piece that speaks (of open rows: the unit's first), what it says."""


def prechecks_and_machines(machines: Sequence[Machine], own: Sequence[Rule] = ()) -> list[Machine]:
    """The machines, those that have an array form replaced by it.

    A precheck proves that our rules hold: a machine of ours that rules of the user judge, too, has to see all rows.
    """
    judged = {machine for rule in own for machine in rule.machines}
    return [
        each if each.precheck is None or type(each) in judged else each.precheck(each.runs, each.judges)
        for each in machines
    ]


class Prechecker:
    """Sends units of the same runs through every machine: through its array form where it has one."""

    def __init__(self, workers: Sequence[Machine]) -> None:
        """`workers` as of prechecks_and_machines."""
        self._prechecks = [each for each in workers if isinstance(each, Precheck)]
        self._others = [each for each in workers if not isinstance(each, Precheck)]
        self._all = Summariser(workers)

    def check(self, unit: Unit) -> Iterator[Summarised]:
        """The summaries and open rows of every machine."""
        if not unit.is_sound():
            for piece, first in unit.parts():
                whole = unit.rows.between(first, first + piece.rows).tuples()
                for name, key, summary in self._all.summarise(piece, whole, events_of(whole)):
                    yield name, key, piece, summary
            return
        for precheck in self._prechecks:
            for key, rows_left in precheck.open_rows(unit):
                yield precheck.name, key, unit.pieces[0], rows_left
        for machine in self._others:
            for piece, rows in unit.of_each_piece(machine.events):
                for key, summary in machine.fold(piece, rows):
                    yield machine.name, key, piece, summary

    @staticmethod
    def actor_summaries(unit: Unit) -> Iterator[tuple[Chunk, ActorSummary]]:
        """The summaries of actors, piece by piece."""
        for piece, first in unit.parts():
            yield piece, actor_summary_of(unit.rows.between(first, first + piece.rows))


class FullCheck:
    """The machines' judgement of keys that no precheck could prove fine."""

    def __init__(self, checkers: Sequence[Machine], unproven: Collection[Place]) -> None:
        """`checkers` as of prechecks_and_machines: an unproven key is one of a precheck; without a key, all
        of its keys are.
        """
        self._unproven = frozenset(unproven)
        self._asked: list[tuple[Precheck, list[Key]]] = []
        for precheck in checkers:
            keys = [key for name, key in unproven if name == precheck.name]
            if keys and isinstance(precheck, Precheck):
                self._asked.append((precheck, keys))

    def summarise(self, unit: Unit) -> Iterator[Summarised]:
        """The summaries of a unit that speak to these keys."""
        for precheck, keys in self._asked:
            machine = precheck.machine(precheck.runs, precheck.judges)
            places = np.flatnonzero(unit.chosen(machine.events))
            if every := EVERY_KEY in keys:
                concerned = places
            else:
                concerned = places[precheck.concerned(unit.of(machine.events), keys, unit.run)]
            for piece, its in unit.at_each_piece(concerned):
                for key, summary in machine.summarise(piece, its.tuples()):
                    if every or (machine.name, key) in self._unproven:
                        yield machine.name, key, piece, summary
