"""Counts crashes, restarts, losses and damage in a trace, if they broke a rule or not; a line of them stands before every verdict.

crashes                   processes that ended by an exception or a kill, as their supervisors say (CHILD_EXIT)
restarts, escalations     what the supervisors did about them (RESTART, ESCALATE)
killed_runs               runs without a RUN_END: the whole broker was killed, or it is still going
lost_messages             confirmed messages that were gone after a restart, or whose bodies were damaged (the ledger counts them)
damaged_messages          messages, confirmed or not, that were to be delivered and whose bodies were damaged (DROP_LOST)
damaged_records           records of a store's files that a recovery set aside (STORE_RECOVERED)
damaged_trace_files       files of the trace with bytes that make no sense
"""

from __future__ import annotations

from collections.abc import Mapping

from warrenmq.replay.drive.machines import INCIDENT, FigureKey
from warrenmq.replay.drive.trace_context import TraceContext
from warrenmq.trace.catalog import Catalog
from warrenmq.trace.events import Ev, Reason, StoreRecovered

LOST, DAMAGED = "lost_messages", "damaged_messages"


def incidents(catalog: Catalog, context: TraceContext, figures: Mapping[FigureKey, int]) -> dict[str, int]:
    """The counts, by the names above."""
    marks = context.actor_summaries.values()
    ended = {who[0] for who, mark in context.actor_summaries.items() if mark.ended_run}
    recovered = (mark.recovered for mark in marks if mark.recovered is not None)
    return {
        "crashes": sum(
            mark.count(Ev.CHILD_EXIT, reason) for mark in marks for reason in (Reason.CRASH, Reason.KILLED)
        ),
        "restarts": sum(mark.count(Ev.RESTART) for mark in marks),
        "escalations": sum(mark.count(Ev.ESCALATE) for mark in marks),
        "killed_runs": len(catalog.runs) - len(ended),
        LOST: figures.get((INCIDENT, LOST), 0),
        DAMAGED: figures.get((INCIDENT, DAMAGED), 0),
        "damaged_records": sum(
            StoreRecovered.of(row).damaged for row in recovered if row.event == Ev.STORE_RECOVERED
        ),
        "damaged_trace_files": len({found.file for found in catalog.damage}),
    }


def incidents_line(counts: Mapping[str, int]) -> str:
    """The counts as one sentence for people, the same for the terminal and the page."""
    return (
        f"{_many(counts['crashes'], 'crash', 'crashes')} and {_many(counts['killed_runs'], 'killed run')}, "
        f"{_many(counts['restarts'], 'restart')}, {_many(counts['escalations'], 'escalation')}; "
        f"{_many(counts['lost_messages'], 'confirmed message')} lost; damage: "
        f"{_many(counts['damaged_messages'], 'message')}, {_many(counts['damaged_records'], 'record')} of the store, "
        f"{_many(counts['damaged_trace_files'], 'file')} of the trace"
    )


def _many(n: int, one: str, more: str = "") -> str:
    return f"{n:,} {one if n == 1 else more or one + 's'}"
