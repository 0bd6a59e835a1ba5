"""`check --json` and `peek --json`: one object, written as it is found.

Messages are read, hashed and forgotten one after the other, so that a directory of any size can be listed.

    {"queues": [{"vhost", "name", "directory", "version", "priority", "durable", "messages": [...], "not_recovered": [...]}],
     "damaged": [{"file", "offset", "reason"}], "stores": [...], "in_use"}

`position` counts through the folders of one queue: a priority queue has one each, the highest priority first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Any

from warrenmq.inspect.inspection import NO_RECORD, Inspection, Row, VhostInspection
from warrenmq.inspect.layout import QueueFolder
from warrenmq.inspect.store import summary

Write = Callable[[str], Any]
_FIRST, _NEXT = "\n ", ",\n "
"""The separators before the first message and before each later one."""


class JsonWriter:
    """Writes queues, and remembers whether anything in them is a problem."""

    def __init__(self, inspection: Inspection, write: Write) -> None:
        self.problems = 0
        self._inspection = inspection
        self._write = write
        self._position = 0
        self._separator = _FIRST
        self._last: tuple[str | None, str | None] | None = None

    def everything(self) -> None:
        """The whole object of `check --json`."""
        self._write('{"queues": [')
        for number, (vhost, queue) in enumerate(self._inspection.queues()):
            if (queue.vhost, queue.name) != self._last or queue.name is None:
                self._position = 0
            self._last = queue.vhost, queue.name
            self._write(",\n" if number else "\n")
            self._begin(self._head(queue))
            rest = self._messages(vhost.rows(queue))
            self._write(f'], "not_recovered": {json.dumps(rest)}}}')
        findings = self._inspection.findings
        stores = [summary(findings, store) for _, store in self._inspection.stores()]
        damaged = findings.damaged()
        self._judge(len(damaged))
        self._write(f'],\n"damaged": {json.dumps([each._asdict() for each in damaged])}')
        self._write(f',\n"stores": {json.dumps(stores)},\n"in_use": {self._in_use()}}}\n')

    def one_queue(self, vhost: VhostInspection, folders: list[QueueFolder], limit: int | None) -> None:
        """One object for all priorities of a queue, with its first messages only if there is a limit."""
        head = self._head(folders[0])
        if len(folders) > 1:
            head["directories"] = [self._inspection.findings.relative(each.path) for each in folders]
        self._begin(head)
        rest = []
        for folder in folders:
            rest += self._messages(vhost.rows(folder), limit)
        self._write(f'], "not_recovered": {json.dumps(rest)}, "in_use": {self._in_use()}}}\n')
        self._judge(len(self._inspection.findings.damaged()))

    def _in_use(self) -> str:
        return json.dumps(self._inspection.findings.in_use())

    def _judge(self, damaged: int) -> None:
        self.problems += damaged

    def _begin(self, head: dict[str, Any]) -> None:
        self._write(json.dumps(head)[:-1] + ', "messages": [')
        self._separator = _FIRST

    def _head(self, queue: QueueFolder) -> dict[str, Any]:
        head: dict[str, Any] = {
            "vhost": queue.vhost,
            "name": queue.name,
            "directory": self._inspection.findings.relative(queue.path),
            "version": queue.version,
            "priority": queue.priority,
        }
        if queue.durable is not None:
            head["durable"] = queue.durable
        if queue.arguments:
            head["arguments"] = json.loads(json.dumps(queue.arguments, default=repr))
        return head

    def _messages(self, rows: Iterable[Row], limit: int | None = None) -> list[dict[str, Any]]:
        """Writes what is given back, returns what is not."""
        rest: list[dict[str, Any]] = []
        for row in rows:
            # a missing record is listed as damage, unless the directory is in use
            if row.reason != NO_RECORD:
                self.problems += not row.normal
            if row.reason is not None:
                rest.append(not_recovered(row))
                continue
            if limit is not None and self._position >= limit:
                break
            self._write(self._separator + json.dumps(as_dict(row, self._position)))
            self._separator = _NEXT
            self._position += 1
        return rest


def as_dict(row: Row, position: int) -> dict[str, Any]:
    """A message that is given back."""
    entry, message = row.entry, row.message
    assert message is not None
    found = {
        "position": position,
        "seq_id": entry.seq_id,
        "msg_id": _msg_id(row),
        "size": len(message.body),
        "sha256": sha256(message.body).hexdigest(),
        "persistent": entry.persistent,
        "exchange": message.exchange,
        "routing_key": message.routing_keys[0] if message.routing_keys else "",
        "routing_keys": message.routing_keys,
        "properties": message.properties,
        "redelivered": row.redelivered,
    }
    if entry.expiry:
        found["expiry_us"] = entry.expiry
    if row.salvaged is not None:
        found["salvaged"] = row.salvaged
    return found


def not_recovered(row: Row) -> dict[str, Any]:
    """An entry that is not given back, and why."""
    entry, message = row.entry, row.message
    assert row.reason is not None
    found: dict[str, Any] = {
        "seq_id": entry.seq_id,
        "msg_id": _msg_id(row),
        "reason": row.reason,
        "readable": message is not None,
        "persistent": entry.persistent,
        "where": entry.where.value,
        "size": entry.size,
    }
    if entry.expiry:
        found["expiry_us"] = entry.expiry
    if message is not None:
        found |= {
            "size": len(message.body),
            "sha256": sha256(message.body).hexdigest(),
            "exchange": message.exchange,
            "routing_keys": message.routing_keys,
        }
    return found


def _msg_id(row: Row) -> str | None:
    found = row.entry.msg_id or (row.message.msg_id if row.message is not None else None)
    return found.hex() if found else None
