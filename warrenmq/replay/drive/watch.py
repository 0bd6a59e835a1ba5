"""`warrenmq trace watch`: violations of a live trace, printed when their rows are on disk.

    look, summarise, take (Live), commit, print; then wait for INTERVAL

This is the engine of one process.  In Spark (replay/spark/watch.py) the same steps are a streaming query: a
place is its offset, its tasks summarise and take.  Both print the same.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any, TextIO

from warrenmq.errors import CallerError
from warrenmq.replay.drive.batch_summary import BatchSummary, batches, summarise_batch
from warrenmq.replay.drive.incidents import TOLD, told
from warrenmq.replay.drive.live import Live, Standing
from warrenmq.replay.drive.live_store import SqliteStore
from warrenmq.trace.machine import has_ended
from warrenmq.trace.reader import require_live, why_unread
from warrenmq.trace.tail import Place, Tail, files_at

INTERVAL = 0.5
"""Seconds between two looks."""

SQLITE, STREAM = "watch.sqlite", "spark"
"""Names in a checkpoint directory: the file of the engine of one process, the folder of a query of Spark."""

_MOST_ROWS = 4
"""Evidence in a line of text."""


_IN_WORDS = {
    "violation": "violated {rule} {subject}: {text} (row {where})",
    "damage": "damaged {file}: {bytes} bytes from {offset} on are no whole frame",
    "missing": "missing rows {first_seq} to {last_seq} of {actor} in run {run}",
    "unread": "unread {file}: {text}",
}


def line_of(found: Mapping[str, Any], *, as_json: bool) -> str:
    """The line about something that was found, for programs or for people."""
    if as_json:
        return json.dumps(found)
    where = ", ".join("{run} {actor} {seq}".format_map(row) for row in found.get("rows", ())[:_MOST_ROWS])
    return _IN_WORDS[found["event"]].format_map({**found, "where": where})


def unread_lines(paths: Iterable[str], *, as_json: bool) -> list[str]:
    """Lines for the end about files of which nothing can be read: any run may have had rows there.  Before,
    one may just be begun.
    """
    return [
        line_of({"event": "unread", "file": name, "text": why}, as_json=as_json)
        for path in paths
        for name in files_at(path)
        if (why := why_unread(name))
    ]


def last_line(standings: Collection[Standing], *, as_json: bool) -> str:
    """One line for the end: what is open is in flight, and never lost."""
    totals = [sum(counts) for counts in zip(*(each[:4] for each in standings), strict=True)]
    events, violations, in_flight, waiting = totals or (0, 0, 0, 0)
    counts = _incidents(standings)
    if as_json:
        return json.dumps({
            "event": "end", "events": events, "violations": violations, "in_flight": in_flight, "waiting": waiting,
            "incidents": {what: counts[what] for what in TOLD},
        })  # fmt: skip
    lost = told(counts)
    return (
        f"{events} events, {violations} violations{lost and f', with {lost}'}; {in_flight} messages in flight, "
        f"{waiting} questions wait for rows"
    )


def are_losses(standings: Collection[Standing]) -> bool:
    """True if the last line names losses or damage."""
    return bool(told(_incidents(standings)))


def _incidents(standings: Collection[Standing]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for each in standings:
        counts.update(each.incidents)
    return counts


def are_over(standings: Collection[Standing]) -> bool:
    """Every run was closed, or was killed: the next boot of its directory has begun, or its process has ended."""
    return bool(standings) and all(has_ended(*process) for each in standings for process in each.running)


class Watch:
    """Takes batches and prints what they show; its state is kept in `checkpoint`."""

    def __init__(self, checkpoint: str, *, as_json: bool = False, to: TextIO | None = None) -> None:
        if os.path.isdir(os.path.join(checkpoint, STREAM)):
            raise CallerError(
                f"{checkpoint} is the checkpoint of the other engine; say another --checkpoint."
            )
        self.store = SqliteStore(os.path.join(checkpoint, SQLITE))
        self._live = Live(self.store)
        self._as_json = as_json
        self._to = to or sys.stdout
        self._print()  # lines that were noted before a kill

    def take(self, summaries: Iterable[BatchSummary], progress: Place) -> None:
        """One batch, in one transaction with how far the trace is read."""
        self.store.begin()
        self._live.take(summaries, partial(line_of, as_json=self._as_json))
        self.store.put("progress", progress)
        self.store.commit()
        self._print()

    @property
    def progress(self) -> Place:
        """The place up to which the trace was read."""
        place: Place = self.store.get("progress", {})
        return place

    @property
    def violations(self) -> int:
        """Found since the checkpoint began."""
        return self.store.count_violations()

    @property
    def closed(self) -> bool:
        """Every run of the trace was closed, or was killed and is over."""
        return are_over(self._standings())

    @property
    def losses(self) -> bool:
        """True if the last line names losses or damage."""
        return are_losses(self._standings())

    def summary(self) -> str:
        """The last line."""
        return last_line(self._standings(), as_json=self._as_json)

    def close(self) -> None:
        self.store.close()

    def _standings(self) -> list[Standing]:
        return [self._live.standing()] if self._live.runs else []

    def _print(self) -> None:
        for number, said in self.store.unprinted():
            print(said, file=self._to, flush=True)
            self.store.printed(number)


def watch(
    paths: list[str], taken_by: Watch, *, wait: Callable[[float], None], until_closed: bool = False
) -> None:
    """Look again and again, until `wait` raises or, if that is wanted, every run of the trace is over."""
    require_live(paths)
    tail = Tail(*(os.path.abspath(path) for path in paths))
    place = taken_by.progress
    while True:
        now = tail.look(place)
        if now != place:
            taken_by.take([summarise_batch(batch) for batch in batches(tail, place, now)], now)
            place = now
        elif until_closed and taken_by.closed:
            return
        wait(INTERVAL)
