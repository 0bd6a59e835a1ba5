"""What is there when a run ends, put together from its rows: queues with their messages, stores with their files.

    queue    ready, unacked    of the last incarnation, counted by the ledger
             next_seq_id       above every id that was published or recovered; of priority 0 in a queue with priorities
    store    messages          with at least one reference; references: their sum
             files             file_size, valid_total_size, locked
             current_file      the last one

The machines that know a part tell it as figures, whose key begins with "state".  Of a killed run this is what its last
rows make it; a queue that was deleted, or a store that was started again, has no end of its own.

After their recovery queues and stores have said how many messages they found (QUEUE_RECOVERED, STORE_RECOVERED), and
after a clean stop a queue (QUEUE_CLOSED) and a persistent store (STORE_CLOSED) have said the same themselves: E1.  So is that a clean stop and the clean
recovery after it say the same:

    queue    next_seq_id       equal
             messages          those that came back and those that were dropped are no more: what is transient, and in memory
                               only, goes without a word
    store    messages, files   equal
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from warrenmq.replay.drive.machines import STATE, FigureKey, Finding
from warrenmq.replay.drive.trace_context import TraceContext, Who
from warrenmq.trace.catalog import FOREVER
from warrenmq.trace.events import CLEAN, Ev, Reason

Counts = dict[Who, Counter[FigureKey]]


def counts_of(figures: Mapping[FigureKey, int]) -> Counts:
    """("state", run, actor, what ...) -> by actor, what ... -> n."""
    found: Counts = {}
    for key, n in figures.items():
        if key[0] == STATE:
            found.setdefault((int(key[1]), int(key[2])), Counter())[key[3:]] += n
    return found


def end_states(context: TraceContext, figures: Mapping[FigureKey, int]) -> dict[str, Any]:
    """Each run's name -> its queues and stores at its end."""
    counts = counts_of(figures)
    runs: dict[str, Any] = {run.name: {"queues": {}, "stores": {}} for run in context.runs}
    for who, mark in sorted(context.actor_summaries.items()):
        if not context.is_last_of_name(who) or was_deleted(context, who):
            continue
        told = runs[context.runs[who[0]].name]
        if is_queue(context, who):
            told["queues"][context.name(who)] = queue_state(context, who, counts)
        elif mark.recovered is not None:
            told["stores"][context.name(who)] = store_state(who, counts)
    return runs


def is_queue(context: TraceContext, who: Who) -> bool:
    """True if this actor is a queue process that got through its recovery."""
    mark = context.actor_summary(who)
    if mark.recovered is not None:
        return mark.recovered[8] >> 8 & 0xFF == Ev.QUEUE_RECOVERED
    return Ev.PUBLISH in mark.events


def was_deleted(context: TraceContext, who: Who) -> bool:
    """A queue that ends by itself was deleted, or has expired."""
    mark = context.actor_summary(who)
    by_itself = mark.stopped is not None and mark.stopped[8] & 0xFF == Reason.NORMAL
    return is_queue(context, who) and (by_itself or bool(mark.deleted_t))


def queue_state(context: TraceContext, who: Who, counts: Counts) -> dict[str, int]:
    """One queue's end."""
    its, recovered = counts.get(who, Counter()), context.actor_summary(who).recovered
    tops = [n for key, n in its.items() if key[0] == "next"]
    return {
        "ready": its["ready",],
        "unacked": its["unacked",],
        "next_seq_id": max([*tops, recovered[6] if recovered is not None else 0]),
    }


def store_state(who: Who, counts: Counts) -> dict[str, Any]:
    """One store's end."""
    its = counts.get(who, Counter())
    numbers = sorted(int(key[1]) for key in its if key[0] == "file" and key[2] == "there")
    files = [
        {
            "file": number,
            "file_size": its["file", number, "file_size"],
            "valid_total_size": its["file", number, "valid_total_size"],
            "locked": bool(its["file", number, "locked"]),
        }
        for number in numbers
    ]
    return {
        "messages": its["messages",],
        "references": its["references",],
        "current_file": numbers[-1] if numbers else 0,
        "files": files,
    }


def disagreements(context: TraceContext, figures: Mapping[FigureKey, int]) -> Iterator[Finding]:
    """E1: what queues and stores said of themselves, against what their rows add up to, and what they had said before."""
    yield from _untrue(context, counts_of(figures))
    for name in sorted(
        {context.scoped(who) for who, mark in context.actor_summaries.items() if mark.closed is not None}
    ):
        for before, after in pairwise(context.incarnations(name)):
            yield from _changed_while_down(context, before, after)


def _changed_while_down(context: TraceContext, before: Who, after: Who) -> Iterator[Finding]:
    """Between a clean stop and the clean recovery after it."""
    stop, start = context.actor_summary(before).closed, context.actor_summary(after).recovered
    if stop is None or start is None or start[8] & 0xFF != CLEAN:
        return
    if is_queue(context, after):
        messages, next_seq_id, dropped = start[5:8]
        broken = {
            f"messages: {messages} and {dropped} dropped": (messages + dropped > stop[5], stop[5]),
            f"next sequence id: {next_seq_id}": (next_seq_id != stop[6], stop[6]),
        }
    else:
        broken = {
            f"messages: {start[5]}": (start[5] != stop[5], stop[5]),
            f"files: {start[6]}": (start[6] != stop[7], stop[7]),
        }
    name = context.name(after)
    for said, (is_wrong, before_it) in broken.items():
        if is_wrong:
            evidence = ((*before, stop[1]), (*after, start[1]))
            text = f"{said}, it said when it was recovered; {before_it} when it had stopped"
            yield Finding("E1", name, text, evidence, FOREVER, context.namesakes(name, after[0]))


def _untrue(context: TraceContext, counts: Counts) -> Iterator[Finding]:
    for who, mark in sorted(context.actor_summaries.items()):
        if mark.recovered is not None:
            told, recovered = mark.recovered[5], counts.get(who, Counter())["recovered",]
            if told != recovered:
                text = f"messages: {told}, it said when it was recovered; its rows make {recovered}"
                seq = mark.recovered[1]
                yield Finding("E1", context.name(who), text, ((*who, seq),), FOREVER, (who,))
        if mark.closed is None:
            continue
        t, seq, *_, a, b, c, _ = mark.closed
        if is_queue(context, who):
            queue = queue_state(context, who, counts)
            said = {"messages": a, "next sequence id": b}
            found = {"messages": queue["ready"] + queue["unacked"], "next sequence id": queue["next_seq_id"]}
        else:
            store = store_state(who, counts)
            said = {"messages": a, "references": b, "files": c}
            found = {
                "messages": store["messages"],
                "references": store["references"],
                "files": len(store["files"]),
            }
        for what, value in said.items():
            if found[what] != value:
                text = f"{what}: {value}, it said when it stopped; its rows make {found[what]}"
                needs = (who, *context.started_by(who))
                yield Finding("E1", context.name(who), text, ((*who, seq),), t, needs)
