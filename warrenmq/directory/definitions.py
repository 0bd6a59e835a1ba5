"""Durable queues, exchanges and bindings (RabbitMQ keeps them in Mnesia).

An append-only log of changes; the state is what remains after all of them.  A change is on disk when the call that
made it returns.  The log is a run of frames (definition_frames.py), each a version, a kind and fields:

    kind                   fields
    queue                  name, durable, exclusive, auto_delete, arguments, generation (missing: 0)
    exchange               name, type, auto_delete, internal, arguments
    binding, no binding    source, destination, routing_key, arguments, destination_type (version 1: always a queue)
    gone                   queues, exchanges: names of what was deleted in one go, be it all of it or nothing; the queues' generations
    no queue, no exchange  name, the same of one (version 1)
    parameter              component, name, value: a policy, an operator policy, limits (vhost/policies.py)
    no parameter           component, name
    folders                names of queues that had a folder when this was written

Opening writes the log anew with nothing but the state, and so does a change when the log has grown to twice
that.  Frames that make no sense are copied to the quarantine and skipped.  One that a power cut tore at the
log's end takes no trust from those before it: its change was not answered.

A "gone" frame is more than a change: it proves that the queue's folder may go (queue_folders.py), which an
interrupted deletion left behind.  So it stays in the log until the folder is gone for certain (`forget_gone`).  It
proves nothing of the queue that is declared under that name next, which has the next generation, in its
folder as well: so the log may be cut between the two.

A deleted queue or exchange takes its bindings along.  Transient queues and exchanges are not for this file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from decimal import InvalidOperation
from typing import Any

from warrenmq.directory.definition_frames import VERSION, frame, frames, is_torn, pack, unpack
from warrenmq.directory.quarantine import set_aside
from warrenmq.directory.torn import Damage
from warrenmq.errors import CorruptFile
from warrenmq.seams.disk import Disk
from warrenmq.seams.disk_errors import is_full

KNOWN_VERSIONS = (1, VERSION)
_SHORT = 1 << 16
"""Bytes that a log may grow by, however short it is."""


@dataclass(frozen=True, slots=True)
class QueueRecord:
    """A queue as it was declared."""

    name: str
    durable: bool = True
    exclusive: bool = False
    auto_delete: bool = False
    arguments: dict[str, Any] = field(default_factory=dict, hash=False)
    generation: int = field(default=0, compare=False)
    """One more than that of the deleted queue of this name that the log still names; not the declarer's business."""


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
    """A binding of a durable queue or exchange to a durable exchange.

    All its fields are its identity, arguments by value and type: 1, 1.0 and true are three.
    """

    source: str = field(compare=False)
    destination: str = field(compare=False)
    routing_key: str = field(default="", compare=False)
    arguments: dict[str, Any] = field(default_factory=dict, compare=False)
    destination_type: str = field(default="queue", compare=False)
    packed: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.destination_type not in ("queue", "exchange"):
            raise ValueError(f"a binding cannot lead to {self.destination_type!r}")
        packed = pack(
            [
                self.source,
                self.destination,
                self.routing_key,
                sorted(self.arguments.items()),
                self.destination_type,
            ]
        )
        object.__setattr__(self, "packed", packed)

    @property
    def ends(self) -> set[tuple[str, str]]:
        """Kind and name of what it connects; one, if an exchange is bound to itself."""
        return {("exchange", self.source), (self.destination_type, self.destination)}


class Declared:
    """The durable definitions of a vhost, folded from its log."""

    def __init__(self) -> None:
        self.queues: dict[str, QueueRecord] = {}
        self.exchanges: dict[str, ExchangeRecord] = {}
        self.bindings: dict[BindingRecord, None] = {}
        """Oldest first."""
        self._bindings_at: dict[tuple[str, str], dict[BindingRecord, None]] = {}
        """("queue" or "exchange", name) -> those with an end there: deletions look at no others."""
        self.parameters: dict[tuple[str, str], Any] = {}
        """(component, name) -> value."""
        self.gone: dict[str, int] = {}
        """Queues that were deleted and not declared again -> their generation."""
        self.with_folder: set[str] = set()
        """Queues that are known to have had a folder: if it is not there, it is lost.  A queue gets its
        folder when it is first used.
        """

    def deletes(self, queue: str, declared: QueueRecord | None) -> bool:
        """True if the log says that a queue was deleted; `declared` is what its folder says of it."""
        generation = self.gone.get(queue)
        return generation is not None and (declared is None or declared.generation <= generation)

    def replay(self, log: bytes) -> list[Damage]:
        """Apply all frames of a log; returns what makes no sense in it."""
        damage: list[Damage] = []
        for offset, length, payload in frames(log):
            reason = "no frame begins here" if payload is None else self._replay(payload)
            if reason is not None:
                damage.append(Damage(offset, length, reason))
        return damage

    def _replay(self, payload: bytes) -> str | None:
        """Apply one frame, or say why not."""
        try:
            version, kind, *fields = unpack(payload)
            if version not in KNOWN_VERSIONS:
                return f"its version is {version!r}, only {VERSION} and older ones are known"
            self._apply(kind, *fields)
        except (ValueError, TypeError, IndexError, OverflowError, AttributeError, InvalidOperation) as why:
            return f"it is no definition ({why})"
        return None

    def _apply(self, kind: str, *fields: Any) -> None:
        match kind:
            case "queue":
                self.queues[fields[0]] = QueueRecord(*fields)
                self.gone.pop(fields[0], None)
            case "no queue":
                self._drop([fields[0]], [])
            case "exchange":
                self.exchanges[fields[0]] = ExchangeRecord(*fields)
            case "no exchange":
                self._drop([], [fields[0]])
            case "gone":
                self._drop(*fields)
            case "binding":
                self._have_binding(BindingRecord(*fields))
            case "no binding":
                self._drop_binding(BindingRecord(*fields))
            case "parameter":
                self.parameters[fields[0], fields[1]] = fields[2]
            case "no parameter":
                self.parameters.pop((fields[0], fields[1]), None)
            case "folders":
                self.with_folder.update(fields[0])
            case _:
                raise ValueError(f"there are no definitions of kind {kind!r}")

    def _drop(self, queues: list[str], exchanges: list[str], generations: Sequence[int] = ()) -> None:
        for name, generation in zip(queues, generations or [0] * len(queues), strict=True):
            record = self.queues.pop(name, None)
            self.with_folder.discard(name)
            self.gone[name] = generation if record is None else record.generation
        for name in exchanges:
            self.exchanges.pop(name, None)
        for kind, names in (("queue", queues), ("exchange", exchanges)):
            for name in names:
                for binding in [*self._bindings_at.get((kind, name), ())]:
                    self._drop_binding(binding)

    def _have_binding(self, binding: BindingRecord) -> None:
        self.bindings[binding] = None
        for end in binding.ends:
            self._bindings_at.setdefault(end, {})[binding] = None

    def _drop_binding(self, binding: BindingRecord) -> None:
        if binding not in self.bindings:
            return
        del self.bindings[binding]
        for end in binding.ends:
            at = self._bindings_at[end]
            del at[binding]
            if not at:
                del self._bindings_at[end]


class Definitions(Declared):
    """The durable definitions of a vhost.  One thread changes them; others may look names up meanwhile."""

    def __init__(self, disk: Disk, path: str, quarantine: str) -> None:
        """Read the log, or begin one; its folder must exist."""
        super().__init__()
        self._disk = disk
        self._path = path
        self.damage: list[CorruptFile] = []
        """Frames that made no sense when the log was opened."""
        self.whole = self._load(quarantine)
        """True if the log proves that its deletions were meant, and not followed by a declaration that is lost."""
        self._file = disk.open(path)
        self._in_doubt = False
        """A power cut may bring back another log: the one before a replacement that failed halfway, or one
        whose sync failed.
        """

    @classmethod
    def open(cls, disk: Disk, path: str, quarantine: str) -> Definitions:
        """Open the definitions file, or create it: the constructor under a telling name."""
        return cls(disk, path, quarantine)

    def close(self) -> None:
        """Give the file back; everything is on disk already."""
        self._file.close()

    # -- changes: each is on disk when it returns; after an OSError it is not in effect, unless the disk fails for good

    def put_queue(self, record: QueueRecord) -> None:
        self.put_queues([record])

    def put_queues(self, records: Collection[QueueRecord]) -> None:
        """Declare queues, with one sync for all."""
        assert all(record.durable for record in records)
        records = [*map(self.with_generation, records)]
        self._append(b"".join(map(queue_frame, records)))
        for record in records:
            self.gone.pop(record.name, None)
            self.queues[record.name] = record
        self._shorten()

    def with_generation(self, record: QueueRecord) -> QueueRecord:
        """The record as it will be declared: with what tells its queue from the deleted one of its name."""
        deleted = self.gone.get(record.name)
        return record if deleted is None else replace(record, generation=deleted + 1)

    def note_folders(self, queues: Iterable[str]) -> None:
        """Remember that these queues have a folder."""
        if new := sorted({*queues} - self.with_folder):
            self._change("folders", new)

    def put_exchange(self, record: ExchangeRecord) -> None:
        self._change("exchange", *_exchange_fields(record))

    def delete(self, *, queues: Iterable[str] = (), exchanges: Iterable[str] = ()) -> None:
        """Delete all of these at once; names that are not here (transient ones) change nothing."""
        self._change("gone", [*queues], [*exchanges])

    def bind(self, record: BindingRecord) -> None:
        self._change("binding", *_binding_fields(record))

    def unbind(self, record: BindingRecord) -> None:
        self._change("no binding", *_binding_fields(record))

    def set_parameter(self, component: str, name: str, value: Any) -> None:
        self._change("parameter", component, name, value)

    def clear_parameter(self, component: str, name: str) -> None:
        self._change("no parameter", component, name)

    def _change(self, kind: str, *fields: Any) -> None:
        self._append(frame(kind, *fields))
        self._apply(kind, *fields)
        self._shorten()

    def _append(self, data: bytes) -> None:
        if self._in_doubt:
            self._write_anew()
        end = self._file.size()
        self._file.append(data)
        try:
            self._file.datasync()
        except OSError:
            # A change that was refused must not come true later, and any part of it may be on the disk.
            self._in_doubt = True
            with suppress(OSError):
                self._file.truncate(end)
            with suppress(OSError):
                self._write_anew()
            raise
        self._added += len(data)

    def _shorten(self) -> None:
        """Write the log anew if most of it may be changes that do not count any more."""
        if self._added > max(self._length, _SHORT):
            with suppress(OSError):  # it is as right as it was
                self._write_anew()

    # -- opening

    def settle(self, declared_again: Sequence[QueueRecord]) -> None:
        """The folders of queues that are not declared were sorted out: declare these, and forget what was deleted."""
        for record in declared_again:
            self.queues[record.name] = record
        self.whole = True
        if self.gone or declared_again:
            self.forget_gone()

    def forget_gone(self) -> None:
        """Forget the queues that were deleted: a power cut brings none of their folders back."""
        gone, self.gone = self.gone, {}
        try:
            self._write_anew()
        except OSError:
            self.gone = gone
            raise

    def _write_anew(self) -> None:
        """Replace the log by one that says what is declared now."""
        data = b"".join(snapshot(self))
        self._length, self._added = len(data), 0
        self._in_doubt = True
        try:
            self._disk.replace(self._path, data)
            self._in_doubt = False
        finally:  # it may be another file even after an error, and what is appended to the old one would be lost
            self._file.close()
            self._file = self._disk.open(self._path)

    def _load(self, quarantine: str) -> bool:
        """Read the log and write it anew: shorter, and safe even if its writer could not sync it.  False if
        it lost more than its end.
        """
        data = self._disk.read(self._path) if self._disk.exists(self._path) else b""
        damage = self.replay(data)
        self.damage += [CorruptFile(self._path, each.offset, each.reason) for each in damage]
        is_whole = all(
            each.offset + each.length == len(data) and is_torn(data, each.offset) for each in damage
        )
        if not is_whole:
            self.gone.clear()  # the damaged bytes may be later changes to these
        if damage:
            set_aside(
                self._disk, quarantine, self._path.rpartition("/")[2], data, [each[:2] for each in damage]
            )
        anew = b"".join(snapshot(self))
        try:
            self._disk.replace(self._path, anew)
        except OSError as error:
            if damage or not data or not is_full(error):
                raise
            self._disk.sync_many([self._path])  # it says the same, in more bytes
            anew = data
        self._length, self._added = len(anew), 0
        return is_whole


def snapshot(declared: Declared) -> Iterator[bytes]:
    """A log that says this and nothing else."""
    if declared.gone:
        yield frame("gone", [*declared.gone], [], [*declared.gone.values()])
    yield from map(queue_frame, declared.queues.values())
    for exchange in declared.exchanges.values():
        yield frame("exchange", *_exchange_fields(exchange))
    for binding in declared.bindings:
        yield frame("binding", *_binding_fields(binding))
    for (component, name), value in declared.parameters.items():
        yield frame("parameter", component, name, value)
    if declared.with_folder:
        yield frame("folders", sorted(declared.with_folder))


def queue_frame(record: QueueRecord) -> bytes:
    """The frame that declares a queue."""
    return frame("queue", *_queue_fields(record))


def _queue_fields(record: QueueRecord) -> tuple[Any, ...]:
    fields = record.name, record.durable, record.exclusive, record.auto_delete, record.arguments
    return (*fields, record.generation) if record.generation else fields


def _exchange_fields(record: ExchangeRecord) -> tuple[Any, ...]:
    return record.name, record.type, record.auto_delete, record.internal, record.arguments


def _binding_fields(record: BindingRecord) -> tuple[Any, ...]:
    return record.source, record.destination, record.routing_key, record.arguments, record.destination_type
