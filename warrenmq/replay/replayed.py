"""One call that replays a trace with either engine and keeps what the report draws."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from warrenmq.replay.drive import engine as python_engine
from warrenmq.replay.drive.own_rules import OwnRule, SqlRule, add_own, judge_own, require_own
from warrenmq.replay.drive.result import Result, finding_as_dict
from warrenmq.replay.report.measures import measure_trace
from warrenmq.replay.report.picture import Picture
from warrenmq.replay.report.report_data import build
from warrenmq.replay.rules.registry import RULES
from warrenmq.replay.spark.session import require_pyspark, spark_session
from warrenmq.trace.reader import Trace, open_trace, trace_files

Engine = Literal["spark", "python"]
SHORT_BYTES = 1 << 30
"""Up to here compiling the JVM's part well costs more than it gives: it moves bytes, the rest is numpy."""


class RuleCounts(NamedTuple):
    """One line of the table: an invariant and how it fared."""

    id: str
    name: str
    text: str
    checked: int
    """Rows, or cases, that could have broken it (`Rule.exercised`); 0 = the rule was not exercised, and says nothing."""
    violated: int
    indeterminate: int


class RowName(NamedTuple):
    """Which row of a trace: the actor's number of it."""

    run: str
    actor: str
    seq: int


class Violation(NamedTuple):
    """An invariant that does not hold, where, and the rows that show it: the columns of `warrenmq.replay.check`."""

    rule: str
    subject: str
    text: str
    rows: list[RowName]


@dataclass(frozen=True)
class Replayed:
    """What a replay found, and what it saw on the way."""

    path: str
    engine: Engine
    seconds: float
    result: Result
    picture: Picture | None
    """For the report; None unless it was asked for."""
    own: tuple[OwnRule, ...] = ()
    """Rules of the user, beside ours."""

    @property
    def verdict(self) -> str:
        """ok, violated or indeterminate."""
        return self.result.verdict

    @property
    def violations(self) -> list[Violation]:
        """What breaks an invariant, as `check` gives it, in the order of `result.violations`."""
        return [
            Violation(
                finding["rule"],
                finding["subject"],
                finding["text"],
                [RowName(**row) for row in finding["rows"]],
            )
            for finding in (finding_as_dict(each, self.result.catalog) for each in self.result.violations)
        ]

    @property
    def rules(self) -> list[RuleCounts]:
        """Every invariant, in the order of the rules."""
        violated, undecided = self.result.counts["violations"], self.result.counts["indeterminate"]
        return [
            RuleCounts(
                rule.id, rule.name, rule.text,
                self.result.figures["exercised"][rule.id],
                violated.get(rule.id, 0), undecided.get(rule.id, 0),
            )
            for rule in RULES.values()
        ] + [
            RuleCounts(
                rule.id, rule.id if isinstance(rule, SqlRule) else rule.name, rule.text,
                self.result.figures["exercised"][rule.id], violated.get(rule.id, 0), undecided.get(rule.id, 0),
            )
            for rule in self.own
        ]  # fmt: skip

    def as_dict(self) -> dict[str, Any]:
        """The object that `warrenmq replay --json` prints."""
        rules = [rule._asdict() for rule in self.rules]
        return {
            **self.result.as_dict(),
            "rules": rules,
            "engine": self.engine,
            "seconds": round(self.seconds, 3),
        }


def replay(
    path: str | os.PathLike[str],
    *,
    engine: Engine = "spark",
    master: str | None = None,
    picture: bool = True,
    rules: Sequence[OwnRule] = (),
) -> Replayed:
    """Replay a trace; `picture=False` saves the time that only the report needs.

    `master` is Spark's, and counts only when this process starts Spark.  `rules` are rules of your own, judged beside ours, in this
    process (docs/rules.md).
    """
    require_own(rules)
    name = os.fspath(path)
    run = _in_spark if engine == "spark" else _in_this_process
    began = time.monotonic()
    result, drawn = run(name, master, picture)
    if rules:
        with open_trace(path) as trace:
            add_own(result, judge_own(trace, rules))
    return Replayed(name, engine, time.monotonic() - began, result, drawn, tuple(rules))


def _in_this_process(path: str, _master: str | None, picture: bool) -> tuple[Result, Picture | None]:
    with open_trace(path) as trace:
        result = _engine()(trace)
        return result, build(measure_trace(trace), trace.catalog) if picture else None


def _engine() -> Callable[[Trace], Result]:
    """With numpy the same result comes sooner."""
    try:
        from warrenmq.replay.drive.array_engine import replay_arrays
    except ImportError:
        return python_engine.replay_trace
    return replay_arrays


def _in_spark(path: str, master: str | None, picture: bool) -> tuple[Result, Picture | None]:
    require_pyspark()
    from warrenmq.replay.spark import engine as spark_engine
    from warrenmq.replay.spark import measures as spark_measures
    from warrenmq.replay.spark import source as spark_source
    from warrenmq.replay.spark.failures import told_in_a_sentence

    with told_in_a_sentence(), spark_session(master=master, short=_is_short(path)) as spark:
        trace = spark_source.index_trace(spark, path)
        result = spark_engine.replay_indexed(spark, trace)
        if not picture:
            return result, None
        rows = spark_source.load_rows(spark, trace)
        return result, build(spark_measures.measure_rows(rows, trace.catalog), trace.catalog)


def _is_short(path: str) -> bool:
    return "://" not in path and sum(os.path.getsize(name) for name in trace_files(path)) < SHORT_BYTES
