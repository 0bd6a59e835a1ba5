"""A slice of a trace as a log for ShiViz (space-time diagrams): each row with its vector clock.

ShiViz wants clocks that rise by one from row to row of an actor, so they count the rows of the slice.  Causes
that run through rows outside the slice still count: a row knows what its actor knew, whether or not the rows
that brought it are written.

    PARSER                       the regular expression to give to ShiViz
    actor {"actor": 3, ...}      a line with the clock of each row, then a line with its sentence

Format: the ShiViz project's "log format": host, clock as JSON, event.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import TextIO

from warrenmq.replay.drive.levels import RECEIVES
from warrenmq.trace.catalog import Catalog
from warrenmq.trace.events import Ev, sends_of
from warrenmq.trace.schema import Row
from warrenmq.trace.sentences import Narrator

PARSER = r"(?<host>\S*) (?<clock>{.*})\n(?<event>.*)"

Clock = dict[str, int]


def write_shiviz(
    catalog: Catalog,
    rows: Iterable[tuple[int, Row]],
    is_shown: Callable[[int, Row], bool],
    to: TextIO,
    limit: int,
) -> tuple[int, bool]:
    """Write the rows that are shown; the others only carry causes on.  Returns how many, and if there were more."""
    slice_, narrator = _Slice(catalog), Narrator(catalog)
    to.write(PARSER + "\n\n")
    written, more = 0, False
    for number, row in rows:
        shown = is_shown(number, row)
        if shown and written == limit:
            more = True
            break
        host, clock = slice_.see(number, row, shown=shown)
        if shown:
            written += 1
            words = re.sub(r"\s", " ", narrator.sentence(number, row))  # a name may have lines
            to.write(f"{host} {json.dumps(clock, ensure_ascii=False)}\n{words}\n")
        else:
            narrator.notice(number, row)
    return written, more


class _Slice:
    """Vector clocks over the actors of a trace.

    _clocks  actor -> its clock
    _sent    (run, actor, seq of a SEND) -> the sender's clock; dropped when the message has been received
    """

    def __init__(self, catalog: Catalog) -> None:
        self._hosts: dict[tuple[int, int], str] = {}
        several = len(catalog.runs) > 1
        taken: set[str] = set()
        for number, run in enumerate(catalog.runs):
            for actor, entry in run.actors.items():
                name = re.sub(r"\s", "_", entry.name) or "?"
                name = f"{run.boot}/{name}" if several else name
                self._hosts[number, actor] = host = name if name not in taken else f"{name}#{actor}"
                taken.add(host)
        self._clocks: dict[str, Clock] = {}
        self._sent: dict[tuple[int, int, int], Clock] = {}

    def see(self, number: int, row: Row, *, shown: bool) -> tuple[str, Clock]:
        """Take in a row; returns its actor's name and clock."""
        host = self._hosts.get((number, row.actor), f"?{row.actor}")
        clock = self._clocks.setdefault(host, {})
        if row.event in RECEIVES:
            sender, sends = sends_of(row)
            for sent in sends:
                for name, count in self._sent.pop((number, sender, sent), {}).items():
                    clock[name] = max(clock.get(name, 0), count)
        if shown:
            clock[host] = clock.get(host, 0) + 1
        if row.event == Ev.SEND:
            self._sent[number, row.actor, row.seq] = dict(clock)
        return host, clock
