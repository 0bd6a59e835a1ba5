"""A rule: one invariant, all that is known of it in one object, in a file of its own beside this one.

    RULE = Rule(
        id="Q5",
        name="nothing ready is stuck",            in tables
        text="When a queue has nothing ...",      the sentence
        sources=("docs/reference/classic-queue.md#p6", ...),  where RabbitMQ's source, or a format, says so
        exercised=Exercised(...),                 which rows could have broken it
        machines=(Rests,),                        what decides it, row by row, and by arrays
        sql=...,                                  the same said by tables: sql.py
        explain=_stuck,                           the rows that make a finding understandable
        is_final=...,                             when a finding stands in a trace that is still being written
    )

Most machines serve one rule and stand in its file, with their array form.  Several rules that look at the
same state of a queue, a file or a message share one pass over its rows.  These machines are in passes/: they
keep the state, and each rule decides on it in its own file (`judge`).

The registry (registry.py) is every RULE of this folder: a new rule is a new file, and a planted violation in
tests/replay/planted_violations.py.  Rules of users are the same objects.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from warrenmq.replay.drive.machines import Finding, Machine
from warrenmq.replay.drive.trace_context import TraceContext
from warrenmq.replay.explain.story import Chain, Story, no_chain

FORMAT = "warrenmq/trace/events/__init__.py"


@dataclass(frozen=True, slots=True)
class Exercised:
    """The rows, or cases, that could have broken a rule: without any, it was not exercised and says nothing."""

    by: str
    """The rows or cases in words."""
    rows: Mapping[int, Collection[int] | None] | None = None
    """Event -> with these flags, None = whatever its flag; no event at all = every row.  None: the machines count the cases
    (figures of EXERCISED)."""

    def count(self, rows: Mapping[int, int]) -> int:
        """Number of rows that are such cases; `rows` has the number of rows of each event and flag, as
        ActorSummary.counts.
        """
        if self.rows is None:
            return 0
        return sum(
            n
            for word, n in rows.items()
            if not self.rows or (word >> 8 in self.rows and self._has_flag(self.rows[word >> 8], word & 0xFF))
        )

    @staticmethod
    def _has_flag(flags: Collection[int] | None, flag: int) -> bool:
        return flags is None or flag in flags


def is_known(finding: Finding, context: TraceContext) -> bool:
    """Every row that could have changed the finding is there: the actors that it needs are known up to its time."""
    return all(context.known_until(who) >= finding.t for who in finding.needs)


def always(*_: Any) -> bool:
    return True


def _nothing(*_: Any) -> None:
    return None


@dataclass(frozen=True, slots=True)
class Judge:
    """A rule's part in a pass that several rules share; the pass's file says with what each function is called."""

    fine: Callable[..., Any] = always
    """True if one thing that the pass came to is as it should be.  Written for plain numbers and for arrays
    of them alike, so that the machine and its array form decide by the same table: `&`, `|`, no `and`, no
    `or`.
    """
    decide: Callable[..., None] = _nothing
    """All rows of a key are in: notes findings and figures in the Outcome that is the last argument."""
    proves: Callable[..., bool] = always
    """The same by arrays: True if `decide` would find nothing."""


def questions(judges: Mapping[str, Judge]) -> tuple[Callable[..., Any], ...]:
    """The `fine` of each rule that has one."""
    return tuple(judge.fine for judge in judges.values() if judge.fine is not always)


class Answers(dict[tuple[int, ...], bool]):
    """The answers of all rules to the few questions that come again and again: arguments -> whether that is fine."""

    def __init__(self, judges: Mapping[str, Judge]) -> None:
        super().__init__()
        self._questions = questions(judges)

    def __missing__(self, asked: tuple[int, ...]) -> bool:
        self[asked] = all(fine(*asked) for fine in self._questions)
        return self[asked]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One invariant; see the module."""

    id: str
    name: str
    text: str
    exercised: Exercised
    machines: tuple[type[Machine], ...] = ()
    sources: tuple[str, ...] = ()
    """Links; docs/reference/message-store.md#i21 is an invariant, docs/reference/classic-queue.md#p25 a property."""
    sql: str = ""
    """A query of its violations, each a row (run, actor, seq) of the trace: specification and third judge,
    held against the machines by tests.
    """
    not_in_sql: str = ""
    """The reason why the rule has no SQL, or the part that its SQL leaves out."""
    explain: Callable[[Story], Chain] = no_chain
    is_final: Callable[[Finding, TraceContext], bool] = is_known
    judge: Mapping[type[Machine], Any] = field(default_factory=dict)
    """The rule's decisions in passes that it shares, in the form that the file of each pass names: a Judge,
    or a table of checks.
    """

    @property
    def events(self) -> frozenset[int]:
        """The events that decide it; empty = all."""
        read = [machine.events for machine in self.machines]
        return frozenset() if not all(read) else frozenset().union(*read)

    def reads(self, events: frozenset[int]) -> bool:
        """True if rows of any of these events matter to it."""
        return not self.events or bool(self.events & events)
