"""Numbers of a directory, for people and as plain values: what `ls`, `check` and `stats` print."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from warrenmq.inspect.entries import Where
from warrenmq.inspect.inspection import Inspection, VhostInspection
from warrenmq.inspect.layout import QueueFolder
from warrenmq.inspect.reading import file_sizes
from warrenmq.terminal import size, table


@dataclass(slots=True)
class QueueLine:
    """One queue folder, by its index alone."""

    vhost: str | None
    name: str | None
    priority: int | None
    version: int
    directory: str
    ready: int = 0
    bytes: int = 0
    """Bytes of the messages' bodies."""
    files: int = 0
    file_bytes: int = 0
    segments: int = 0
    in_index: int = 0
    in_store: int = 0
    in_qs: int = 0

    @property
    def title(self) -> str:
        name = self.name if self.name is not None else f"({os.path.basename(self.directory)})"
        return name if self.priority is None else f"{name} [{self.priority}]"


@dataclass(slots=True)
class Verdict:
    """The result of reading every message of a queue folder."""

    ready: int = 0
    bytes: int = 0
    salvaged: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    problems: int = 0


def queue_line(inspection: Inspection, vhost: VhostInspection, queue: QueueFolder) -> QueueLine:
    """Counts a queue without looking into the stores."""
    findings = inspection.findings
    line = QueueLine(queue.vhost, queue.name, queue.priority, queue.version, findings.relative(queue.path))
    for entry in vhost.ready(queue):
        line.ready += 1
        line.bytes += entry.size
        line.in_index += entry.where == Where.INDEX
        line.in_store += entry.where == Where.STORE
        line.in_qs += entry.where == Where.QUEUE_STORE
    sizes = file_sizes(findings, queue.path)
    line.files, line.file_bytes = len(sizes), sum(sizes.values())
    line.segments = sum(name.endswith((".idx", ".qi")) for name in sizes)
    return line


def verdict(vhost: VhostInspection, queue: QueueFolder) -> Verdict:
    """Reads every message of a queue."""
    found = Verdict()
    for row in vhost.rows(queue):
        found.problems += not row.normal
        if row.reason is not None:
            found.reasons[row.reason] += 1
            continue
        found.ready += 1
        found.bytes += row.entry.size
        if row.salvaged is not None:
            found.salvaged[row.salvaged] += 1
    return found


def list_table(lines: list[QueueLine]) -> str:
    """The table of `ls`."""
    rows: list[list[str | int]] = [
        [
            line.vhost or "?",
            line.title,
            f"v{line.version}",
            line.ready,
            size(line.bytes),
            line.files,
            size(line.file_bytes),
        ]
        for line in lines
    ]
    return table(("VHOST", "QUEUE", "INDEX", "READY", "BYTES", "FILES", "ON DISK"), rows)


def queue_table(lines: list[QueueLine]) -> str:
    """The queues in the output of `stats`."""
    rows: list[list[str | int]] = [
        [
            line.title,
            line.segments,
            line.in_index,
            line.in_store,
            line.in_qs,
            size(line.bytes),
            size(line.file_bytes),
        ]
        for line in lines
    ]
    return table(("QUEUE", "SEGMENTS", "IN INDEX", "IN STORE", "IN QS", "BODIES", "ON DISK"), rows)


def store_table(stores: list[tuple[str | None, dict[str, Any]]]) -> str:
    """The stores in the output of `stats`."""
    rows: list[list[str | int]] = [
        [
            f"{vhost or '?'} {each['kind'].removeprefix('msg_store_')}", len(each["files"]), each["records"],
            *(size(each[name]) for name in ("live", "garbage", "zeros", "damaged")),
        ]
        for vhost, each in stores
    ]  # fmt: skip
    return table(("STORE", "FILES", "RECORDS", "LIVE", "GARBAGE", "ZEROS", "DAMAGED"), rows)


def check_table(lines: list[tuple[QueueFolder, Verdict]]) -> str:
    """The queues in the output of `check`: a line each, and below it why messages are salvaged or not recovered."""
    parts: list[list[str | int]] = []
    notes: list[list[str]] = []
    for queue, found in lines:
        title = QueueLine(queue.vhost, queue.name, queue.priority, queue.version, queue.path).title
        lost = sum(found.reasons.values())
        parts.append(
            [queue.vhost or "?", title, found.ready, size(found.bytes), sum(found.salvaged.values()), lost]
        )
        notes.append(
            [f"    salvaged {count:,}: {why}" for why, count in found.salvaged.most_common()]
            + [f"    not given back {count:,}: {why}" for why, count in found.reasons.most_common()]
        )
    head, *rows = table(("VHOST", "QUEUE", "READY", "BYTES", "SALVAGED", "NOT GIVEN BACK"), parts).split("\n")
    return "\n".join(
        [head, *(line for row, below in zip(rows, notes, strict=True) for line in [row, *below])]
    )


def as_dict(line: QueueLine) -> dict[str, Any]:
    """One queue in the output of `ls --json` and `stats --json`."""
    return asdict(line)
