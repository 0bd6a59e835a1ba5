"""Counts crashes, restarts, losses and damage in a trace, if they broke a rule or not; a line of them stands
before every verdict.

crashes                   processes that ended by an exception or a kill, as their supervisors say (CHILD_EXIT)
restarts, escalations     what the supervisors did about them (RESTART, ESCALATE)
killed_runs               runs without a RUN_END: the whole broker was killed, or it is still going
lost_messages             confirmed messages that were gone after a restart, or whose bodies were damaged (the ledger counts them)
damaged_messages          messages, confirmed or not, that waited or were held and whose bodies were damaged (DROP_LOST)
damaged_records           records of a store's files that a recovery set aside (STORE_RECOVERED)
damaged_trace_files       files of the trace with bytes that make no sense
fallen_runs               runs that ended because a process could not be started, or because the topmost supervisor gave up
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from warrenmq.replay.drive.machines import INCIDENT, FigureKey
from warrenmq.replay.drive.trace_context import TraceContext, Who
from warrenmq.trace.catalog import Catalog
from warrenmq.trace.events import Ev, Reason, StoreRecovered

_COUNTED = frozenset(map(int, (Ev.CHILD_EXIT, Ev.RESTART, Ev.ESCALATE)))
LOST, DAMAGED, FALLEN = "lost_messages", "damaged_messages", "fallen_runs"
_TOLD = (
    (DAMAGED, "message lost to damage", "messages lost to damage"),
    ("damaged_records", "record of the store damaged", "records of the store damaged"),
    (FALLEN, "run that crashed until it was down", "runs that crashed until they were down"),
)
"""Incidents that the verdict itself names, though no rule may be broken.  Damage of the trace is not the
broker's: it makes a verdict indeterminate.
"""
TOLD = tuple(what for what, _, _ in _TOLD)
"""Their names."""


def incidents(catalog: Catalog, context: TraceContext, figures: Mapping[FigureKey, int]) -> dict[str, int]:
    """The counts, by the names above."""
    marks = context.actor_summaries.values()
    ended = {who[0] for who, mark in context.actor_summaries.items() if mark.ended_run}
    recovered = (mark.recovered for mark in marks if mark.recovered is not None)
    counts: Counter[int] = Counter()
    for mark in marks:
        for word, n in mark.counts.items():
            if word >> 8 in _COUNTED:
                counts[word if word >> 8 == Ev.CHILD_EXIT else word >> 8] += n
    return {
        "crashes": sum(counts[Ev.CHILD_EXIT << 8 | reason] for reason in (Reason.CRASH, Reason.KILLED)),
        "restarts": counts[Ev.RESTART],
        "escalations": counts[Ev.ESCALATE],
        "killed_runs": len(catalog.runs) - len(ended),
        LOST: figures.get((INCIDENT, LOST), 0),
        DAMAGED: figures.get((INCIDENT, DAMAGED), 0),
        "damaged_records": sum(
            StoreRecovered.of(row).damaged for row in recovered if row.event == Ev.STORE_RECOVERED
        ),
        "damaged_trace_files": len({found.file for found in catalog.damage}),
        FALLEN: len({who[0] for who in context.actor_summaries if _fell(who, context)}),
    }


def _fell(who: Who, context: TraceContext) -> bool:
    """True if the actor was the topmost supervisor, and gave up, or crashed before it or its supervisor was
    up and was not started again.

    In a run that was killed another start may have been under way.  Below a supervisor that is up, a start
    that fails is refused to who asked for it: a sleeping queue cannot be woken on a full disk.
    """
    mark, entry = context.actor_summary(who), context.runs[who[0]].actors.get(who[1])
    if entry is None or not context.coverage[who].complete:
        return False
    if mark.count(Ev.ESCALATE):
        return not entry.parent
    was_up = mark.incarnation or context.actor_summary((who[0], entry.parent)).incarnation
    is_over = context.runs[who[0]].closed
    return is_over and not was_up and mark.end_reason == Reason.CRASH and context.is_last_of_name(who)


def told(counts: Mapping[str, int]) -> str:
    """Losses named beside the word of a verdict, for instance "2 messages lost to damage"; empty if there are none."""
    return ", ".join(_many(counts[what], one, more) for what, one, more in _TOLD if counts[what])


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
