"""The rows of one event as a DataFrame with the event's own columns (trace/events/), typed.

| in the registry                      | in the DataFrame                                                       |
| ------------------------------------ | ---------------------------------------------------------------------- |
| an enum                              | string: its member's name                                              |
| flags                                | array of strings: the names of those that are set                      |
| yes or no                            | boolean                                                                |
| an actor                             | `<column>_id`: its number; and `<column>`: its name, if it is the peer |
| a message kind                       | string: the class of the message                                       |
| wall clock                           | timestamp                                                              |
| anything else                        | long                                                                   |

A value that means "not said" is null, and so is a column that a row of its kind does not use.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum, IntFlag
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from warrenmq.replay.spark.frames import narrowed
from warrenmq.replay.spark.named import PUBLIC
from warrenmq.trace import schema
from warrenmq.trace.schema import ACTOR, MESSAGE_KIND, WALL_CLOCK, YES_NO, Event, event_named

_EVERY_ROW = ("run", "actor", "actor_id", "seq", "t")


def events(rows: DataFrame, name: str) -> DataFrame:
    """See `warrenmq.replay.events`."""
    event = event_named(name)
    its = [typed for column in event.columns for typed in _typed(event, column)]
    return (
        narrowed(rows, _needed(event), [event.number])
        .where(PUBLIC.is_of(event.number))
        .select(*_EVERY_ROW, _wall_clock().alias("time"), *its)
    )


def _needed(event: type[Event[Any]]) -> set[str]:
    """The columns of rows that a view is made of."""
    names = {"peer" for column in event.columns if column.place == "peer" and column.type is ACTOR}
    names |= {"flag" for column in event.columns if column.type is MESSAGE_KIND}
    numbers = PUBLIC.places((event.number, column.name) for column in event.columns)
    return {*_EVERY_ROW, "epoch", *names, *numbers}


def _wall_clock() -> Column:
    return sf.timestamp_micros(sf.call_function("div", sf.col("t") + sf.col("epoch"), sf.lit(1_000)))


def _typed(event: type[Event[Any]], column: schema.Column) -> Iterator[Column]:
    number = PUBLIC.of(column.name, event.number)
    when = column.when
    if when is not None:
        number = sf.when(PUBLIC.of(when.column, event.number).isin(list(map(int, when.values))), number)
    if isinstance(column.type, type):
        yield _of_enum(column.type, number).alias(column.name)
        return
    value = number if column.type.absent is None else sf.nullif(number, sf.lit(column.type.absent))
    if column.type is ACTOR:
        if column.place == "peer":  # a row has no names of other actors
            yield sf.when(value.isNotNull(), sf.col("peer")).alias(column.name)
        yield value.alias(f"{column.name}_id")
    elif column.type is MESSAGE_KIND:
        yield sf.when(value.isNotNull(), sf.col("flag")).alias(column.name)
    elif column.type is YES_NO:
        yield (value != 0).alias(column.name)
    elif column.type is WALL_CLOCK:
        yield sf.timestamp_micros(value).alias(column.name)
    else:
        yield value.alias(column.name)


def _of_enum(type_: type[IntEnum | IntFlag], number: Column) -> Column:
    """The name of a value, its number if it is of a later version; the names of its bits."""
    if issubclass(type_, IntFlag):
        names = [sf.when(number.bitwiseAND(int(bit)) != 0, bit.name) for bit in type_]
        return sf.array_compact(sf.array(*names))
    value = sf.when(number != 0, number.cast("string"))
    for member in type_:
        value = sf.when(number == int(member), member.name).otherwise(value)
    return value
