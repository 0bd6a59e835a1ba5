"""The setting of a trace that is still being written: the steps of the driver, batch by batch.

    take(what a batch of rows says)    1  summarise   runs, actors and their summaries grow, `known_until` follows what was read,
                                                      and every key that rows spoke of absorbs what they said
                                       2  conclude    it is finished again; findings that stand (`Rule.is_final`) are noted to be
                                                      printed, and a key with others is asked again with every batch
                                       3  save        keys that no later row can need are forgotten (`Machine.prune`)

The context of a live trace is what was read so far, so `finish`, which a replay calls once, is called on
states that go on to grow: no machine's `finish` changes its state.  Keys that no row speaks of are asked when
something else happens that they look at: the names of actors with several incarnations always, a queue's ids
when it has recovered, what its consumers hold when it synced or stopped, everything when a run ends.

A run has ended when it was closed, or, if it was killed, when the next boot of its node has begun and it was
silent since: one data directory has one broker at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from warrenmq.replay.drive.batch_summary import BatchSummary
from warrenmq.replay.drive.driver import Keys, decide
from warrenmq.replay.drive.end_state import disagreements
from warrenmq.replay.drive.findings import Found, Place
from warrenmq.replay.drive.incidents import DAMAGED, incidents
from warrenmq.replay.drive.live_store import LiveStore
from warrenmq.replay.drive.machines import INCIDENT, STATE, FigureKey, Finding, Key, Machine, State
from warrenmq.replay.drive.result import finding_as_dict
from warrenmq.replay.drive.trace_context import ActorSummary, Name, TraceContext, Who
from warrenmq.replay.rules.passes.message_life import READY, UNACKED
from warrenmq.replay.rules.registry import all_machines, is_final
from warrenmq.replay.rules.unbroken_rows import broken_chains
from warrenmq.trace.catalog import (
    FOREVER,
    NEVER,
    STRANGER,
    Catalog,
    Chunk,
    Coverage,
    Run,
    find_lost_pages,
    mark_missing_runs,
    order_of_boots,
)
from warrenmq.trace.events import RunStart

Line = Callable[[dict[str, Any]], str]
"""Makes the line that is printed of what was found: an object of JSON with its kind as "event" (watch.py)."""

AT_THE_END = ("ledger", "references", "files")
"""Machines that are asked for the state at the end of a run."""


class Standing(NamedTuple):
    """The counts of a watch for its last line, and which runs may go on."""

    events: int
    violations: int
    in_flight: int
    """Messages that queues hold, ready or unacked."""
    waiting: int
    """Keys with something that cannot be decided yet."""
    running: tuple[tuple[str, int], ...]
    """(machine, pid) of the runs that nothing in the trace says to be over."""
    incidents: Mapping[str, int] = MappingProxyType({})
    """Losses and damage so far, by the names of incidents.py."""


class LiveContext(TraceContext):
    """The context so far.  An actor without rows has written none up to the time that everything was read to."""

    def __init__(self, live: Live) -> None:
        super().__init__(live.runs, live.coverage, live.actor_summaries)
        self._several = live.one_of_several or None
        self._live = live

    def known_until(self, who: Who) -> int:
        return super().known_until(who) if who in self.coverage else self._live.silent_until(who)

    def has_ended(self, who: Who) -> bool:
        return self.known_until(who) == FOREVER


class Live:
    """The state of a live trace, kept in a store; see the module."""

    def __init__(self, store: LiveStore, *, one_of_several: bool = False) -> None:
        self.store = store
        self.one_of_several = one_of_several
        """Others hold runs of further directories, so names are told with theirs."""
        self.runs: list[Run] = list(store.all_about("run "))
        self._read_to: dict[int, dict[str, Any]] = store.get("places", {})
        """The place up to which each run was read (trace/tail.py)."""
        self._ended: set[int] = store.get("ended", set())
        self._pending: set[Place] = store.get("pending", set())
        """Keys that are asked with every batch."""
        self.coverage: dict[Who, Coverage] = {}
        self.actor_summaries: dict[Who, ActorSummary] = {}
        for who, coverage, marks in store.all_about("actor "):
            self.coverage[who], self.actor_summaries[who] = coverage, marks
        self._keys = Keys(all_machines(self.runs), store)
        self._batch: list[BatchSummary] = []
        """The argument of the last `take`; what stands below is of this batch."""
        self._settled: list[int] = []
        """Up to when each run was read."""
        self._line: Line
        self._touched: set[Place] = set()
        """Keys to ask: rows spoke to them, or they were pending."""
        self._absorbed: set[Place] = set()
        """Keys whose state this batch has changed."""
        self._changed: set[Who] = set()
        """Actors with new rows."""
        self._ending: set[int] = set()
        """Runs that are over since."""
        self._held: dict[Key, dict[Who, int]] = dict(store.all_about("held "))
        """Messages that the lives of a queue hold, by the keys of its ledger."""
        self._damaged: dict[Key, int] = dict(store.all_about("damaged "))
        """Messages of a queue that were lost to damage."""
        self._ledgers: dict[Name, set[Key]] = {}
        for key in self._held:
            self._ledgers.setdefault(_queue_of(key), set()).add(key)

    @property
    def catalog(self) -> Catalog:
        """The catalog, for the names in findings."""
        return Catalog(self.runs, [], self.coverage, [], 0, [])

    def take(self, batch: Iterable[BatchSummary], line: Line) -> None:
        """Take in what a batch of rows said; the caller has begun a transaction."""
        self._batch = sorted(
            batch, key=lambda each: (each.number, each.chunks[0].seq_first if each.chunks else 0)
        )
        self._line = line
        self._touched = set(self._pending)
        context = LiveContext(self)
        found = decide(self, context)
        disagree = disagreements(context, found)
        self._report((each for each in disagree if each.rows[-1][0] in self._ending), context)
        self._save(context)

    # the steps of the driver, with what a batch said

    @property
    def machines(self) -> Sequence[Machine]:
        """The machines of all rules."""
        return list(self._keys.machines.values())

    def summarise(self) -> dict[Who, ActorSummary]:
        """Take in the runs, pieces and summaries of the batch."""
        for each in self._batch:
            self._take_run(each)
        pieces = list(_pieces(self._batch))
        self._changed = {who for who, _ in pieces}
        broken = [finding for who, piece in pieces for finding in self._cover(who, piece)]
        for found in (found for each in self._batch for found in each.damage):
            said = {"event": "damage", "file": found.file, "offset": found.offset, "bytes": found.size}
            self.store.report(("damage", *found), self._line(said))
        self._touched |= self._take_actor_summaries()
        self._note_what_is_known()
        self._absorbed = self._absorb()
        self._touched |= self._absorbed
        self._pending = self._names_to_watch()
        self._ending = {
            number for number in range(len(self.runs)) if number not in self._ended and self._is_over(number)
        }
        self._ended |= self._ending
        self._report(broken, LiveContext(self))
        return self.actor_summaries

    def conclude(self, stage: int, context: TraceContext) -> Found:
        """Ask the keys of this stage, print what stands; the figures are of the ends of runs that are over now."""
        found = Found()
        for name, key in self._places(stage):
            outcome = self._keys.finish(name, key, context)
            self._note_damaged(key, outcome.figures.get((INCIDENT, DAMAGED), 0))
            findings = self._decidable(outcome.findings)
            if not all(is_final(finding, context) for finding in findings):
                self._pending.add((name, key))
            self._report(findings, context)
            found.figures.add(self._of_the_end(outcome.figures))
            found.note_largest(self._of_the_end(outcome.largest))
            for to, to_key, fact in outcome.facts:
                if fact[0][0] in self._ending:
                    self._keys.absorb(to, to_key, fact)
                    self._absorbed.add((to, to_key))
        return found

    def _note_damaged(self, key: Key, messages: int) -> None:
        if messages > self._damaged.get(key, 0):  # a ledger that was pruned knows of fewer
            self._damaged[key] = messages
            self.store.put(f"damaged {key}", (key, messages))

    def _of_the_end(self, figures: Mapping[FigureKey, int]) -> dict[FigureKey, int]:
        """The figures that belong to the state of a run that has just ended."""
        return {key: n for key, n in figures.items() if key[0] == STATE and key[1] in self._ending}

    def check_fully(self, stage: int, unproven: set[Place], context: TraceContext) -> Found:  # noqa: ARG002 - never asked
        raise AssertionError("there is no precheck that could leave a key unproven")

    def _places(self, stage: int) -> list[Place]:
        """Keys with new summaries, keys that are asked with every batch, and those that know the end of a run
        that is over now.
        """
        asked = set(self._touched)
        for name in AT_THE_END if self._ending else ():
            of_one_run = self._keys.machines[name].of_one_run
            asked |= {
                (name, key) for key in self.store.keys(name) if not of_one_run or key[0] in self._ending
            }
        return sorted(
            (place for place in asked if self._keys.machines[place[0]].stage == stage),
            key=lambda place: (place[0], str(place[1])),
        )

    def standing(self) -> Standing:
        """The counts of now, and which runs may go on."""
        return Standing(
            sum(coverage.rows for coverage in self.coverage.values()),
            self.store.count_violations(),
            self._in_flight(),
            len(self._pending),
            tuple(
                (run.machine, run.pid)
                for number, run in enumerate(self.runs)
                if not run.closed and not self._was_followed(number)
            ),
            incidents(self.catalog, LiveContext(self), {(INCIDENT, DAMAGED): sum(self._damaged.values())}),
        )

    def _in_flight(self) -> int:
        context = LiveContext(self)
        last = {name: context.incarnations(name)[-1:] for name in self._ledgers}
        return sum(
            self._held.get(key, {}).get(who, 0)
            for name, keys in self._ledgers.items()
            for key in keys
            for who in last[name]
        )

    # runs and actors

    def _take_run(self, part: BatchSummary) -> None:
        while len(self.runs) <= part.number:
            self.runs.append(part.run)
        run = self.runs[part.number]
        run.actors.update(part.run.actors)
        run.start = part.run.start or run.start
        run.boot = RunStart.of(run.start).boot if run.start is not None else run.boot
        run.closed = bool(part.place["closed"])
        run.contradicted = run.contradicted or part.run.contradicted
        run.lossy = run.lossy or bool(part.place["lossy"])
        self._read_to[part.number] = part.place
        self.store.put(f"run {part.number:06d}", run)

    def _cover(self, who: Who, piece: Chunk) -> Iterator[Finding]:
        coverage = self.coverage.setdefault(who, Coverage(*who))
        last = piece._replace(
            seq_first=coverage.last_seq, rows=1, t_first=coverage.t_last, t_last=coverage.t_last
        )
        if piece.seq_first > last.seq_end:
            gap, run = (last.seq_end, piece.seq_first - 1), self.runs[who[0]]
            found = {"event": "missing", "run": run.name, "actor": run.actor_name(who[1])}
            said = self._line(found | dict(zip(("first_seq", "last_seq"), gap, strict=True)))
            self.store.report(("missing", *who, *gap), said)
        if not coverage.add(piece):
            yield from broken_chains(Catalog(self.runs, [], {}, [], 0, [(last, piece)]))

    def _take_actor_summaries(self) -> set[Place]:
        """Returns the keys of queues that have recovered, or that synced or stopped, by when all had to be given back."""
        woken: set[Place] = set()
        parts = sorted(
            (((each.number, actor), seq, part) for each in self._batch for actor, seq, part in each.actors),
            key=lambda each: each[:2],
        )
        for who, _, part in parts:
            self.actor_summaries.setdefault(who, ActorSummary()).merge(part)
            if part.last_sync or part.closed is not None:
                woken.add(("settles", who))
            if part.recovered is not None:
                run = self.runs[who[0]]
                name = run.scope, run.actor_name(who[1])
                woken |= {("ledger", key) for key in self._ledgers.get(name, ())}
        return woken

    def _note_what_is_known(self) -> None:
        """Note which runs are whole, and up to when each actor's rows are here."""
        in_order = sorted(self.runs, key=order_of_boots)
        find_lost_pages(in_order)
        for number, run in enumerate(self.runs):
            place = self._read_to[number]
            there = place["ended"] or not self._is_over(number)
            run.whole = there and not (run.lossy or place["damaged"] or place["missing"])
            run.has_strangers = not run.whole
        mark_missing_runs(in_order)
        self._settled = [self._settled_until(number) for number in range(len(self.runs))]
        for number, run in enumerate(self.runs):
            self.coverage.pop((number, STRANGER), None)
            if run.has_strangers:
                self.coverage[number, STRANGER] = Coverage(number, STRANGER)
        for (number, _), coverage in self.coverage.items():
            settled = FOREVER if coverage.stopped else self._settled[number]
            coverage.end_known = settled == FOREVER
            if self.runs[number].why_undecidable:
                coverage.known_until = NEVER
            elif coverage.rows and not coverage.gaps:
                coverage.known_until = max(coverage.t_last, settled)

    def _settled_until(self, number: int) -> int:
        """Every row of a run up to this t was read; NEVER where parts of it are missing."""
        run = self.runs[number]
        if run.why_undecidable or not run.whole:
            return NEVER
        return FOREVER if self._is_over(number) else int(self._read_to[number]["settled"])

    def silent_until(self, who: Who) -> int:
        """An actor of whom there are no rows has written none up to this t."""
        return NEVER if who[1] == STRANGER else self._settled[who[0]]

    def _is_over(self, number: int) -> bool:
        """True if no row of this run can come any more."""
        run = self.runs[number]
        return not run.lossy and (run.closed or self._was_followed(number))

    def _was_followed(self, number: int) -> bool:
        """The next boot of its directory has begun after the last row of a run."""
        run = self.runs[number]
        last = _wall(run, self._read_to[number]["t"])
        return any(
            (later.directory, later.node) == (run.directory, run.node)
            and later.start is not None
            and _boot(later) > _boot(run)
            and _wall(later, later.start.t) > last
            for later in self.runs[number + 1 :]
        )

    # the machines

    def _absorb(self) -> set[Place]:
        absorbed: set[Place] = set()
        for each in sorted(
            (each for part in self._batch for each in part.summaries), key=lambda each: each.order
        ):
            self._keys.absorb(each.machine, each.key, each.summary)
            absorbed.add((each.machine, each.key))
            if each.machine == "ledger":
                self._ledgers.setdefault(_queue_of(each.key), set()).add(each.key)
        return absorbed

    def _names_to_watch(self) -> set[Place]:
        """Names with several incarnations: any row of a dead one is a finding, and speaks to no key."""
        return {
            (name, key)
            for name, key in self._touched
            if name == "names" and key[0] not in self._ended and len(self.store.load(name, key) or ()) > 1
        }

    def _decidable(self, findings: list[Finding]) -> list[Finding]:
        """Leave out findings that compare a run's end before the ledgers know it."""
        return [
            finding
            for finding in findings
            if finding.rule != "S1" or finding.t < FOREVER or finding.rows[0][0] in self._ended
        ]

    def _report(self, findings: Iterable[Finding], context: TraceContext) -> None:
        """Note what stands, to be printed."""
        for finding in findings:
            if is_final(finding, context) and not self._lacks_rows(finding, context):
                found = {"event": "violation", **finding_as_dict(finding, self.catalog), "t": finding.t}
                self.store.report(finding[:4], self._line(found), is_violation=True)

    def _lacks_rows(self, finding: Finding, context: TraceContext) -> bool:
        """True if rows are missing for good that a replay would wait for, though the rule may know that they
        do not matter.
        """
        return not context.can_prove(finding.rows) or any(
            context.known_until(who) < finding.t
            and (not self.runs[who[0]].whole or (who in self.coverage and self.coverage[who].gaps > 0))
            for who in finding.needs
        )

    def _save(self, context: TraceContext) -> None:
        for name, key in self._touched | self._absorbed:
            state = self.store.load(name, key)
            if state is None:
                continue
            if name == "ledger":
                self._note_held(key, state)
            run_ended = self._keys.machines[name].of_one_run and self.runs[int(key[0])].closed
            if (name, key) not in self._pending and (
                run_ended or self._keys.machines[name].prune(key, state, context)
            ):
                self.store.forget(name, key)
            elif (name, key) in self._absorbed:
                self.store.save(name, key, state)
        for who in self._changed:
            number, actor = who
            self.store.put(
                f"actor {number:06d} {actor:09d}", (who, self.coverage[who], self.actor_summaries[who])
            )
        self.store.put("places", self._read_to)
        self.store.put("ended", self._ended)
        self.store.put("pending", self._pending)

    def _note_held(self, key: Key, state: State) -> None:
        held = {
            who: life.states.count(READY) + life.states.count(UNACKED) for who, life in state.lives.items()
        }
        if self._held.get(key) != held:
            self._held[key] = held
            self.store.put(f"held {key}", (key, held))


def _queue_of(key: Key) -> Name:
    return str(key[0]), str(key[1])


def _wall(run: Run, t: int) -> int:
    """A t of this run as the time of day, ns."""
    return t - run.mono_ns + run.wall_ns


def _boot(run: Run) -> int:
    return RunStart.of(run.start).boot if run.start is not None else run.boot


def _pieces(batch: Iterable[BatchSummary]) -> Iterator[tuple[Who, Chunk]]:
    """The pieces of each actor in the order of its rows."""
    pieces = sorted((piece for part in batch for piece in part.chunks), key=lambda piece: piece.order)
    return (((piece.run, piece.actor), piece) for piece in pieces)
