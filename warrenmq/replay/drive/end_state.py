"""The state at the end of a run, made of its rows: queues with their messages, stores with their files.

    queue    ready, unacked    of the last incarnation, counted by the ledger
             next_seq_id       above every id that was published or recovered; of priority 0 in a queue with priorities
    store    messages          with at least one reference; references: their sum
             files             file_size, valid_total_size, locked; of the KEPT youngest (findings.py), file_count has all
             current_file      the last one

The machines that know a part count it in figures, whose key begins with "state".  Of a killed run this is what its last
rows make it; a queue that was deleted, or a store that was started again, has no end of its own.

After their recovery queues and stores have said how many messages they found (QUEUE_RECOVERED,
STORE_RECOVERED), and after a clean stop a queue (QUEUE_CLOSED) and a persistent store (STORE_CLOSED) have
said the same themselves: E1.  So is that a clean stop and the clean recovery after it say the same:

    queue    next_seq_id       equal
             messages          those that came back and those that were dropped are no more: what is transient, and in memory
                               only, goes without a word
    store    messages, files   equal
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from warrenmq.replay.drive.findings import Found, LastFiles
from warrenmq.replay.drive.machines import STATE, FigureKey, Figures, Finding
from warrenmq.replay.drive.trace_context import TraceContext, Who
from warrenmq.trace.catalog import FOREVER
from warrenmq.trace.events import CLEAN, Ev, QueueClosed, QueueRecovered, Reason, StoreClosed, StoreRecovered

Counts = dict[Who, Figures]


def counts_of(figures: Mapping[FigureKey, int]) -> Counts:
    """("state", run, actor, what ...) -> by actor, what ... -> n."""
    found: Counts = {}
    for key, n in figures.items():
        if key[0] == STATE:
            found.setdefault((int(key[1]), int(key[2])), Figures())[key[3:]] += n
    return found


def end_states(context: TraceContext, found: Found) -> dict[str, Any]:
    """Each run's name -> its queues and stores at its end."""
    counts = counts_of(found.figures)
    runs: dict[str, Any] = {run.name: {"queues": {}, "stores": {}} for run in context.runs}
    for who, mark in sorted(context.actor_summaries.items()):
        if not context.is_last_of_name(who) or was_deleted(context, who):
            continue
        state = runs[context.runs[who[0]].name]
        if is_queue(context, who):
            state["queues"][context.name(who)] = queue_state(context, who, counts, found.largest)
        elif mark.recovered is not None:
            state["stores"][context.name(who)] = store_state(who, counts, found.files)
    return runs


def is_queue(context: TraceContext, who: Who) -> bool:
    """True if this actor is a queue process that got through its recovery."""
    mark = context.actor_summary(who)
    if mark.recovered is not None:
        return mark.recovered.event == Ev.QUEUE_RECOVERED
    return Ev.PUBLISH in mark.events


def was_deleted(context: TraceContext, who: Who) -> bool:
    """A queue that ends by itself was deleted, or has expired."""
    mark = context.actor_summary(who)
    return is_queue(context, who) and (mark.end_reason == Reason.NORMAL or bool(mark.deleted_t))


def queue_state(
    context: TraceContext, who: Who, counts: Counts, largest: Mapping[FigureKey, int]
) -> dict[str, int]:
    """One queue's end."""
    its, recovered = counts.get(who, Figures()), context.actor_summary(who).recovered
    return {
        "ready": its["ready",],
        "unacked": its["unacked",],
        "next_seq_id": max(
            largest.get((STATE, *who, "next_seq_id"), 0),
            QueueRecovered.of(recovered).next_seq_id if recovered is not None else 0,
        ),
    }


def store_state(who: Who, counts: Counts, files: LastFiles) -> dict[str, Any]:
    """One store's end."""
    its, last = counts.get(who, Figures()), files.of(who)
    return {
        "messages": its["messages",],
        "references": its["references",],
        "current_file": last[-1].file if last else 0,
        "file_count": its["files",],
        "files": [
            {name: getattr(file, name) for name in ("file", "file_size", "valid_total_size", "locked")}
            for file in last
        ],
    }


def disagreements(context: TraceContext, found: Found) -> Iterator[Finding]:
    """E1: what queues and stores said of themselves, against what their rows add up to, and what they had said before."""
    yield from _untrue(context, found)
    for name in sorted(
        {context.scoped(who) for who, mark in context.actor_summaries.items() if mark.closed is not None}
    ):
        for before, after in pairwise(context.incarnations(name)):
            yield from _changed_while_down(context, before, after)


def _changed_while_down(context: TraceContext, before: Who, after: Who) -> Iterator[Finding]:
    """Compare a clean stop with the clean recovery after it."""
    stop, start = context.actor_summary(before).closed, context.actor_summary(after).recovered
    if stop is None or start is None or start.flag != CLEAN:
        return
    if is_queue(context, after):
        queue, left = QueueRecovered.of(start), QueueClosed.of(stop)
        broken = {
            f"messages: {queue.messages} and {queue.dropped} dropped": (
                queue.messages + queue.dropped > left.messages,
                left.messages,
            ),
            f"next sequence id: {queue.next_seq_id}": (
                queue.next_seq_id != left.next_seq_id,
                left.next_seq_id,
            ),
        }
    else:
        store, ended = StoreRecovered.of(start), StoreClosed.of(stop)
        broken = {
            f"messages: {store.messages}": (store.messages != ended.messages, ended.messages),
            f"files: {store.files}": (store.files != ended.files, ended.files),
        }
    name = context.name(after)
    for said, (is_wrong, before_it) in broken.items():
        if is_wrong:
            evidence = ((*before, stop.seq), (*after, start.seq))
            text = f"{said}, it said when it was recovered; {before_it} when it had stopped"
            yield Finding("E1", name, text, evidence, FOREVER, context.namesakes(name, after[0]))


def _untrue(context: TraceContext, found: Found) -> Iterator[Finding]:
    counts = counts_of(found.figures)
    for who, mark in sorted(context.actor_summaries.items()):
        if mark.recovered is not None:
            event = QueueRecovered if is_queue(context, who) else StoreRecovered
            said_then, recovered = event.of(mark.recovered).messages, counts.get(who, Figures())["recovered",]
            if said_then != recovered:
                text = f"messages: {said_then}, it said when it was recovered; its rows make {recovered}"
                evidence = ((*who, mark.recovered.seq),)
                yield Finding("E1", context.name(who), text, evidence, FOREVER, (who,))
        if mark.closed is None:
            continue
        if is_queue(context, who):
            queue = queue_state(context, who, counts, found.largest)
            closed = QueueClosed.of(mark.closed)
            said = {"messages": closed.messages, "next sequence id": closed.next_seq_id}
            made = {"messages": queue["ready"] + queue["unacked"], "next sequence id": queue["next_seq_id"]}
            needs = (who, *context.started_by(who))
        else:
            its = counts.get(who, Figures())
            needs = (who, *context.collectors_of(who))
            ended = StoreClosed.of(mark.closed)
            said = {"messages": ended.messages, "references": ended.references, "files": ended.files}
            made = {what: its[(what,)] for what in said}
        for what, value in said.items():
            if made[what] != value:
                text = f"{what}: {value}, it said when it stopped; its rows make {made[what]}"
                yield Finding("E1", context.name(who), text, ((*who, mark.closed.seq),), mark.closed.t, needs)
