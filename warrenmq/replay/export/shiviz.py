"""A slice of a trace as a log for ShiViz (space-time diagrams): each row with its vector clock.

ShiViz wants clocks that rise by one from row to row of an actor, so they count the rows of the slice.  Causes that
run through rows outside the slice still count: a row knows what its actor had heard of, told or not.

    PARSER                       the regular expression to give to ShiViz
    actor {"actor": 3, ...}      one line of clock and one of words for each row

Format: the ShiViz project's "log format": host, clock as JSON, event.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import TextIO

from warrenmq.trace.catalog import Catalog
from warrenmq.trace.events import Ev
from warrenmq.trace.index import Row
from warrenmq.trace.sentences import Words

PARSER = r"(?<host>\S*) (?<clock>{.*})\n(?<event>.*)"
_RECEIVES = frozenset({Ev.RECV, Ev.PUBLISH, Ev.ACK})

Clock = dict[str, int]


def write_shiviz(
    catalog: Catalog,
    rows: Iterable[tuple[int, Row]],
    told: Callable[[int, Row], bool],
    to: TextIO,
    limit: int,
) -> tuple[int, bool]:
    """Write those rows that are `told`; the others only carry causes on.  Returns how many, and if there were more."""
    slice_ = _Slice(catalog)
    to.write(PARSER + "\n\n")
    written, more = 0, False
    for number, row in rows:
        tell = told(number, row)
        if tell and written == limit:
            more = True
            break
        host, clock = slice_.see(number, row, told=tell)
        if tell:
            written += 1
            words = " ".join(f"{name}={value}" for name, value in slice_.columns(number, row).items())
            to.write(f"{host} {json.dumps(clock, ensure_ascii=False)}\n{slice_.title(number, row)} {words}\n")
    return written, more


class _Slice:
    """Vector clocks over the actors of a trace.

    clocks   actor -> what it knows
    sent     (run, actor, seq of a SEND) -> what the sender knew; dropped when it has been received
    """

    def __init__(self, catalog: Catalog) -> None:
        self._words = [Words(run) for run in catalog.runs]
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

    def title(self, number: int, row: Row) -> str:
        return self._words[number].title(row)

    def columns(self, number: int, row: Row) -> dict[str, object]:
        return self._words[number].columns(row)

    def see(self, number: int, row: Row, *, told: bool) -> tuple[str, Clock]:
        """Take in a row; returns its actor and what that knows now."""
        _, seq, _, peer, pseq, _, _, c, who = row
        actor, event = who >> 16, who >> 8 & 0xFF
        host = self._hosts.get((number, actor), f"?{actor}")
        clock = self._clocks.setdefault(host, {})
        if event in _RECEIVES and pseq:
            for sent in range(pseq, pseq + (max(c, 1) if event == Ev.PUBLISH else 1)):
                for name, count in self._sent.pop((number, peer, sent), {}).items():
                    clock[name] = max(clock.get(name, 0), count)
        if told:
            clock[host] = clock.get(host, 0) + 1
        if event == Ev.SEND:
            self._sent[number, actor, seq] = dict(clock)
        return host, clock
