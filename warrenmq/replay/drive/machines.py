"""The machine of a rule: it summarises pieces anywhere, absorbs summaries by key, and finishes with findings.

driver.py states the steps.  A piece is consecutive rows of one actor: a block of up to 1,024, or several that
follow each other.  No machine needs the rows of one actor in one place.
`piece.order` is (run, actor, first seq): within a key the summaries of one actor come in the order of its
rows; nothing is promised between actors, so a machine whose key gathers several actors sorts by t when it
finishes, or keeps a state in which their order does not matter.

    machine      key                                     rules
    chain        run, actor                              T1
    mail         run, sender, seq >> 12 of the SEND      T2 T4
    supervisor   run, actor                              R1
    names        run, name of the actor                  R2
    children     run, actor                              R3
    confirms     run, queue actor                        C1 (queue's side), C3, C4; chunks fold into a window of open messages
    fifo         run, queue actor                        Q1 Q2 (order); chunks fold into runs of sequence ids
    expiry       scope, queue name, sequence id >> 12    Q3
    ledger       scope, queue name, sequence id >> 12    Q1 (states), C2, Q3 (no time to live), Q4, E1 (queues)
    synced       run, store actor                        C1 (store side); chunks fold into the unsynced records
    on_disk      run, msg >> 12                          C1 (reports of a store to a queue)
    references   scope, msg >> 12                        S1 (stage 2: takes the ledger's facts), E1 (stores)
    decisions    run, store actor                        S2
    files        run, store actor, file                  S3 S4 S5 S6 S7 S8, E1 (files)
    garbage      run, store actor                        S9
    waits        run, actor                              W1
    settles      run, queue actor                        A1 A2 A3 A4
    rests        run, queue actor                        Q5
    lengths      run, queue actor                        Q7
    letters      run, queue actor                        Q8
    places       run, msg >> 12                          D1

A scope is a virtual host of a data directory (Run.scope): what two brokers say of a queue of one name is never put together.
E1 is decided where all figures are (end_state.py): what queues and stores said of themselves against the sums of the parts.

Keys are tuples of ints and strings, summaries and states are built of ints, strings, bytes, lists, dicts and
arrays: all can be pickled on the way between processes, and kept in a checkpoint (state_codec.py).  Of
warrenmq/replay only replay/spark knows of Spark.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import compress
from typing import Any, ClassVar, NamedTuple

from warrenmq.replay.drive.columns import Rows
from warrenmq.replay.drive.trace_context import TraceContext, Who
from warrenmq.trace.catalog import Chunk, Run
from warrenmq.trace.schema import Row

Key = tuple[int | str, ...]
Summary = Any
State = Any

Held = tuple[Who, int]
"""A queue that held a message at the clean end of its run: (queue, message)."""
Fact = tuple[str, Key, Held]
"""A summary from one key to another, whose machine is of a later stage: (machine, key, summary)."""

FigureKey = tuple[str | int, ...]
"""The key of a figure, for instance ("queue", "jobs", "published"); figures of equal keys add up."""

FOUND = "found"
"""Begins the key of a figure that counts findings (findings.py): (FOUND, "violations" or "indeterminate", rule, scope)."""
INCIDENT = "incident"
"""Begins the key of a figure that counts what went wrong outside the rules (incidents.py): (INCIDENT, what)."""
EXERCISED = "exercised"
"""Begins the key of a figure that counts the cases that could have broken a rule, where rows alone do not
say: (EXERCISED, rule).
"""
DELAY = "delay"
"""Begins the key of a histogram of delays by class: (DELAY, queue, which delay)."""
STATE = "state"
"""Begins the key of a figure that is part of a run's end (end_state.py): (STATE, run, actor, what ...)."""


class Finding(NamedTuple):
    """A broken rule, as far as the rows at hand show."""

    rule: str
    subject: str
    """Which queue, message, file or actor."""
    text: str
    rows: tuple[tuple[int, int, int], ...]
    """The evidence: (run, actor, seq)."""
    t: int
    """The time of the last piece of evidence: rows after it cannot change the finding."""
    needs: tuple[Who, ...]
    """The actors whose rows up to t must be whole for the finding to stand."""
    about: tuple[int, ...] = ()
    """Facts that the rows alone do not tell, for the explanation: sequence ids, a message, a store and its file."""


def message_name(msg: int) -> str:
    """A message as the subject of a finding: its id as 16 hexadecimal digits."""
    return f"message {msg & 0xFFFFFFFFFFFFFFFF:016x}"


class FileEnd(NamedTuple):
    """A file of a store as its rows leave it."""

    run: int
    store: int
    """The store's actor."""
    file: int
    file_size: int
    valid_total_size: int
    locked: bool


class Figures(dict[FigureKey, int]):
    """Counts by key; a key that is not there counts 0.  A Counter, of which most stay empty, takes ten times
    as long to make.
    """

    def __missing__(self, key: FigureKey) -> int:
        return 0

    def add(self, others: Mapping[FigureKey, int]) -> None:
        """Add counts to those of the same keys."""
        for key, n in others.items():
            self[key] += n


@dataclass(slots=True)
class Outcome:
    """The result of a key."""

    findings: list[Finding] = field(default_factory=list)
    figures: Figures = field(default_factory=Figures)
    histograms: dict[FigureKey, Mapping[int, int]] = field(default_factory=dict)
    """Figures that are many counts each: how often each number was met, such as classes of a delay."""
    largest: dict[FigureKey, int] = field(default_factory=dict)
    """Figures of which the largest counts, and not the sum."""
    facts: list[Fact] = field(default_factory=list)
    file: FileEnd | None = None
    """The end of a file that is still there, if the key is one."""
    needs_full_check: bool = False
    """A precheck could not prove the key fine; the rest of the outcome is empty."""


class Machine(ABC):
    """A state machine over the rows of its events, with a state for each key.  The object itself holds no rows."""

    name: ClassVar[str]
    events: ClassVar[frozenset[int]]
    """The rows it is given; empty = all."""
    stage: ClassVar[int] = 1
    of_one_run: ClassVar[bool] = True
    """True if its keys begin with the number of a run; else with the scope of several."""
    precheck: ClassVar[type[Any] | None] = None
    """The array form of the machine, if it has one (precheck.py): set by that class."""

    def __init__(self, runs: Sequence[Run], judges: Mapping[str, Any] | None = None) -> None:
        self.runs = runs
        self.judges = judges or {}
        """The judges of a machine that serves several rules: rule id -> its decisions, in the form that the
        machine's file names.
        """

    @abstractmethod
    def summarise(self, piece: Chunk, rows: list[Row]) -> Iterator[tuple[Key, Summary]]:
        """The summary for each key from the rows of a piece that this machine reads (at least one)."""

    def fold(self, piece: Chunk, rows: Rows) -> Iterator[tuple[Key, Summary]]:
        """`summarise` of the same rows, given as arrays; `rows` are of a piece without gaps."""
        return self.summarise(piece, rows.tuples())

    def start(self, key: Key) -> State:  # noqa: ARG002
        """The state before any row: as a rule a list, if summaries are lists."""
        return []

    def absorb(self, state: State, summary: Summary) -> None:
        """Take the next summary into the state."""
        state += summary

    @abstractmethod
    def finish(self, key: Key, state: State, context: TraceContext) -> Outcome:
        """Decide a key once all its summaries are in."""

    def prune(self, key: Key, state: State, context: TraceContext) -> bool:  # noqa: ARG002 - for those that can
        """True if no later row of a trace that is still being written can need this state, so that it may be forgotten.

        A state that has to stay may be made smaller here.
        """
        return False


@lru_cache(maxsize=256)
def _reads(events: frozenset[int]) -> bytes:
    """A table for bytes.translate: event -> 1 if a machine that reads these events reads it."""
    return bytes(not events or event in events for event in range(256))


class Summariser:
    """Gives every machine the rows of a piece that it reads."""

    def __init__(self, machines: Sequence[Machine]) -> None:
        self.machines = {machine.name: machine for machine in machines}
        self._readers = [(machine, _reads(machine.events)) for machine in machines]
        self._readers_of: dict[frozenset[int], list[tuple[Machine, bytes]]] = {}
        """The machines that read any of these events, and their tables; few sets of events occur."""

    def summarise(self, piece: Chunk, rows: list[Row], events: bytes) -> Iterator[tuple[str, Key, Summary]]:
        """Every machine's summaries of one piece, given the events of its rows, too (`events_of`)."""
        kinds = frozenset(events)
        if (readers := self._readers_of.get(kinds)) is None:
            bare = bytes(kinds)
            readers = [each for each in self._readers if 1 in bare.translate(each[1])]
            self._readers_of[kinds] = readers
        for machine, reads in readers:
            chosen = events.translate(reads)
            its_rows = rows if 0 not in chosen else list(compress(rows, chosen))
            for key, summary in machine.summarise(piece, its_rows):
                yield machine.name, key, summary
