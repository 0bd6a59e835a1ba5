"""A replay, step by step.  The steps are stated here once; a setting supplies where the pieces of a trace are read.

    drive(setting)   1  setting.summarise()                summaries of each piece for its keys, anywhere, in any order
                     2  setting.conclude(stage, context)   each key in one place: absorb its summaries, then finish
                     3  setting.check_fully(...)           the same for keys that no precheck could prove fine, from all their rows
                        2 and 3 again for the next stage, which also absorbs the facts of this one
                     4  verdict.judge                      rules on the sums of all keys, and rules that missing rows leave open
                     5  explain                            one more pass for the rows that explain the first findings

    setting          pieces                              keys
    engine.Plain     one by one, as rows                 a dict
    array_engine     half a million rows, as columns     a dict
    spark/engine     the same, in tasks                  shuffled: a task for some thousand of them
    live.Live        the rows written since last time    a file; they are finished again with every batch (steps 1 and 2)

A setting holds in one place no more than grows with the actors and runs of the trace: findings are counted in
full, and the first KEPT of each rule are kept with their evidence.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from warrenmq.replay.drive.findings import Found, Place
from warrenmq.replay.drive.machines import Fact, Key, Machine, Outcome, State, Summary
from warrenmq.replay.drive.result import Result, make_result
from warrenmq.replay.drive.trace_context import ActorSummary, TraceContext, Who
from warrenmq.replay.drive.verdict import Verdict, judge
from warrenmq.replay.explain.causes import explain
from warrenmq.replay.explain.evidence import Want
from warrenmq.replay.rules.rule import Rule
from warrenmq.trace.catalog import Catalog
from warrenmq.trace.index import Row


def drive(setting: Setting, queried: Found | None = None, *, explained: bool = True) -> Result:
    """Replay a trace in a setting; without step 5 if the chains of rows are not wanted.

    `queried` is what the queries of the user found.
    """
    catalog, rules = setting.catalog, setting.rules
    context = TraceContext.of(catalog)
    verdict, found = findings(setting, context, queried)
    result = make_result(verdict, catalog, context, found, rules)
    if explained:
        result.chains = explain(result.violations, catalog.runs, rules, setting.gather)
    return result


def findings(setting: Setting, context: TraceContext, queried: Found | None = None) -> tuple[Verdict, Found]:
    """Steps 1 to 4: the verdict, and all that it rests on."""
    found = decide(setting, context)
    if queried is not None:
        found.add(queried)
    return judge(found, setting.catalog, context, setting.rules), found


def decide(setting: Pieces, context: TraceContext) -> Found:
    """Steps 1 to 3; in a live trace, of the pieces that are new."""
    context.actor_summaries = setting.summarise()
    found = Found()
    for stage in stages_of(setting.machines):
        of_stage = setting.conclude(stage, context)
        found.add(of_stage)
        if of_stage.unproven:
            found.add(setting.check_fully(stage, of_stage.unproven, context))
    return found


def stages_of(machines: Iterable[Machine]) -> list[int]:
    """The stages of these machines, in their order."""
    return sorted({machine.stage for machine in machines})


class Pieces(Protocol):
    """A way to read the pieces of a trace, and to bring summaries to their keys."""

    @property
    def machines(self) -> Sequence[Machine]:
        """The machines of all rules."""

    def summarise(self) -> dict[Who, ActorSummary]:
        """Summarise all pieces; keep the summaries, return those of the actors."""

    def conclude(self, stage: int, context: TraceContext) -> Found:
        """Finish the keys of this stage's machines; keep their facts."""

    def check_fully(self, stage: int, unproven: set[Place], context: TraceContext) -> Found:
        """Finish these keys with machines that see all their rows."""


class Setting(Pieces, Protocol):
    """The driver's setting for a complete trace."""

    @property
    def catalog(self) -> Catalog:
        """The runs and actors of the trace, and what is missing of it."""

    @property
    def rules(self) -> Sequence[Rule]:
        """Ours, and those of the user that machines decide."""

    def gather(self, wants: Sequence[Want]) -> Iterable[tuple[int, int, Row]]:
        """The rows that are wanted (explain/evidence.py)."""


class States(Protocol):
    """A store of states."""

    def load(self, machine: str, key: Key) -> State | None: ...
    def keep(self, machine: str, key: Key, state: State) -> State: ...
    def forget(self, machine: str, key: Key) -> None: ...


class InMemory:
    """States in dicts, one for each machine."""

    def __init__(self) -> None:
        self._of: defaultdict[str, dict[Key, State]] = defaultdict(dict)

    def load(self, machine: str, key: Key) -> State | None:
        return self._of[machine].get(key)

    def keep(self, machine: str, key: Key, state: State) -> State:
        self._of[machine][key] = state
        return state

    def forget(self, machine: str, key: Key) -> None:
        del self._of[machine][key]

    def places(self, machines: Iterable[Machine], stage: int) -> list[Place]:
        """The keys of this stage's machines."""
        return [
            (machine.name, key)
            for machine in machines
            if machine.stage == stage
            for key in self._of[machine.name]
        ]


class Keys:
    """The keys that have summaries, each with its machine's state."""

    def __init__(self, machines: Iterable[Machine], states: States) -> None:
        self.machines = {machine.name: machine for machine in machines}
        self.states = states

    def absorb(self, name: str, key: Key, summary: Summary) -> None:
        """Take the next summary of a key into its state."""
        machine = self.machines[name]
        state = self.states.load(name, key)
        if state is None:
            state = self.states.keep(name, key, machine.start(key))
        machine.absorb(state, summary)

    def tell(self, fact: Fact) -> None:
        """Take a fact, which is one more summary, into the state of its key."""
        self.absorb(*fact)

    def finish(self, name: str, key: Key, context: TraceContext) -> Outcome:
        """The outcome of a key with the summaries that it has absorbed; empty without any."""
        state = self.states.load(name, key)
        return Outcome() if state is None else self.machines[name].finish(key, state, context)

    def forget(self, name: str, key: Key) -> None:
        """Drop the state of a key."""
        if self.states.load(name, key) is not None:
            self.states.forget(name, key)


def conclude(
    keys: Keys, places: Iterable[Place], context: TraceContext, tell: Callable[[Fact], None]
) -> Found:
    """Finish these keys, and hand on their facts."""
    found = Found()
    for place in places:
        outcome = keys.finish(*place, context)
        found.take(place, outcome, context)
        for fact in outcome.facts:
            tell(fact)
    return found
