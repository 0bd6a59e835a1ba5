"""Durable queues, exchanges and bindings (RabbitMQ keeps them in Mnesia).

An append-only log of changes; the state is what remains after all of them.  A change is on disk when the call that
made it returns.  The log is a run of frames

    | length of the rest (u32) | crc32 of the rest (u32) | msgpack [version, kind, fields...] |

with kind one of queue, exchange, binding, and "no queue", "no exchange", "no binding" for what was deleted.  Opening
writes the log anew with nothing but the state.  Frames that make no sense are copied to the quarantine and
skipped; zeros at the end are a tail that a power cut left behind.

A deleted queue or exchange takes its bindings along.  What is not durable is not for this file.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import astuple, dataclass, field
from struct import Struct
from typing import TYPE_CHECKING, Any

import msgpack  # type: ignore[import-untyped]

from warrenmq.errors import CorruptFile
from warrenmq.storage.quarantine import set_aside
from warrenmq.storage.torn import Damage

if TYPE_CHECKING:
    from warrenmq.storage.disk import Disk

VERSION = 1
_FRAME = Struct(">II")


@dataclass(frozen=True)
class QueueRecord:
    """A queue as it was declared."""

    name: str
    durable: bool = True
    exclusive: bool = False
    auto_delete: bool = False
    arguments: dict[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class ExchangeRecord:
    """A durable exchange as it was declared."""

    name: str
    type: str
    auto_delete: bool = False
    internal: bool = False
    arguments: dict[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class BindingRecord:
    """A binding of a durable queue to a durable exchange; all four fields are its identity."""

    source: str
    destination: str
    routing_key: str = ""
    arguments: dict[str, Any] = field(default_factory=dict, hash=False)


class Declared:
    """What a log comes to: the durable definitions of a vhost."""

    def __init__(self) -> None:
        self.queues: dict[str, QueueRecord] = {}
        self.exchanges: dict[str, ExchangeRecord] = {}
        self.bindings: dict[BindingRecord, None] = {}
        """Oldest first."""

    def replay(self, log: bytes) -> list[Damage]:
        """Apply all frames of a log; returns what makes no sense in it."""
        damage: list[Damage] = []
        for offset, length, payload in _frames(log):
            reason = "no frame begins here" if payload is None else self._replay(payload)
            if reason is not None:
                damage.append(Damage(offset, length, reason))
        return damage

    def _replay(self, payload: bytes) -> str | None:
        """Apply one frame, or say why not."""
        try:
            version, kind, *fields = msgpack.unpackb(payload, timestamp=3)
            if version != VERSION:
                return f"its version is {version!r}, only {VERSION} is known"
            self._apply(kind, *fields)
        except (ValueError, TypeError, IndexError, OverflowError) as why:
            return f"it is no definition ({why})"
        return None

    def _apply(self, kind: str, *fields: Any) -> None:
        match kind:
            case "queue":
                self.queues[fields[0]] = QueueRecord(*fields)
            case "no queue":
                self.queues.pop(fields[0], None)
                self._drop_bindings(lambda binding: binding.destination == fields[0])
            case "exchange":
                self.exchanges[fields[0]] = ExchangeRecord(*fields)
            case "no exchange":
                self.exchanges.pop(fields[0], None)
                self._drop_bindings(lambda binding: binding.source == fields[0])
            case "binding":
                self.bindings[BindingRecord(*fields)] = None
            case "no binding":
                self.bindings.pop(BindingRecord(*fields), None)
            case _:
                msg = f"there are no definitions of kind {kind!r}"
                raise ValueError(msg)

    def _drop_bindings(self, gone: Any) -> None:
        self.bindings = {binding: None for binding in self.bindings if not gone(binding)}


class Definitions(Declared):
    """The durable definitions of a vhost.  One thread changes them; others may look names up meanwhile."""

    def __init__(self, disk: Disk, path: str, quarantine: str) -> None:
        """Read the log, or begin one; its folder must exist."""
        super().__init__()
        self._disk = disk
        self._path = path
        self.damage: list[CorruptFile] = []
        """Frames that made no sense when the log was opened."""
        self._load(quarantine)
        self._file = disk.open(path)

    @classmethod
    def open(cls, disk: Disk, path: str, quarantine: str) -> Definitions:
        """As the constructor, under the name that says what it does."""
        return cls(disk, path, quarantine)

    def close(self) -> None:
        """Give the file back; everything is on disk already."""
        self._file.close()

    # -- changes: each is on disk when it returns; after an OSError it is not in effect, though it may be at the next start

    def put_queue(self, record: QueueRecord) -> None:
        assert record.durable
        self._change("queue", *astuple(record))

    def delete_queue(self, name: str) -> None:
        self._change("no queue", name)

    def put_exchange(self, record: ExchangeRecord) -> None:
        self._change("exchange", *astuple(record))

    def delete_exchange(self, name: str) -> None:
        self._change("no exchange", name)

    def bind(self, record: BindingRecord) -> None:
        self._change("binding", *astuple(record))

    def unbind(self, record: BindingRecord) -> None:
        self._change("no binding", *astuple(record))

    def _change(self, kind: str, *fields: Any) -> None:
        self._file.append(_frame(kind, *fields))
        self._file.datasync()
        self._apply(kind, *fields)

    # -- opening

    def _load(self, quarantine: str) -> None:
        """Read the log and write it anew: shorter, and safe even if whoever wrote it could not sync it."""
        data = self._disk.read(self._path) if self._disk.exists(self._path) else b""
        damage = self.replay(data)
        self.damage += [CorruptFile(self._path, each.offset, each.reason) for each in damage]
        if damage:
            set_aside(
                self._disk, quarantine, self._path.rpartition("/")[2], data, [each[:2] for each in damage]
            )
        self._disk.replace(self._path, b"".join(snapshot(self)))


def snapshot(declared: Declared) -> Iterator[bytes]:
    """A log that says this and nothing else."""
    for queue in declared.queues.values():
        yield _frame("queue", *astuple(queue))
    for exchange in declared.exchanges.values():
        yield _frame("exchange", *astuple(exchange))
    for binding in declared.bindings:
        yield _frame("binding", *astuple(binding))


def _frame(kind: str, *fields: Any) -> bytes:
    payload: bytes = msgpack.packb((VERSION, kind, *fields), datetime=True)
    return _FRAME.pack(len(payload), zlib.crc32(payload)) + payload


def _frames(data: bytes) -> Iterator[tuple[int, int, bytes | None]]:
    """(offset, length, payload) of each frame; payload None for bytes between frames that are none."""
    end = len(data.rstrip(b"\x00"))
    offset = lost_from = 0
    while offset < end:
        payload = _payload(data, offset)
        if payload is None:
            offset += 1
            continue
        if lost_from < offset:
            yield lost_from, offset - lost_from, None
        yield offset, _FRAME.size + len(payload), payload
        offset = lost_from = offset + _FRAME.size + len(payload)
    if lost_from < end:
        yield lost_from, len(data) - lost_from, None


def _payload(data: bytes, offset: int) -> bytes | None:
    """The payload of a whole frame at `offset`."""
    if offset + _FRAME.size > len(data):
        return None
    length, crc = _FRAME.unpack_from(data, offset)
    start = offset + _FRAME.size
    if not length or start + length > len(data):
        return None
    payload = data[start : start + length]
    return payload if zlib.crc32(payload) == crc else None
