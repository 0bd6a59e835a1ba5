"""The store's side of garbage collection: which files are at the collector, and what waits for them.

A file is locked, with all that follows from it, from the moment that its job is made until the job comes back.
Meanwhile (reference, section 6.4)

    | operation on a message in a locked file   | now                                                     |
    | ----------------------------------------- | ------------------------------------------------------- |
    | read                                      | deferred: the caller waits                              |
    | remove of the last reference              | deferred                                                |
    | remove of another reference, or a write   | done: only the count changes                            |
    | of a message with references              |                                                         |
    | write of a message without references     | written anew: the old record is going away              |

so the survivors that the job names stay the same until it is done.  What was deferred is replayed in the order in
which it came, the source's before the destination's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from warrenmq.storage.combine import Combine, Delete, Phase, placed
from warrenmq.storage.gc_plan import find_files_to_combine, garbage_is_due
from warrenmq.storage.store_tables import trace_number
from warrenmq.trace.events import DEFER_READ, DEFER_REMOVE, Ev

if TYPE_CHECKING:
    from warrenmq.storage.combine import Job
    from warrenmq.storage.flying import Seen
    from warrenmq.storage.store_effects import Effect
    from warrenmq.storage.store_tables import StoreTables
    from warrenmq.trace.recorder import ActorTrace

_LOCK, _UNLOCK, _DEFER, _FILE_DELETE, _FILE_STATE = map(
    int, (Ev.LOCK, Ev.UNLOCK, Ev.DEFER, Ev.FILE_DELETE, Ev.FILE_STATE)
)


@dataclass(slots=True)
class DeferredRead:
    """A call that waits for its answer."""

    msg_id: bytes
    sender: Any


@dataclass(slots=True)
class DeferredRemove:
    """A last reference whose owner has already given it up."""

    msg_id: bytes
    client: int
    """Trace id of who removed it."""
    seen: Seen
    of_the_dead: bool
    """It was dropped on behalf of a dead client."""


Deferred: TypeAlias = DeferredRead | DeferredRemove


class StoreGc:
    """Files at the collector (RabbitMQ: pending_gc_completion)."""

    def __init__(
        self, tables: StoreTables, file_size_limit: int, effects: list[Effect], trace: ActorTrace | None
    ) -> None:
        self._tables = tables
        self._limit = file_size_limit
        self._effects = effects
        self._trace = trace
        self.pending: dict[int, list[Deferred]] = {}
        """File -> what waits for it; a key also says that the file is at the collector."""
        self.jobs: list[Job] = []
        """Those that have not come back."""
        self.paused = False
        """The disk was too full for the last combine."""
        self.closing = False
        """The store stops: no more jobs."""

    # sending files away

    def delete_if_empty(self, file: int) -> None:
        """Have a file without living data deleted; never the current one."""
        files = self._tables.files
        if (
            not self.closing
            and file != files.current
            and file not in self.pending
            and not files.rows[file].valid_total_size
        ):
            self._send(Delete(file))

    def maybe_combine(self) -> None:
        """Begin one combine, if there is enough garbage and a pair that fits."""
        files = self._tables.files
        if self.paused or self.closing:
            return
        if not garbage_is_due(files.sum_valid_data, files.sum_file_size, self._limit, len(self.pending)):
            return
        pair = find_files_to_combine(files, self._limit)
        if pair is not None:
            living = self._tables.index.living
            survivors = [(file, living(file, files.rows[file].ids)) for file in pair]
            self._send(Combine(*pair, survivors))

    def _send(self, job: Job) -> None:
        for file in reversed(job.files):
            self._tables.files.lock_file(file)
            self.pending[file] = []
            if self._trace is not None:
                self._trace.emit(_LOCK, a=file)
        self.jobs.append(job)
        self._effects.append(job)

    def defer(self, file: int, operation: Deferred) -> None:
        """Keep an operation until the file is back."""
        self.pending[file].append(operation)
        if self._trace is not None:
            flag = DEFER_READ if type(operation) is DeferredRead else DEFER_REMOVE
            self._trace.emit(_DEFER, flag, trace_number(operation.msg_id), a=file)

    # getting them back

    def completed(self, job: Job) -> list[Deferred]:
        """The collector is done with a job: enter the outcome; returns what may be replayed now."""
        self.jobs.remove(job)
        deferred = [operation for file in reversed(job.files) for operation in self.pending.pop(file)]
        if job.phase is not Phase.DONE:
            self.paused = job.phase is Phase.FAILED
            for file in job.files:
                self._unlock(file)
        elif isinstance(job, Combine):
            self._combined(job)
        else:
            self._deleted(job)
        return deferred

    def _combined(self, job: Combine) -> None:
        index, files = self._tables.index, self._tables.files
        moved = placed(job.survivors)
        for msg_id, offset, _ in moved:
            index.move(msg_id, job.destination, offset)
        for file in job.files:
            index.vacuum(file, files.rows[file].ids)
            self._tables.handles.drop(file)
        size = files.rows[job.destination].valid_total_size + files.rows[job.source].valid_total_size
        assert size == job.size
        files.remove(job.source)
        files.resize(job.destination, valid=size, size=size)
        files.rows[job.destination].ids = [msg_id for msg_id, _, _ in moved]
        self._unlock(job.destination)
        if self._trace is not None:
            self._trace.emit(_FILE_STATE, a=job.destination, b=size, c=size)

    def _deleted(self, job: Delete) -> None:
        files = self._tables.files
        row = files.rows[job.file]
        assert not row.valid_total_size
        self._tables.index.vacuum(job.file, row.ids)
        self._tables.handles.drop(job.file)
        files.remove(job.file)
        if self._trace is not None:
            self._trace.emit(_FILE_DELETE, a=job.file, b=row.file_size)

    def _unlock(self, file: int) -> None:
        self._tables.files.unlock_file(file)
        if self._trace is not None:
            self._trace.emit(_UNLOCK, a=file)
