"""The plugin's JSON format: one object a line, the body in base64.

Bodies cannot be confused with anything here.  A line that is no record is damage: the file ends in the middle of one, or a
broker was killed while it wrote, and the next one appended to the torn line; then the record behind the torn one is found.
"""

from __future__ import annotations

import binascii
import json
from typing import Any

from warrenmq.rabbit_logs.record import MAX_CHANNEL, PUBLISHED, RECEIVED, BadRecord, Record, moment


def record_of_line(line: bytes) -> Record:
    """Parse a whole line.  Raises BadRecord."""
    try:
        if b"\\ud" in line.lower():  # half a pair is a string in JSON, and none in UTF-8
            line = json.dumps(json.loads(line), ensure_ascii=False).encode(errors="replace")
        told = json.loads(line)
    except (ValueError, RecursionError):
        raise BadRecord("not JSON") from None
    if not isinstance(told, dict):
        raise BadRecord("not a JSON object")
    return _record(told)


def record_behind_damage(line: bytes) -> Record | None:
    """The last record of a line whose beginning is torn."""
    at = line.find(b'{"', 1)
    while at >= 0:
        try:
            return record_of_line(line[at:])
        except BadRecord:
            at = line.find(b'{"', at + 1)
    return None


def _record(told: dict[str, Any]) -> Record:
    kind = told.get("type")
    if kind not in {PUBLISHED, RECEIVED}:
        raise BadRecord("neither published nor received")
    published = kind == PUBLISHED
    try:
        properties = told["properties"]
        return Record(
            moment(told["timestamp"]),
            published,
            str(told.get("node", "")),
            str(told.get("connection", "")),
            str(told.get("vhost", "")),
            str(told.get("user", "")),
            _channel(told.get("channel")),
            str(told["exchange"]),
            _names(told["routing_keys"]),
            _names(told["routed_queues"]) if published else (str(told["queue"]),),
            # an empty table is an empty list in some versions
            properties if isinstance(properties, dict) else {},
            binascii.a2b_base64(told["payload"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise BadRecord(f"a record without its parts: {error}") from None


def _channel(told: Any) -> int:
    return told if isinstance(told, int) and 0 <= told <= MAX_CHANNEL else 0


def _names(told: Any) -> tuple[str, ...]:
    if not isinstance(told, list):
        raise BadRecord("names that are no list")
    return tuple(map(str, told))
