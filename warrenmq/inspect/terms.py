"""The recovery terms of queues after a clean stop: RabbitMQ's recovery.dets, our recovery.terms."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from warrenmq.directory.recovery_terms import FILE_NAME, changes_since, parse
from warrenmq.erlang.dets import read_recovery_terms
from warrenmq.errors import CorruptFile
from warrenmq.inspect.layout import RABBITMQ_TERMS, QueueFolder, Vhost
from warrenmq.inspect.reading import Findings, file_sizes


def recovery_terms(findings: Findings, vhost: Vhost) -> Callable[[QueueFolder], dict[str, Any] | None]:
    """Looks up the terms of a queue; None after a crash."""
    path = f"{vhost.path}/{RABBITMQ_TERMS}"
    data = findings.read(path)
    saved: dict[str, dict[str, Any]] = {}
    if data:
        try:
            saved = read_recovery_terms(data)
        except CorruptFile as why:
            findings.note(path, why.offset, why.reason)

    def terms(queue: QueueFolder) -> dict[str, Any] | None:
        ours = parse(findings.read(f"{queue.path}/{FILE_NAME}") or b"")
        if ours is not None:
            sizes = file_sizes(findings, queue.path)
            changes = [*changes_since(ours, sizes, lambda name: findings.read(f"{queue.path}/{name}") or b"")]
            for name, offset, reason in changes:
                findings.note(f"{queue.path}/{name}", offset, reason)
            if changes:  # a start takes it for a crash
                return None
            return {"next_seq_id": ours.next_seq_id, "next_deliver_seq_id": ours.next_deliver_seq_id}
        return saved.get(os.path.basename(os.path.realpath(queue.path)))

    return terms
