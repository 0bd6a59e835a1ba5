"""One simulated run: a script on a machine whose decisions all follow from a seed, judged by the client's
model and the replay of its trace.

    outcome = run(seed=17, script=generate(Random(17), HONEST_FAULTS), profile="modern")
    outcome.verdict                                   # "ok" or "failed"

The same seed, script and profile give the same outcome, with the same digest, on any machine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import starmap
from operator import attrgetter
from typing import Any

from warrenmq.log import silence
from warrenmq.replay.drive.engine import judge_trace
from warrenmq.replay.drive.incidents import FALLEN, told
from warrenmq.runtime import Deadlock
from warrenmq.settings import Settings
from warrenmq.simulate.application import Application
from warrenmq.simulate.coverage import coverage_of
from warrenmq.simulate.messages import PromiseBroken
from warrenmq.simulate.script import Script
from warrenmq.testing import SimulatedMachine
from warrenmq.trace.block import ROW
from warrenmq.trace.reader import Trace

_SMALL: dict[str, Any] = {
    "msg_store_file_size_limit": 4096,
    "queue_index_embed_msgs_below": 100,
    "queue_index_max_journal_entries": 12,
    "queue_index_segment_entry_count": 8,
    "vhost_restart_intensity": (1000, 1),
    "classic_queue_index_v2_segment_entry_count": 8,
    "msg_store_io_batch_size": 2,
    "msg_store_credit_disc_bound": (12, 6),
    "credit_flow_default_credit": (16, 8),
    "queue_ram_bytes": 3_000,
    "queue_sleep_after": 20,
}
PROFILES = ("classic", "modern")
_SETTINGS = tuple(
    {profile: Settings(profile=profile, commit_log=logged, **_SMALL) for profile in PROFILES}
    for logged in (False, True)
)
"""Limits so small that a dozen messages fill what overflows: files roll over and are collected, journals
flushed, queues paged.
"""
_OF_LATE_SENDS = ("T2",)
"""Rules that miss the row of a send: one that began before the close of a broker may reach the queue of the
next, since in a simulation both have one runtime, in which a queue is found by its name; the row is in the
trace of the first.
"""
_TOLD_AFTER_DAMAGE = ("C2",)
"""Rules that say what damage cost."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one run."""

    seed: int
    profile: str
    script: str
    """The script's text (script.py)."""
    verdict: str
    """"ok" or "failed"."""
    problem: str
    """The fault in one word or two: the promise that was broken, the id of a rule, or the type of an
    exception.  Empty if ok.
    """
    text: str
    """The same in a sentence."""
    lost: int
    """Messages that damage cost, and that the broker told of."""
    digest: str
    """SHA-256 of its trace, as hex."""
    events: int
    """Rows of its trace."""
    coverage: frozenset[int]
    """The coverage of the run (coverage.py)."""


_ENCODED, _UNTRACED, _OF = 0, 8, 17
"""Of so many runs one goes through the files of a trace, as every trace of a real broker does, and one has
none, as most brokers; the others keep the rows as they are.  An odd number: the low bits of a seed are its profile, and
what its disk and its commit log are like.
"""


def settings_of(seed: int) -> Mapping[str, Settings]:
    """The settings of a run, by profile: two seeds without the commit log, then two with it."""
    return _SETTINGS[seed // 2 % 2]


def is_untraced(seed: int) -> bool:
    """True if a run has no trace; with one, single publishes are sent one by one, and things happen in another order."""
    return seed % _OF == _UNTRACED


def run(seed: int, script: Script, profile: str) -> Outcome:
    """Run a script, in virtual time."""
    if is_untraced(seed):
        return run_untraced(seed, script, profile)
    encoded = seed % _OF == _ENCODED
    machine = SimulatedMachine(seed, settings_of(seed)[profile], traced=encoded, in_rows=not encoded)
    return _run(seed, script, machine, profile)


def run_untraced(seed: int, script: Script, profile: str) -> Outcome:
    """Run a script on a broker without a trace."""
    return _run(seed, script, SimulatedMachine(seed, settings_of(seed)[profile]), profile)


def run_traced(seed: int, script: Script, profile: str) -> tuple[Outcome, Mapping[str, bytes]]:
    """Run a script as `run` does; returns also the files of its trace by name."""
    machine = SimulatedMachine(seed, settings_of(seed)[profile], traced=True)
    outcome = _run(seed, script, machine, profile)
    assert machine.sink is not None
    return outcome, machine.sink.files()


def _run(seed: int, script: Script, machine: SimulatedMachine, profile: str) -> Outcome:
    problem, text = "", ""
    with silence(), machine:  # the broker's logs of intended faults are not for the terminal
        application = Application(machine, settings_of(seed))
        try:
            application.do(script)
        except PromiseBroken as broken:
            problem, text = broken.promise, str(broken)
        except (Exception, Deadlock) as error:  # noqa: BLE001 - any exception that reaches the application is what is looked for
            problem, text = type(error).__name__, f"{type(error).__name__}: {error}"
        with suppress(Exception):
            machine.crash(power_cut=False)  # after a failure the broker still runs
        trace = machine.trace() if machine.is_traced else None
    if trace is None:
        digest, events, covered = hashlib.sha256().hexdigest(), 0, frozenset[int]()
    else:
        if not problem:
            problem, text = _judged_by_rules(trace, application)
        rows = _packed_rows(trace)
        digest, events, covered = _digest(trace, rows), trace.catalog.rows, coverage_of(rows)
    return Outcome(
        seed, profile, "\n".join(map(str, script)), "failed" if problem else "ok", problem, text, application.ends.lost,
        digest, events, covered,
    )  # fmt: skip


def _packed_rows(trace: Trace) -> list[bytes]:
    """The rows of each actor as in a slab, in whichever files they are."""
    found: dict[tuple[int, int], bytes] = {}
    for chunk in sorted(trace.catalog.chunks, key=attrgetter("order")):
        rows = chunk.raw or b"".join(starmap(ROW.pack, trace.rows(chunk)))
        found[chunk.run, chunk.actor] = found.get((chunk.run, chunk.actor), b"") + rows
    return list(found.values())


def _digest(trace: Trace, rows: Iterable[bytes]) -> str:
    """SHA-256 of the names and rows of a trace."""
    digest = hashlib.sha256()
    for run in trace.catalog.runs:
        digest.update(repr((run.name, run.actors, run.kinds, run.texts)).encode())
    for each in rows:
        digest.update(each)
    return digest.hexdigest()


def _judged_by_rules(trace: Trace, application: Application) -> tuple[str, str]:
    """The first finding of the replay as (id of the rule, sentence).  After damage that was told, C2 is what
    should be found.
    """
    found, happened = judge_trace(trace)
    findings = [*found.violations, *found.indeterminate]
    if application.session.was_closed:
        findings = [each for each in findings if each.rule not in _OF_LATE_SENDS]
    if application.session.is_damaged:
        findings = [each for each in findings if each.rule not in _TOLD_AFTER_DAMAGE]
    if findings:
        return findings[0].rule, str(findings[0])
    session = application.session
    # what a power cut tore was not confirmed, or C2 says so
    if happened[FALLEN] and not (session.is_damaged or session.may_fall):
        return "damage", told(happened)
    return "", ""
