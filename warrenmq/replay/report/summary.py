"""The summary of a replay for a terminal: a short table, and the verdict as the last line."""

from __future__ import annotations

import sys
from itertools import groupby

from warrenmq.replay.drive.incidents import incidents_line
from warrenmq.replay.drive.machines import Finding
from warrenmq.replay.drive.result import Result
from warrenmq.replay.explain.links import ChainWords
from warrenmq.replay.replayed import Replayed
from warrenmq.replay.report.picture import Picture
from warrenmq.replay.report.plots import short_time, times_in_words
from warrenmq.replay.report.queue_delays import KINDS, queue_delays
from warrenmq.terminal import table

SHOWN = 3
"""Findings of a rule that are printed; the rest is counted."""
MISSING = 10
"""Actors of whom rows are missing that are printed."""
QUEUES = 8
"""Queues whose delays are printed: the busiest."""
PERCENTILES = ("p50", "p99")
"""The percentiles of delays that are printed."""


def print_summary(replayed: Replayed) -> None:
    """Print the table of invariants, the first findings, the verdict."""
    sys.stdout.writelines(f"{line}\n" for line in summary_lines(replayed))


def summary_lines(replayed: Replayed) -> list[str]:
    """The lines that `print_summary` prints."""
    result = replayed.result
    lines = table(
        ["rule", "invariant", "cases", "violated", "undecided"],
        [
            [rule.id, rule.name, rule.checked, _or_dash(rule.violated), _or_dash(rule.indeterminate)]
            for rule in replayed.rules
        ],
    ).splitlines()
    lines += _findings("violated", result.violations, result)
    lines += _findings("undecided", [finding for finding in result.indeterminate if finding.rows], None)
    lines += _without_rows([finding for finding in result.indeterminate if not finding.rows])
    return [
        *lines,
        *_missing(result),
        *_queues(result),
        *_brokers(result),
        *_waiting(replayed.picture),
        f"happened  {incidents_line(result.figures['incidents'])}",
        verdict_line(replayed),
    ]


def _brokers(result: Result) -> list[str]:
    """The verdict of each, where the trace is of several."""
    brokers = result.figures["brokers"]
    if len(brokers) == 1:
        return []
    return [f"broker    {each['broker']}: {each['verdict']} ({len(each['runs']):,} runs)" for each in brokers]


def _without_rows(findings: list[Finding]) -> list[str]:
    """Cases that missing rows leave undecided: a line for each actor or file, with the rules."""
    rules: dict[tuple[str, str], list[str]] = {}
    for finding in findings:
        rules.setdefault((finding.subject, finding.text), []).append(finding.rule)
    lines = [f"undecided  {' '.join(those)}  {subject}: {text}" for (subject, text), those in rules.items()]
    more = (
        [f"undecided  and {len(lines) - MISSING:,} more that miss rows (--json lists all)"]
        if len(lines) > MISSING
        else []
    )
    return lines[:MISSING] + more


def _missing(result: Result) -> list[str]:
    """The first missing parts of the trace, of each kind."""
    lines = []
    for what, found in groupby(sorted(result.missing, key=lambda row: row.what), key=lambda row: row.what):
        rows = list(found)
        for row in rows[:SHOWN]:
            where = ", ".join(name for name in (row.file, row.run, row.actor) if name)
            lines.append(f"missing   {what}: {where}: {row.text}")
        if len(rows) > SHOWN:
            lines.append(f"missing   {what}: and {len(rows) - SHOWN:,} more (--json lists all)")
    return lines


def _queues(result: Result) -> list[str]:
    """The delays of the messages of the busiest queues."""
    found = [queue for queue in queue_delays(result.figures) if queue.delays]
    if not found:
        return []
    names = (each for kind in KINDS for each in (kind.removesuffix("_ms"), "p99"))
    rows: list[list[str | int]] = [
        [
            queue.name,
            queue.counts.get("published", 0),
            *(queue.time(kind, each) for kind in KINDS for each in PERCENTILES),
        ]
        for queue in found[:QUEUES]
    ]
    about = "delays    median and 99th percentile: to confirm, to first delivery, last delivery to ack"
    lines = [about, *table(["queue", "published", *names], rows).splitlines()]
    more = [f"queues    and {len(found) - QUEUES:,} more (--json lists all)"] if len(found) > QUEUES else []
    return lines + more


def _waiting(picture: Picture | None) -> list[str]:
    """The senders that waited longest, if the replay measured."""
    held = [] if picture is None else picture.held
    lines = [
        f"waiting   {each.sender}: {short_time(each.seconds)} for {each.towards}, {times_in_words(each.times)}"
        for each in held[:SHOWN]
    ]
    return (
        [*lines, f"waiting   and {len(held) - SHOWN:,} more (the report shows who)"]
        if len(held) > SHOWN
        else lines
    )


def _findings(title: str, findings: list[Finding], explained: Result | None) -> list[str]:
    """The first of each rule: a rule that fails a thousand times must not hide another that fails once.  And why the
    very first is one.
    """
    lines = []
    place = 0
    for rule, found in groupby(
        sorted(findings, key=lambda finding: finding.rule), key=lambda finding: finding.rule
    ):
        of_rule = list(found)
        said = [f"{title}  {rule}  {finding.subject}: {finding.text}" for finding in of_rule[:SHOWN]]
        if explained is not None and place in explained.chains:
            words = ChainWords(explained.catalog)
            said[1:1] = [f"          {line}" for line in words.lines(explained.chains[place])]
        lines += said
        place += len(of_rule)
        if len(of_rule) > SHOWN:
            lines.append(f"{title}  {rule}  and {len(of_rule) - SHOWN:,} more (--json lists all)")
    return lines


def verdict_in_words(replayed: Replayed) -> str:
    """The verdict in words, for instance "15 invariants hold (14 not exercised)"."""
    result = replayed.result
    exercised = sum(rule.checked > 0 for rule in replayed.rules)
    others = len(replayed.rules) - exercised
    return {
        "ok": f"{exercised} invariants hold" + (f" ({others} not exercised)" if others else ""),
        "violated": f"{len(result.violations):,} violations of {len({each.rule for each in result.violations})} invariants",
        "indeterminate": f"no violation, but rows are missing: {len(result.indeterminate):,} cases are undecided",
    }[replayed.verdict]


def verdict_line(replayed: Replayed) -> str:
    """The verdict as one line, for instance "verdict ok: 15 invariants hold, in 9,101 events of 1,024
    messages (python, 1.4 s)", or "verdict ok, with 2 messages lost to damage: ...".
    """
    figures, told = replayed.result.figures, replayed.told
    word = f"{replayed.verdict}, with {told}" if told else replayed.verdict
    return (
        f"verdict {word}: {verdict_in_words(replayed)}, in {figures['events']:,} events of {figures['messages']:,} messages "
        f"({replayed.engine}, {replayed.seconds:.1f} s)"
    )


def _or_dash(n: int) -> str:
    return f"{n:,}" if n else "-"
