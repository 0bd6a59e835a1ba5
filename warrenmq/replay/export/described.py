"""A row in words: its event and flag, and its columns by the names that the schema gives them."""

from __future__ import annotations

from typing import Any

from warrenmq.replay.explain.names import flag_names
from warrenmq.trace.catalog import Run
from warrenmq.trace.events import CONSUMER, REGISTRY, Ev
from warrenmq.trace.index import Row


class Describer:
    """Words for the rows of one run."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._flags = flag_names(run.kinds)

    def title(self, row: Row) -> str:
        """Its event, with its flag: `SEND Publish`, `FILE_SYNC TIMER`."""
        event, flag = row[8] >> 8 & 0xFF, row[8] & 0xFF
        name = self._run.event_name(event)
        return f"{name} {self._flags.get((event, flag), flag)}" if flag else name

    def columns(self, row: Row) -> dict[str, Any]:
        """The columns that this event uses, by their meaning; an event of a later version by their names.

        An actor is given by its name, a consumer by its number.
        """
        _, seq, msg, peer, pseq, a, b, c, who = row
        meaning = REGISTRY.get(Ev(who >> 8 & 0xFF)) if who >> 8 & 0xFF in Ev._value2member_map_ else None
        values = {"msg": msg, "peer": peer, "pseq": pseq, "a": a, "b": b, "c": c}
        if meaning is None:
            return {"seq": seq, **{name: value for name, value in values.items() if value}}
        named: dict[str, Any] = {
            getattr(meaning, name): value for name, value in values.items() if getattr(meaning, name)
        }
        if meaning.peer and meaning.peer != CONSUMER:
            named[meaning.peer] = self._run.actor_name(peer) if peer else ""
        return {"seq": seq, **named}
