"""A chain of causes in words: for JSON, the terminal and the page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from warrenmq.replay.explain.story import Chain, Link
from warrenmq.trace.catalog import Run
from warrenmq.trace.sentences import Words


class ChainWords:
    """Words for the chains of one trace."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self._runs = runs
        self._words: dict[int, Words] = {}

    def as_dicts(self, chain: Chain) -> list[dict[str, Any]]:
        """Each row with its columns by name; what is missing as {"missing": ...}."""
        return [self._as_dict(link) for link in chain]

    def _as_dict(self, link: Link) -> dict[str, Any]:
        run = self._runs[link.run]
        if link.row is None:
            return {"run": run.name, "missing": link.missing}
        columns = self._words_of(link.run).columns(link.row)
        return {
            "run": run.name, "actor": run.actor_name(link.row[8] >> 16), "seq": link.row[1], "t": link.row[0],
            "row": self._words_of(link.run).title(link.row),
            "columns": {name: value for name, value in columns.items() if name != "seq"},
        }  # fmt: skip

    def lines(self, chain: Chain) -> list[str]:
        """A line a row: when (ms since the first row of the chain), who, what."""
        begins: dict[int, int] = {}
        for link in chain:
            if link.row is not None:
                begins[link.run] = min(begins.get(link.run, link.row[0]), link.row[0])
        return [self._line(link, begins) for link in chain]

    def _line(self, link: Link, begins: dict[int, int]) -> str:
        if link.row is None:
            return f"{'':13}  missing: {link.missing}"
        run, row = self._runs[link.run], link.row
        columns = self._words_of(link.run).columns(row)
        said = ", ".join(
            f"{re.split('[;,(]', name)[0].strip()} {value}"
            for name, value in columns.items()
            if name != "seq" and value != ""
        )
        after = (row[0] - begins[link.run]) / 1e6
        who = f"{run.actor_name(row[8] >> 16)} {row[1]}"
        return f"{after:+10.3f} ms  {who}  {self._words_of(link.run).title(row)}  {said}".rstrip()

    def _words_of(self, run: int) -> Words:
        if run not in self._words:
            self._words[run] = Words(self._runs[run])
        return self._words[run]
