"""Columns of events by their names (trace/events/), as Spark columns over the stored ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from pyspark.sql import Column
from pyspark.sql import functions as sf

from warrenmq.trace.schema import EVENTS


class Named:
    """Finds columns in a DataFrame of rows, in which stored columns have their own names, or those that
    `places` gives them.
    """

    def __init__(self, event: str, **places: str) -> None:
        self._event = event
        self._places = places

    def of(self, name: str, *events: int) -> Column:
        """A column of these events; null in rows of others."""
        return self.of_any((event, name) for event in events)

    def of_any(self, named: Iterable[tuple[int, str]]) -> Column:
        """The column that each of these events has under its name there; null in rows of other events."""
        same = defaultdict(list)
        for event, name in named:
            column = EVENTS[event].column(name)
            same[column.expression(self._places.get(column.place, column.place))].append(int(event))
        value = sf.lit(None).cast("long")
        for expression, events in same.items():
            value = sf.when(self.is_of(*events), sf.expr(expression)).otherwise(value)
        return value

    def places(self, named: Iterable[tuple[int, str]]) -> set[str]:
        """The columns of the DataFrame that `of_any` needs for these."""
        its = {EVENTS[event].column(name).place for event, name in named}
        return {self._event, *(self._places.get(place, place) for place in its)}

    def is_of(self, *events: int) -> Column:
        """Rows of these events."""
        return sf.col(self._event).isin(sorted(map(int, events)))


PUBLIC = Named("ev_id", flag="flag_id", peer="peer_id")
"""The columns' names in rows as `read` gives them."""
