"""One call that replays a trace with either engine and keeps the picture for the report."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

from warrenmq.errors import ArgumentValueError
from warrenmq.replay.drive import engine as python_engine
from warrenmq.replay.drive.findings import Found
from warrenmq.replay.drive.incidents import told
from warrenmq.replay.drive.own_rules import OwnRule, SqlRule, ask_queries, split_own
from warrenmq.replay.drive.result import Result, RuleCounts, finding_as_dict
from warrenmq.replay.report.measures import measure_trace
from warrenmq.replay.report.picture import Picture
from warrenmq.replay.report.report_data import build
from warrenmq.replay.rules.rule import Rule
from warrenmq.replay.spark.addresses import is_of_spark
from warrenmq.replay.spark.session import require_pyspark, spark_session
from warrenmq.trace.reader import Trace, open_trace, trace_files

Engine = Literal["spark", "python"]
ENGINES = get_args(Engine)
SHORT_BYTES = 1 << 30
"""Up to here compiling the JVM's part well costs more than it gives: it moves bytes, the rest is numpy."""


class RowName(NamedTuple):
    """The name of a row of a trace: its run, its actor, and the actor's number of it."""

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
    """A replay: its result, and the picture for the report."""

    path: str
    engine: Engine
    seconds: float
    result: Result
    picture: Picture | None
    """The picture for the report; None unless it was asked for."""

    @property
    def verdict(self) -> str:
        """ok, violated or indeterminate."""
        return self.result.verdict

    @property
    def told(self) -> str:
        """Losses named in the verdict though no rule may be broken: messages lost to damage, damaged files, a
        broker that crashed until it was down.  Empty if there are none.
        """
        return told(self.result.figures["incidents"])

    @property
    def violations(self) -> list[Violation]:
        """The violations as `check` gives them, in the order of `result.violations`."""
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
        """Every invariant, in the order of the rules; those of the user behind ours."""
        return self.result.rules

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

    `master` is Spark's, and counts only when this process starts Spark.  `rules` are rules of your own,
    judged beside ours: machines by the engine, queries in this process (docs/rules.md).
    """
    if engine not in ENGINES:
        raise ArgumentValueError(f"engine is {engine!r}; give {' or '.join(map(repr, ENGINES))}.")
    name = os.fspath(path)
    began = time.monotonic()
    _, queries = split_own(rules)
    queried = _queried(name, queries)
    own = [rule if isinstance(rule, Rule) else rule.as_rule() for rule in rules]
    if engine == "spark":
        result, drawn = _in_spark(name, master, picture, own, queried)
    else:
        result, drawn = _in_this_process(name, picture, own, queried)
    return Replayed(name, engine, time.monotonic() - began, result, drawn)


def _in_this_process(
    path: str, picture: bool, own: Sequence[Rule], queried: Found | None
) -> tuple[Result, Picture | None]:
    with open_trace(path) as trace:
        result = _engine()(trace, own, queried)
        return result, build(measure_trace(trace), trace.catalog) if picture else None


def _engine() -> Callable[[Trace, Sequence[Rule], Found | None], Result]:
    """The engine: with numpy the same result comes sooner."""
    try:
        from warrenmq.replay.drive.array_engine import replay_arrays
    except ImportError:
        return python_engine.replay_trace
    return replay_arrays


def _in_spark(
    path: str, master: str | None, picture: bool, own: Sequence[Rule], queried: Found | None
) -> tuple[Result, Picture | None]:
    require_pyspark()
    from warrenmq.replay.spark import engine as spark_engine
    from warrenmq.replay.spark import measures as spark_measures
    from warrenmq.replay.spark import source as spark_source
    from warrenmq.replay.spark.failures import told_in_a_sentence
    from warrenmq.replay.spark.jobs import beside

    with told_in_a_sentence(), spark_session(master=master, short=_is_short(path)) as spark:
        trace = spark_source.index_trace(spark, path)
        if not picture:
            return spark_engine.replay_indexed(spark, trace, own, queried), None
        # At once: the rules are jobs one behind the other, whose last tasks leave cores idle.
        with beside(spark, spark_measures.measure, trace) as measures:
            result = spark_engine.replay_indexed(spark, trace, own, queried)
            return result, build(measures.result(), trace.catalog)


def _queried(path: str, queries: Sequence[SqlRule]) -> Found | None:
    """The findings of queries: SQLite is asked, in this process, with either engine."""
    if not queries:
        return None
    with open_trace(path) as trace:
        return ask_queries(trace, queries)


def _is_short(path: str) -> bool:
    if is_of_spark(path):
        return False
    return sum(os.path.getsize(name) for name in trace_files(path) if os.path.isfile(name)) < SHORT_BYTES
