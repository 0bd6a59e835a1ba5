"""The store's side of garbage collection (rabbit_msg_store: maybe_gc, delete_file_if_empty): files that are locked at the
collector, and operations deferred until they come back.

A file is locked from the moment that a job which changes its records is made until the job comes back.
Meanwhile (docs/reference/message-store.md#operations-on-a-locked-file)

    | operation on a message in a locked file   | combine                          | compact                        |
    | ----------------------------------------- | -------------------------------- | ------------------------------ |
    | read                                      | deferred: the caller waits       | done                           |
    | remove of the last reference              | deferred                         | done: its copy will be garbage |
    | remove of another reference, or a write   | done: only the count changes     | done                           |
    | of a message with references              |                                  |                                |
    | write of a message without references     | written anew: the old record is going away                        |

so the survivors that a Combine names stay the same until it is done, and what a Compact moved is entered only where the
index still names its old place.  Deferred messages are replayed in the order in which they came, the source's before
the destination's.

gc_plan.py says when jobs are made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from warrenmq.message_store import gc_plan
from warrenmq.message_store.actions import FileState
from warrenmq.message_store.combine import placed
from warrenmq.message_store.effects import Effect
from warrenmq.message_store.flying import Seen
from warrenmq.message_store.gc_jobs import Combine, Compact, Delete, Job, Phase, Truncate
from warrenmq.message_store.gc_plan import MAXIMUM_SIMULTANEOUS_GC_FILES, is_mostly_garbage
from warrenmq.message_store.message_index import Entry
from warrenmq.message_store.tables import StoreTables, trace_number
from warrenmq.settings import Settings
from warrenmq.trace import events
from warrenmq.trace.events import DEFER_READ, DEFER_REMOVE, Defer, FileDelete, Lock, Unlock
from warrenmq.trace.recorder import ActorTrace
from warrenmq.trace.writers import writer

_write_lock, _write_unlock, _write_defer = writer(Lock), writer(Unlock), writer(Defer)
_write_deleted, _write_file_state = writer(FileDelete), writer(events.FileState)


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
    """Trace id of the client that removed it."""
    seen: Seen
    of_the_dead: bool
    """True if it was dropped on behalf of a dead client."""


Deferred: TypeAlias = DeferredRead | DeferredRemove


class StoreGc:
    """Files at the collector (RabbitMQ: pending_gc_completion)."""

    def __init__(
        self, tables: StoreTables, settings: Settings, effects: list[Effect], trace: ActorTrace | None
    ) -> None:
        self._tables = tables
        self._file_size_limit = settings.msg_store_file_size_limit
        self._effects = effects
        self._trace = trace
        self.in_place = tables.files.in_place
        self.pending: dict[int, list[Deferred]] = {}
        """File -> what waits for it; a key also says that the file is at the collector."""
        self.jobs: list[Job] = []
        """Jobs that have not come back from the collector."""
        self.paused = False
        """The disk was too full for the last job."""
        self.closing = False
        """The store stops: no more jobs."""
        self._candidates: dict[int, None] = {}
        """Files that lost a record since the last look at the clock; a dict, for its order."""
        self._due: dict[int, None] = {}
        """Files to compact."""
        self._reclaiming = False
        """Combine until no more than half is garbage."""

    @property
    def _limit(self) -> int:
        return min(self._file_size_limit, self._tables.longest())

    # what happened

    def lost_a_record(self, file: int) -> None:
        """The last reference to a record of this file is gone."""
        self.delete_if_empty(file)
        self._candidates[file] = None

    def delete_if_empty(self, file: int) -> None:
        """Delete a file without living data, unless it is the current one."""
        files = self._tables.files
        if (
            not self.closing
            and file != files.current
            and file not in self.pending
            and not files.rows[file].valid_total_size
        ):
            self._send(Delete(file))

    # the clock

    @property
    def wants_a_look(self) -> bool:
        """True if CHECK_INTERVAL should begin."""
        files = self._tables.files
        if self.closing or self.paused:
            return False
        return bool(self._candidates) or is_mostly_garbage(files.sum_valid_data, files.sum_file_size)

    def interval_begins(self) -> None:
        """Files that lose a record from now on are not looked at when the interval ends, but at the next end.

        They are probably being emptied, and then nothing needs to be moved.
        """
        self._candidates.clear()

    def interval_ended(self) -> None:
        """Look for garbage at the end of an interval."""
        files = self._tables.files
        if self.in_place:
            due = (
                n for n, row in files.rows.items() if is_mostly_garbage(row.valid_total_size, row.file_size)
            )
            self._due = dict.fromkeys(n for n in due if n not in self._candidates)
        else:
            self._reclaiming = True
        self.collect()

    # sending files away

    def collect(self) -> None:
        """Send the collector the jobs that are due, until it is busy enough."""
        if self.paused or self.closing:
            return
        if self.in_place:
            self._compact()
        else:
            self._combine()

    def _combine(self) -> None:
        files = self._tables.files
        chosen = None
        if gc_plan.garbage_is_due(
            files.sum_valid_data, files.sum_file_size, self._file_size_limit, len(self.pending)
        ):
            chosen = gc_plan.find_files_to_combine(files, self._limit)
        if chosen is None and self._reclaiming and not self.jobs:
            self._reclaiming = is_mostly_garbage(files.sum_valid_data, files.sum_file_size)
            if self._reclaiming:
                chosen = gc_plan.find_files_to_reclaim(files, self._limit)
        if chosen is not None:
            self._send(Combine([(file, self._living(file)) for file in chosen]))

    def _compact(self) -> None:
        files = self._tables.files
        at_work = sum(isinstance(job, Compact) for job in self.jobs)
        while self._due and at_work < MAXIMUM_SIMULTANEOUS_GC_FILES:
            file = next(iter(self._due))
            del self._due[file]
            row = files.rows.get(file)
            if row is None or file in self.pending or file == files.current or not row.valid_total_size:
                continue
            if is_mostly_garbage(row.valid_total_size, row.file_size):
                self._send_compact(file)
                at_work += 1
        if gc_plan.garbage_is_due(files.sum_valid_data, files.sum_file_size, self._file_size_limit, at_work):
            worst = gc_plan.find_file_to_compact(files, self.pending)
            if worst is not None:
                self._send_compact(worst)

    def _send_compact(self, file: int) -> None:
        # an entry without references does not move with its record: a later write is written anew
        self._tables.index.vacuum(file, self._tables.files.rows[file].ids)
        self._send(Compact(file, self._living(file)))

    def _living(self, file: int) -> list[tuple[bytes, int, int]]:
        return self._tables.index.living(file, self._tables.files.rows[file].ids)

    def _send(self, job: Job) -> None:
        for file in reversed(job.files):
            self.pending[file] = []
            if not isinstance(job, Truncate):
                self._tables.files.lock_file(file)
                if self._trace is not None:
                    _write_lock(self._trace, file)
        self.jobs.append(job)
        self._effects.append(job)

    def file_state(self, entry: Entry | None) -> FileState:
        """The file of a message that is written again."""
        row = None if entry is None else self._tables.files.rows.get(entry[1])
        if row is None:
            return FileState.GONE
        return FileState.LOCKED if row.locked else FileState.UNLOCKED

    def state_for_remove(self, entry: Entry | None) -> FileState:
        """The file of a message that is removed: one that is compacted in place keeps no remove out."""
        state = self.file_state(entry)
        return FileState.UNLOCKED if state is FileState.LOCKED and self.in_place else state

    def keeps_readers_out(self, file: int) -> bool:
        """True if reads of this file wait."""
        return self._tables.files.rows[file].locked and not self.in_place

    def defer(self, file: int, operation: Deferred) -> None:
        """Keep an operation until the file is back."""
        self.pending[file].append(operation)
        if self._trace is not None:
            flag = DEFER_READ if type(operation) is DeferredRead else DEFER_REMOVE
            _write_defer(self._trace, flag, trace_number(operation.msg_id), file)

    # getting them back

    def completed(self, job: Job) -> list[Deferred]:
        """The collector is done with a job: enter the outcome; returns what may be replayed now."""
        self.jobs.remove(job)
        deferred = [operation for file in reversed(job.files) for operation in self.pending.pop(file)]
        if job.phase is not Phase.DONE:
            self.paused = job.phase is Phase.FAILED
            for file in job.files:
                self._unlock(file)
                self._candidates[file] = None
        else:
            match job:
                case Combine():
                    self._combined(job)
                case Compact():
                    self._compacted(job)
                case Truncate():
                    self._truncated(job)
                case Delete():
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
        size = sum(files.rows[file].valid_total_size for file in job.files)
        assert size == job.size
        if job.source is not None:
            files.remove(job.source)
        files.resize(job.destination, valid=size, size=size)
        files.rows[job.destination].ids = [msg_id for msg_id, _, _ in moved]
        self._unlock(job.destination)
        self._tell(job.destination)

    def _compacted(self, job: Compact) -> None:
        index, files = self._tables.index, self._tables.files
        assert job.plan is not None
        ids = {offset: msg_id for msg_id, offset, _ in job.survivors}
        for move in job.plan.moves:
            index.relocate(ids[move.source], job.file, move.source, move.target)
        row = files.rows[job.file]
        row.ids = list(ids.values())
        self._unlock(job.file)
        if row.valid_total_size and not self.closing:
            # reads that begin from now on find the new places
            self._send(Truncate(job.file, job.plan.size, job.plan.vacated, files.last_mark()))

    def _truncated(self, job: Truncate) -> None:
        files = self._tables.files
        row = files.rows[job.file]
        files.resize(job.file, valid=row.valid_total_size, size=job.size)
        if is_mostly_garbage(row.valid_total_size, row.file_size):
            self._due[job.file] = None  # truncation leaves larger holes
        self._tell(job.file)

    def _deleted(self, job: Delete) -> None:
        files = self._tables.files
        row = files.rows[job.file]
        assert not row.valid_total_size
        self._tables.index.vacuum(job.file, row.ids)
        self._tables.handles.drop(job.file)
        files.remove(job.file)
        if self._trace is not None:
            _write_deleted(self._trace, job.file, row.file_size)

    def _unlock(self, file: int) -> None:
        if self._tables.files.is_locked(file):
            self._tables.files.unlock_file(file)
            if self._trace is not None:
                _write_unlock(self._trace, file)

    def _tell(self, file: int) -> None:
        if self._trace is not None:
            row = self._tables.files.rows[file]
            _write_file_state(self._trace, file, row.valid_total_size, row.file_size)
