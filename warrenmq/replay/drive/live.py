"""The rules on a trace that is still being written: the machines, driven batch by batch.

    take(what a batch of rows told)    1  runs, actors and actor_summaries grow; `known_until` follows what was read
                                       2  every key that was spoken of absorbs what was said to it, and is asked again (`finish`)
                                       3  findings that stand (`Rule.is_final`) are noted to be printed; a key with others is asked
                                          again with every batch
                                       4  what is finished is forgotten (`Machine.prune`)

The context of a live trace is what was read so far, so `finish`, which a replay calls once, is called on states that go on
to grow: no machine's `finish` changes its state.  Keys that no row speaks of are asked when something else happens that they
look at: the names of actors with several incarnations always, a queue's ids when it has recovered, everything when a run ends.

A run has ended when it was closed, or, if it was killed, when the next boot of its node has begun and it was silent since: one
data directory has one broker at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

from warrenmq.replay.drive.batch_summary import BatchSummary, PieceSummary
from warrenmq.replay.drive.driver import Keys
from warrenmq.replay.drive.end_state import disagreements
from warrenmq.replay.drive.findings import Place
from warrenmq.replay.drive.live_store import LiveStore
from warrenmq.replay.drive.machines import STATE, FigureKey, Finding, Key
from warrenmq.replay.drive.trace_context import ActorSummary, Name, TraceContext, Who
from warrenmq.replay.rules.passes.message_life import READY, UNACKED
from warrenmq.replay.rules.registry import all_machines, is_final
from warrenmq.replay.rules.unbroken_rows import broken_chains
from warrenmq.trace.catalog import FOREVER, NEVER, Catalog, Chunk, Coverage, Run
from warrenmq.trace.index import Damage
from warrenmq.trace.machine import has_ended


class Words(Protocol):
    """What is printed."""

    def violation(self, catalog: Catalog, finding: Finding) -> str: ...
    def damage(self, found: Damage) -> str: ...
    def missing(self, catalog: Catalog, who: Who, gap: tuple[int, int]) -> str: ...


_AT_THE_END = ("ledger", "references", "files")
"""Machines that are asked for the state at the end of a run, in the order of their stages."""


class LiveContext(TraceContext):
    """The context so far.  An actor without rows has written none up to the time that everything was read to."""

    def __init__(self, live: Live) -> None:
        super().__init__(live.runs, live.coverage, live.actor_summaries)
        self._live = live

    def known_until(self, who: Who) -> int:
        return super().known_until(who) if who in self.coverage else self._live.settled(who[0])


class Live:
    """What is known of a live trace, kept in a store; see the module."""

    def __init__(self, store: LiveStore) -> None:
        self.store = store
        self.runs: list[Run] = list(store.all_about("run "))
        self._places: dict[int, dict[str, Any]] = store.get("places", {})
        self._ended: set[int] = store.get("ended", set())
        self._pending: set[Place] = store.get("pending", set())
        """Keys that are asked with every batch."""
        self.coverage: dict[Who, Coverage] = {}
        self.actor_summaries: dict[Who, ActorSummary] = {}
        for who, coverage, marks in store.all_about("actor "):
            self.coverage[who], self.actor_summaries[who] = coverage, marks
        self._keys = Keys(all_machines(self.runs), store)
        self._ledgers: dict[Name, set[Key]] = {}
        for key in store.keys("ledger"):
            self._ledgers.setdefault(_queue_of(key), set()).add(key)

    @property
    def catalog(self) -> Catalog:
        """For the names in findings."""
        return Catalog(self.runs, [], self.coverage, [], 0, [])

    def take(self, batch: Iterable[BatchSummary], words: Words) -> None:
        """Take in what was told; the caller has begun a transaction."""
        told = sorted(batch, key=lambda each: (each.number, each.chunks[0].seq_first if each.chunks else 0))
        changed: set[Who] = set()
        findings: list[Finding] = []
        touched = set(self._pending)
        for each in told:
            self._take_run(each)
        for who, chunk in _chunks(told):
            findings += self._cover(who, chunk, words)
            changed.add(who)
        for found in (found for each in told for found in each.damage):
            self.store.report(("damage", *found), words.damage(found))
        touched |= self._take_marks(told)
        self._know()
        absorbed = self._absorb(said for each in told for said in each.summaries)
        touched |= absorbed
        context = LiveContext(self)
        self._pending = self._names_to_watch(touched)
        for number in range(len(self.runs)):
            if number not in self._ended and self._is_over(number):
                findings += self._end(number, context)
        for name, key in sorted(
            touched, key=lambda each: (self._keys.machines[each[0]].stage, each[0], str(each[1]))
        ):
            findings += self._ask(name, key, context)
        for finding in findings:
            if is_final(finding, context):
                self.store.report(finding[:4], words.violation(self.catalog, finding), is_violation=True)
        self._save(changed, absorbed, touched, context)

    def waiting(self) -> int:
        """Keys with something that cannot be decided yet."""
        return len(self._pending)

    def in_flight(self) -> int:
        """Messages that queues hold, ready or unacked."""
        context = LiveContext(self)
        held = 0
        for name, keys in self._ledgers.items():
            last = context.incarnations(name)[-1:]
            for state in (self.store.load("ledger", key) for key in keys):
                for life in (state.lives[who] for who in last if state is not None and who in state.lives):
                    held += life.states.count(READY) + life.states.count(UNACKED)
        return held

    # what is there

    def _take_run(self, told: BatchSummary) -> None:
        while len(self.runs) <= told.number:
            self.runs.append(told.run)
        run = self.runs[told.number]
        run.actors.update(told.run.actors)
        run.start = told.run.start or run.start
        run.closed = bool(told.place["closed"])
        self._places[told.number] = told.place
        self.store.put(f"run {told.number:06d}", run)

    def _cover(self, who: Who, chunk: Chunk, words: Words) -> Iterator[Finding]:
        coverage = self.coverage.setdefault(who, Coverage(*who))
        last = chunk._replace(
            seq_first=coverage.last_seq, rows=1, t_first=coverage.t_last, t_last=coverage.t_last
        )
        if chunk.seq_first > last.seq_end:
            gap = last.seq_end, chunk.seq_first - 1
            self.store.report(("missing", *who, *gap), words.missing(self.catalog, who, gap))
        if not coverage.add(chunk):
            yield from broken_chains(Catalog(self.runs, [], {}, [], 0, [(last, chunk)]))

    def _take_marks(self, told: Sequence[BatchSummary]) -> set[Place]:
        """ActorSummary; returns the keys of queues that have recovered."""
        woken: set[Place] = set()
        marks = sorted(
            (((each.number, actor), seq, mark) for each in told for actor, seq, mark in each.marks),
            key=lambda each: each[:2],
        )
        for who, _, mark in marks:
            self.actor_summaries.setdefault(who, ActorSummary()).merge(mark)
            if mark.recovered is not None:
                run = self.runs[who[0]]
                name = run.scope, run.actor_name(who[1])
                woken |= {("ledger", key) for key in self._ledgers.get(name, ())}
        return woken

    def _know(self) -> None:
        """Up to when each actor's rows are here."""
        for (number, _), coverage in self.coverage.items():
            if coverage.gaps:
                continue
            coverage.end_known = coverage.stopped or self._is_over(number)
            coverage.known_until = (
                FOREVER if coverage.end_known else max(coverage.t_last, self.settled(number))
            )

    def settled(self, number: int) -> int:
        """Every row of a run up to this t was read, if the disk took it."""
        place = self._places[number]
        return NEVER if place["lossy"] else int(place["settled"])

    def _is_over(self, number: int) -> bool:
        """Nothing will come of this run any more."""
        return not self._places[number]["lossy"] and (self.runs[number].closed or self._was_followed(number))

    def are_over(self) -> bool:
        """Every run was closed, or was killed: the next boot of its directory has begun, or its process has ended."""
        return bool(self.runs) and all(
            run.closed or self._was_followed(number) or has_ended(run.machine, run.pid)
            for number, run in enumerate(self.runs)
        )

    def _was_followed(self, number: int) -> bool:
        """The next boot of its directory has begun after the last row of a run."""
        run = self.runs[number]
        last = _wall(run, self._places[number]["t"])
        return any(
            (later.directory, later.node) == (run.directory, run.node)
            and later.start is not None
            and _boot(later) > _boot(run)
            and _wall(later, later.start[0]) > last
            for later in self.runs[number + 1 :]
        )

    # the machines

    def _absorb(self, summaries: Iterable[PieceSummary]) -> set[Place]:
        touched: set[Place] = set()
        for said in sorted(summaries, key=lambda each: each.order):
            self._keys.absorb(said.machine, said.key, said.summary)
            touched.add((said.machine, said.key))
            if said.machine == "ledger":
                self._ledgers.setdefault(_queue_of(said.key), set()).add(said.key)
        return touched

    def _names_to_watch(self, touched: Iterable[Place]) -> set[Place]:
        """Names with several incarnations: any row of a dead one is a finding, and speaks to no key."""
        return {
            (name, key)
            for name, key in touched
            if name == "names" and key[0] not in self._ended and len(self.store.load(name, key) or ()) > 1
        }

    def _ask(self, name: str, key: Key, context: TraceContext) -> list[Finding]:
        findings = self._decidable(self._keys.finish(name, key, context).findings)
        if not all(is_final(finding, context) for finding in findings):
            self._pending.add((name, key))
        return findings

    def _decidable(self, findings: list[Finding]) -> list[Finding]:
        """Without what compares a run's end before the ledgers have told of it."""
        return [
            finding
            for finding in findings
            if finding.rule != "S1" or finding.t < FOREVER or finding.rows[0][0] in self._ended
        ]

    def _end(self, number: int, context: TraceContext) -> list[Finding]:
        """What only the end of a run decides: S1 and E1; then its keys go."""
        self._ended.add(number)
        findings: list[Finding] = []
        figures: Counter[FigureKey] = Counter()
        for name in _AT_THE_END:
            for key in self.store.keys(name):
                if self._keys.machines[name].of_one_run and key[0] != number:
                    continue
                outcome = self._keys.finish(name, key, context)
                findings += self._decidable(outcome.findings)
                figures.update(
                    {each: n for each, n in outcome.figures.items() if each[0] == STATE and each[1] == number}
                )
                for to, fact_key, fact in outcome.facts:
                    if fact[0][0] == number:
                        self._keys.absorb(to, fact_key, fact)
                        self.store.save(to, fact_key, self.store.load(to, fact_key))
        findings += [found for found in disagreements(context, figures) if found.rows[-1][0] == number]
        return findings

    def _save(
        self,
        changed: Iterable[Who],
        absorbed: set[Place],
        touched: Iterable[Place],
        context: TraceContext,
    ) -> None:
        for name, key in touched:
            state = self.store.load(name, key)
            if state is None:
                continue
            run_ended = self._keys.machines[name].of_one_run and self.runs[int(key[0])].closed
            if (name, key) not in self._pending and (
                run_ended or self._keys.machines[name].prune(key, state, context)
            ):
                self.store.forget(name, key)
            elif (name, key) in absorbed:
                self.store.save(name, key, state)
        for number, actor in changed:
            who = number, actor
            self.store.put(
                f"actor {number:06d} {actor:09d}", (who, self.coverage[who], self.actor_summaries[who])
            )
        self.store.put("places", self._places)
        self.store.put("ended", self._ended)
        self.store.put("pending", self._pending)


def _queue_of(key: Key) -> Name:
    return str(key[0]), str(key[1])


def _wall(run: Run, t: int) -> int:
    """A t of this run as the time of day, ns."""
    return t - run.mono_ns + run.wall_ns


def _boot(run: Run) -> int:
    return run.start[5] if run.start is not None else run.boot


def _chunks(told: Iterable[BatchSummary]) -> Iterator[tuple[Who, Chunk]]:
    """The pieces of each actor in the order of its rows."""
    chunks = sorted((chunk for each in told for chunk in each.chunks), key=lambda chunk: chunk.order)
    return (((chunk.run, chunk.actor), chunk) for chunk in chunks)
