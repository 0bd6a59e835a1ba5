"""The context of a machine beside the rows of its own key: the runs, the names of actors, and how far the trace is whole.

A TraceContext is small (a few numbers an actor), the same for every key, and can be pickled: a cluster builds it once and
sends it everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import compress

from warrenmq.trace.catalog import FOREVER, NEVER, STRANGER, Catalog, Coverage, Run
from warrenmq.trace.events import DROP_DELETED, ActorStart, ActorStop, Ev, Reason
from warrenmq.trace.schema import Row, count_words

Who = tuple[int, int]
"""An actor of a trace: (index of its run, trace id)."""
Name = tuple[str, str]
"""The same for all incarnations of an actor: (scope of their runs, name)."""

UNDELIVERED = int(Ev.UNDELIVERED)
FAREWELLS = frozenset({Ev.ACTOR_STOP, Ev.UNDELIVERED})
RARE = frozenset({
    Ev.ACTOR_START, Ev.ACTOR_STOP, Ev.QUEUE_RECOVERED, Ev.STORE_RECOVERED, Ev.QUEUE_CLOSED, Ev.STORE_CLOSED,
    Ev.QI_SYNC, Ev.RUN_END, Ev.DROP,
})  # fmt: skip

IS_ACT = bytes(event not in FAREWELLS for event in range(256))
IS_WORK = bytes(event > UNDELIVERED for event in range(256))
IS_RARE = bytes(event in RARE for event in range(256))
"""Tables for bytes.translate: event -> 1 if it is one of these."""


@dataclass(slots=True)
class ActorSummary:
    """One actor's rows, counted, and the rare ones that others need."""

    counts: dict[int, int] = field(default_factory=dict)
    """Rows by event << 8 | flag."""
    first_t: int = 0
    incarnation: int = 0
    """The actor's incarnation, from ACTOR_START; 0 = it never got that far."""
    started_t: int = 0
    stopped: Row | None = None
    recovered: Row | None = None
    """QUEUE_RECOVERED or STORE_RECOVERED."""
    closed: Row | None = None
    """QUEUE_CLOSED or STORE_CLOSED."""
    last_sync: int = 0
    """seq of the last QI_SYNC."""
    deleted_t: int = 0
    """t of the first DROP_DELETED."""
    last_act: tuple[int, int] | None = None
    """(t, seq) of the last row that is not a farewell (ACTOR_STOP, UNDELIVERED)."""
    last_work: int = 0
    """t of its last row about its own work, not about mail or its life."""
    ended_run: bool = False
    """True if it wrote RUN_END."""

    @property
    def end_reason(self) -> int | None:
        """Reason for the actor's end (Reason); None if it did not end, or was not heard of again."""
        return None if self.stopped is None else ActorStop.of(self.stopped).reason

    @property
    def events(self) -> frozenset[int]:
        """The events it wrote."""
        return frozenset(word >> 8 for word in self.counts)

    def count(self, event: int, flag: int | None = None) -> int:
        """Number of rows of an event, with this flag if one is given."""
        if flag is not None:
            return self.counts.get(event << 8 | flag, 0)
        return sum(n for word, n in self.counts.items() if word >> 8 == event)

    def note(self, rows: Sequence[Row], events: bytes) -> None:
        """Take in the next rows of the actor, and the events of each (`events_of`)."""
        if not self.first_t:
            self.first_t = rows[0].t
        count_words(rows, self.counts)
        if (act := events.translate(IS_ACT).rfind(1)) >= 0:
            self.last_act = rows[act].t, rows[act].seq
        if (work := events.translate(IS_WORK).rfind(1)) >= 0:
            self.last_work = rows[work].t
        if 1 in (rare := events.translate(IS_RARE)):
            self.note_rare(compress(rows, rare))

    def note_rare(self, rows: Iterable[Row]) -> None:
        """Take in the next rows of the actor of which more than their number matters."""
        for row in rows:
            self._note(row)

    def _note(self, row: Row) -> None:
        match row.event:
            case Ev.QI_SYNC:
                self.last_sync = row.seq
            case Ev.ACTOR_START if not self.incarnation:
                self.incarnation, self.started_t = ActorStart.of(row).incarnation, row.t
            case Ev.ACTOR_STOP:
                self.stopped = row
            case Ev.QUEUE_RECOVERED | Ev.STORE_RECOVERED:
                self.recovered = self.recovered or row
            case Ev.QUEUE_CLOSED | Ev.STORE_CLOSED:
                self.closed = row
            case Ev.RUN_END:
                self.ended_run = True
            case Ev.DROP if row.flag == DROP_DELETED and not self.deleted_t:
                self.deleted_t = row.t

    def merge(self, later: ActorSummary) -> None:
        """Take in those of later rows of the same actor."""
        for word, n in later.counts.items():
            self.counts[word] = self.counts.get(word, 0) + n
        self.first_t = self.first_t or later.first_t
        if not self.incarnation:
            self.incarnation, self.started_t = later.incarnation, later.started_t
        self.stopped = later.stopped or self.stopped
        self.recovered = self.recovered or later.recovered
        self.closed = later.closed or self.closed
        self.last_sync = later.last_sync or self.last_sync
        self.deleted_t = self.deleted_t or later.deleted_t
        self.last_act = later.last_act or self.last_act
        self.last_work = later.last_work or self.last_work
        self.ended_run = self.ended_run or later.ended_run


@dataclass(slots=True)
class TraceContext:
    """Runs in the order of their boots, the coverage and the actor_summaries of every actor."""

    runs: Sequence[Run]
    coverage: dict[Who, Coverage]
    actor_summaries: dict[Who, ActorSummary] = field(default_factory=dict)
    _queues: dict[Name, list[Who]] = field(default_factory=dict)
    _deletions: dict[Name, list[Who]] | None = None
    _several: bool | None = None
    _clean: dict[int, bool] = field(default_factory=dict)
    _summaries_of: dict[int, dict[Who, ActorSummary]] = field(default_factory=dict)
    """Those of each run: to look for them among all, run by run, is most of the work in a trace of a thousand runs."""
    _runs_of: dict[str, list[int]] = field(default_factory=dict)
    """The numbers of the runs of each scope."""
    _lasts: dict[tuple[int, str], int] = field(default_factory=dict)

    @classmethod
    def of(cls, catalog: Catalog) -> TraceContext:
        return cls(catalog.runs, catalog.coverage)

    def name(self, who: Who) -> str:
        return self.runs[who[0]].actor_name(who[1])

    def scoped(self, who: Who) -> Name:
        run = self.runs[who[0]]
        return run.scope, run.actor_name(who[1])

    def title(self, name: Name) -> str:
        """The name as people read it: with whose it is, where the trace is of several brokers."""
        scope, plain = name
        if self._several is None:
            self._several = len({run.scope for run in self.runs}) > 1
        return f"{plain} ({scope})" if self._several else plain

    def known_until(self, who: Who) -> int:
        """Every row of this actor up to this t is in the trace."""
        coverage = self.coverage.get(who)
        return coverage.known_until if coverage is not None else NEVER

    def can_prove(self, rows: Iterable[tuple[int, int, int]]) -> bool:
        """True unless one of these rows, as (run, actor, seq), is of a run whose rows prove nothing."""
        return not any(self.runs[run].why_undecidable for run, _, _ in rows)

    def has_ended(self, who: Who) -> bool:
        """Every row that this actor will ever have written is here; one without any row has written none."""
        return who not in self.coverage or self.known_until(who) == FOREVER

    def ends_unproven(self, who: Who, seq: int) -> bool:
        """A row beyond the actor's last one, in a run that was killed: its file may have been cut between two frames."""
        coverage = self.coverage.get(who)
        run = self.runs[who[0]]
        return coverage is None or (seq > coverage.last_seq and not coverage.stopped and not run.closed)

    def may_be_cut(self, who: Who, t: int) -> bool:
        """True if nothing but its slab says that the actor wrote no more rows before t: the run was killed, and none is as late."""
        coverage = self.coverage.get(who)
        return self.ends_unproven(who, FOREVER) and (coverage is None or coverage.t_last < t)

    def actor_summary(self, who: Who) -> ActorSummary:
        return self.actor_summaries.get(who) or ActorSummary()

    def incarnations(self, name: Name) -> list[Who]:
        """All queue processes of this name, in the order of their lives."""
        if not self._queues:
            for who, mark in sorted(self.actor_summaries.items()):
                if mark.recovered is not None or Ev.PUBLISH in mark.events:
                    self._queues.setdefault(self.scoped(who), []).append(who)
        return self._queues.get(name, [])

    def was_deleted_between(self, who: Who, successor: Who) -> bool:
        """True if this incarnation of a queue, or an actor of its name before the next one, wrote that the queue is deleted."""
        if self._deletions is None:
            self._deletions = {}
            for each, mark in self.actor_summaries.items():
                if Ev.QUEUE_DELETED in mark.events:
                    self._deletions.setdefault(self.scoped(each), []).append(each)
        return any(who <= each < successor for each in self._deletions.get(self.scoped(who), ()))

    def was_leaving(self, who: Who, t: int) -> bool:
        """True if at t the actor's queue was being deleted, or the actor had done its last work: it was about to stop."""
        mark = self.actor_summary(who)
        if mark.deleted_t and mark.deleted_t < t:
            return True
        return mark.stopped is not None and mark.last_work < t

    def was_killed(self, who: Who) -> bool:
        """True if the actor was killed, which its thread notices only when it does something."""
        return self.actor_summary(who).end_reason == Reason.KILLED

    def ended_cleanly(self, run: int) -> bool:
        """The run wrote RUN_END, and the last incarnation of each queue and store in it stopped in good order."""
        if run not in self._clean:
            if not self._summaries_of:
                for who, mark in sorted(self.actor_summaries.items()):
                    self._summaries_of.setdefault(who[0], {})[who] = mark
            marks = self._summaries_of.get(run, {})
            lasts = {self.name(who): mark for who, mark in marks.items() if mark.recovered is not None}
            self._clean[run] = any(mark.ended_run for mark in marks.values()) and all(
                mark.end_reason in {Reason.NORMAL, Reason.SHUTDOWN} for mark in lasts.values()
            )
        return self._clean[run]

    def incomplete(self, run: int) -> tuple[Who, ...]:
        """Actors of this and earlier runs of the same scope of whom rows are missing."""
        earlier = {number for number, _ in self._earlier(run)}
        return tuple(
            who for who, coverage in self.coverage.items() if who[0] in earlier and not coverage.complete
        )

    def namesakes(self, name: str, run: int) -> tuple[Who, ...]:
        """Every actor of this name in this and earlier runs of the same scope, whether or not there are rows
        of it, or even its name.
        """
        earlier = self._earlier(run)
        return tuple(
            (number, actor)
            for number, its in earlier
            for actor, entry in its.actors.items()
            if entry.name == name
        ) + tuple((number, STRANGER) for number, _ in earlier if (number, STRANGER) in self.coverage)

    def _earlier(self, run: int) -> list[tuple[int, Run]]:
        if not self._runs_of:
            for number, its in enumerate(self.runs):
                self._runs_of.setdefault(its.scope, []).append(number)
        its_scope = self._runs_of[self.runs[run].scope]
        return [(number, self.runs[number]) for number in its_scope if number <= run]

    def started_by(self, who: Who) -> tuple[Who, ...]:
        """The actors that this one started."""
        actors = self.runs[who[0]].actors
        return tuple((who[0], actor) for actor, entry in actors.items() if entry.parent == who[1])

    def collectors_of(self, store: Who) -> tuple[Who, ...]:
        """The garbage collectors of a store; where none is known and names may be missing, whoever may have been one."""
        stranger = store[0], STRANGER
        return self.started_by(store) or ((stranger,) if stranger in self.coverage else ())

    def is_last_of_name(self, who: Who) -> bool:
        """True if the run has no later incarnation of this actor."""
        if not self._lasts:
            self._lasts = {
                (run, self.name((run, actor))): actor for run, actor in sorted(self.actor_summaries)
            }
        return self._lasts[who[0], self.name(who)] == who[1]

    def is_transient_store(self, who: Who) -> bool:
        """True if the content of this store does not outlive it."""
        return "transient" in self.name(who)
