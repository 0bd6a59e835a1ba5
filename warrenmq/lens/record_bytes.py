"""The bytes of a message's records, read from a data directory for the inspector: of a message store, and of a queue's index.

The frame of the record is always shown.  Bodies are the users' own, so they are shown only where that was asked for.
"""

from __future__ import annotations

import os
from typing import Any

from warrenmq.errors import CallerError
from warrenmq.inspect.index_bytes import BODY, Record, records_of
from warrenmq.inspect.layout import QueueFolder, recognise
from warrenmq.inspect.reading import Findings

FRAME = 24
"""Bytes before the body: its size, and the message id."""
_SIZE = 8
_AROUND = 9
"""Bytes of a record that its size does not count: the size itself and the end mark."""
MOST = 4_096
_FOLDERS = {"msg_store_persistent": "p", "msg_store_transient": "t"}


class RecordReader:
    """Reads records of one virtual host; opens nothing for writing, so a broker may have the directory open."""

    def __init__(self, directory: str, *, bodies: bool = False, vhost: str | None = None) -> None:
        """Find the stores of a data directory; CallerError if it has none, or several virtual hosts and none is named."""
        self._directory, self._bodies = os.path.abspath(directory), bodies
        found = recognise(Findings(self._directory)).vhosts
        called = [each.name or os.path.basename(each.path) for each in found]
        chosen = [each for each, name in zip(found, called, strict=True) if vhost in (None, name)]
        if len(chosen) != 1 and found:
            raise CallerError(
                f"{directory} has {len(found)} virtual hosts; say which with --vhost: {', '.join(called)}."
            )
        self._vhost = os.path.basename(chosen[0].path) if chosen else ""
        self._stores = {_FOLDERS[os.path.basename(path)]: path for each in chosen for path in each.stores
                        if os.path.basename(path) in _FOLDERS}  # fmt: skip
        if not self._stores:
            raise CallerError(f"{directory} holds no message store; name the data directory of the broker.")

    def read(self, store: str, file: int, offset: int, size: int) -> dict[str, Any]:
        """Read a record: {"offset", "size", "data": bytes as numbers, "hidden": body bytes left out}, or
        {"error": a sentence}.
        """
        path = os.path.join(self._stores.get(store, ""), f"{file}.rdq")
        shown = min(size, MOST) if self._bodies else min(size, FRAME)
        try:
            with open(path, "rb") as opened:
                opened.seek(offset)
                data = opened.read(shown)
        except OSError as why:
            return {"error": f"{file}.rdq cannot be read now: {why.strerror}."}
        if int.from_bytes(data[:_SIZE]) != size - _AROUND:
            return {
                "error": f"{file}.rdq does not hold this record at byte {offset}: it is not written yet, or was moved or overwritten since."
            }
        return {"offset": offset, "size": size, "data": list(data), "hidden": size - len(data)}

    def index(self, queue: str, priority: int | None, seq_id: int) -> dict[str, Any]:
        """{"records": of the message in the files of the queue's index} as they are now, or {"error": a sentence}."""
        findings = Findings(self._directory)
        try:
            vhosts = recognise(findings).vhosts
        except CallerError as why:
            return {"error": str(why)}
        for vhost in vhosts:
            if os.path.basename(vhost.path) != self._vhost:
                continue
            for folder in vhost.queues:
                if folder.name == queue and _same_priority(folder, priority):
                    found = records_of(findings, folder, vhost.entry_count, seq_id)
                    return {"records": [self._shown(each) for each in found]}
        return {"error": "The directory has no folder of this queue."}

    def _shown(self, record: Record) -> dict[str, Any]:
        return {
            "file": record.file,
            "offset": record.offset,
            "note": record.note,
            "fields": [
                {
                    "name": name,
                    "at": offset,
                    "size": len(data),
                    "data": list(data[:MOST]) if self._bodies or name != BODY else [],
                    "says": says,
                }
                for name, offset, data, says in record.fields
            ],
        }


def _same_priority(folder: QueueFolder, priority: int | None) -> bool:
    return (folder.priority or 0) == (priority or 0)
