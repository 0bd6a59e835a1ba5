"""Chains in words: for JSON, the terminal and the page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from warrenmq.replay.explain.story import Chain
from warrenmq.trace.catalog import Catalog
from warrenmq.trace.sentences import Narrator, Words


class ChainWords:
    """Words for the chains of one trace."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def as_dicts(self, chain: Chain) -> list[dict[str, Any]]:
        """Each row with its columns by name and its sentence; a missing one as {"run": ..., "missing": ...}."""
        found: list[dict[str, Any]] = []
        narrator = Narrator(self._catalog)
        for number, row, missing in chain:
            run = self._catalog.runs[number]
            if row is None:
                found.append({"run": run.name, "missing": missing})
                continue
            words = Words(run)
            found.append({
                "run": run.name, "actor": run.actor_name(row.actor), "seq": row.seq, "t": row.t,
                "row": words.title(row), "columns": words.columns(row), "sentence": narrator.sentence(number, row),
            })  # fmt: skip
        return found

    def lines(self, chain: Chain) -> Iterator[str]:
        """A line a row: ms since the first row of the chain in its run, its sentence, its number in its actor."""
        begins: dict[int, int] = {}
        for number, row, _ in chain:
            if row is not None:
                begins[number] = min(begins.get(number, row.t), row.t)
        # A narrator of its own: a confirm must not name a sync of another chain.
        narrator = Narrator(self._catalog)
        for number, row, missing in chain:
            if row is None:
                yield f"{'':13}  missing: {missing}"
            else:
                after = (row.t - begins[number]) / 1e6
                yield f"{after:+10.3f} ms  {narrator.sentence(number, row)} (row {row.seq})"
