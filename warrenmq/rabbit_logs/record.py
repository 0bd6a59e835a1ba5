"""One record of a log of the tracing plugin (rabbit_tracing_consumer's record log_record).

The plugin writes a record when a channel has routed a message (`published`) and when a channel sends one to a consumer or
answers basic.get (`received`).  It writes neither acks nor the redelivered flag, nothing of messages that expire, are
purged or dead-lettered, and a body only up to the trace's max_payload_bytes.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache
from typing import Any, NamedTuple

_TIME = re.compile(
    r"(\d{4})-(\d{1,2})-(\d{1,2})[T ](\d{1,2}):(\d{2}):(\d{2})(?:[:.,](\d{1,6}))?(Z|[+-]\d{2}:\d{2})?",
    re.ASCII,
)
TIME_PATTERN = rb"\d{4}-\d{1,2}-\d{1,2}[T ]\d{1,2}:\d{2}:\d{2}(?:[:.,]\d{1,6})?(?:Z|[+-]\d{2}:\d{2})?"
PUBLISHED, RECEIVED = "published", "received"
MAX_CHANNEL = 65_535


class Record(NamedTuple):
    """A message was published or received."""

    t: int
    """Microseconds since 1970, by the clock of the node that traced."""
    published: bool
    node: str
    connection: str
    vhost: str
    user: str
    channel: int
    exchange: str
    routing_keys: tuple[str, ...]
    queues: tuple[str, ...]
    """The queues that a published message was routed to, or the one that a received message came from."""
    properties: dict[str, Any]
    """The properties in the form of the plugin's JSON: headers as plain values, binaries that are not UTF-8 in words."""
    payload: bytes

    @property
    def headers(self) -> dict[str, Any]:
        found = self.properties.get("headers")
        return found if isinstance(found, dict) else {}


class BadRecord(ValueError):
    """Bytes that are no record."""


def moment(text: str) -> int:
    """Microseconds since 1970 of a record's time.

    | version        | written as                                              | zone                       |
    | -------------- | ------------------------------------------------------- | -------------------------- |
    | 3.9 and later  | 2022-11-21T16:26:44.949+00:00 or ...Z                   | told                       |
    | up to 3.8      | 2022-11-21 16:26:44:949, hours with one digit or two    | UTC                        |
    | the first ones | 2011-11-21 16:26:44                                     | UTC                        |
    """
    found = _TIME.fullmatch(text)
    if found is None:
        raise BadRecord(f"{text!r} is no time")
    *whole, fraction, zone = found.groups()
    return _second(*map(int, whole), zone or "Z") + int((fraction or "").ljust(6, "0"))


@lru_cache(maxsize=64)
def _second(year: int, month: int, day: int, hour: int, minute: int, second: int, zone: str) -> int:
    offset = UTC
    try:
        if zone != "Z":
            hours, minutes = zone[1:].split(":")
            away = timedelta(hours=int(hours), minutes=int(minutes))
            offset = timezone(-away if zone[0] == "-" else away)
        return int(datetime(year, month, day, hour, minute, second, tzinfo=offset).timestamp()) * 1_000_000
    except (ValueError, OverflowError) as error:
        raise BadRecord(f"no such time: {error}") from None
