"""What queues left behind at a clean stop: RabbitMQ's recovery.dets, our recovery.terms."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgpack  # type: ignore[import-untyped]

from warrenmq.erlang.dets import read_recovery_terms
from warrenmq.errors import CorruptFile
from warrenmq.storage.recovery_terms import FILE_NAME

if TYPE_CHECKING:
    from warrenmq.inspect.layout import QueueFolder, Vhost
    from warrenmq.inspect.reading import Findings

RABBITMQ_FILE = "recovery.dets"


def recovery_terms(findings: Findings, vhost: Vhost) -> Callable[[QueueFolder], dict[str, Any] | None]:
    """Looks up the terms of a queue; None after a crash."""
    path = f"{vhost.path}/{RABBITMQ_FILE}"
    data = findings.read(path)
    saved: dict[str, dict[str, Any]] = {}
    if data:
        try:
            saved = read_recovery_terms(data)
        except CorruptFile as why:
            findings.note(path, why.offset, why.reason)

    def terms(queue: QueueFolder) -> dict[str, Any] | None:
        ours = _ours(findings.read(f"{queue.path}/{FILE_NAME}") or b"")
        if ours is not None:
            return ours
        return saved.get(os.path.basename(os.path.realpath(queue.path)))

    return terms


def _ours(stored: bytes) -> dict[str, Any] | None:
    if not stored[4:] or zlib.crc32(stored[4:]) != int.from_bytes(stored[:4], "big"):
        return None
    match msgpack.unpackb(stored[4:]):
        case [1, int() as next_seq_id, int() as next_deliver_seq_id, *_]:
            return {"next_seq_id": next_seq_id, "next_deliver_seq_id": next_deliver_seq_id}
    return None
