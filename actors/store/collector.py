"""The garbage collector of a message store (rabbit_msg_store_gc).

It has no tables: a job names a file or two, and the survivors in them.  A job waits while a reader has its files open
that may know them as they were (gc_jobs.py); the reader that leaves last sends NoReaders.  Nothing here raises but a
failing disk: then the collector crashes, and its store, which is linked to it, with it.

Its disk goes through the fence of its store as well as its own.  When the store is given up, a collector that is in the
middle of a job must not touch files which the store's successor is about to read.
"""

from __future__ import annotations

from typing import Any

from pykka import ActorRef

from warrenmq.actors.store.messages import JobDone, NoReaders
from warrenmq.log import Log
from warrenmq.message_store import combine, compact
from warrenmq.message_store.file_summary import FileSummary
from warrenmq.message_store.gc_jobs import Combine, Compact, Delete, Job, Phase, Truncate
from warrenmq.message_store.rdq import file_name
from warrenmq.message_store.tables import trace_number
from warrenmq.runtime import Server
from warrenmq.seams.disk import Disk
from warrenmq.seams.disk_errors import lack_of
from warrenmq.seams.fenced_disk import FencedDisk
from warrenmq.trace.events import CompactDone, CompactMove, CompactStart, GcDone, GcMove, GcStart
from warrenmq.trace.events import Truncate as TruncateRow
from warrenmq.trace.writers import writer

_write_gc_start, _write_gc_move, _write_gc_done = writer(GcStart), writer(GcMove), writer(GcDone)
_write_compact_start, _write_compact_move = writer(CompactStart), writer(CompactMove)
_write_compact_done, _write_truncate = writer(CompactDone), writer(TruncateRow)


class MsgStoreGc(Server):
    """The garbage collector of one store.

    _store     who gets JobDone
    _files     the store's file summary: readers, sizes
    _waiting   file -> the job that waits for its readers (RabbitMQ: pending_no_readers)
    """

    def init(self, store: ActorRef[Any], disk: Disk, directory: str, files: FileSummary) -> None:
        """Begin; `disk` is the store's, fence and all."""
        self._store = store
        self._disk = FencedDisk(disk, self.fence)
        self._directory = directory
        self._files = files
        self._waiting: dict[int, Job] = {}
        self._log = Log("warrenmq.store", store_directory=directory)

    def handle_cast(self, message: Any) -> None:
        """A job, or the news that one may be tried again."""
        match message:
            case Combine() | Compact() | Truncate() | Delete():
                self._attempt(message)
            case NoReaders():
                if (job := self._waiting.pop(message.file, None)) is not None:
                    self._attempt(job)
            case _:
                raise TypeError(f"a garbage collector does not understand {message!r}")

    def _attempt(self, job: Job) -> None:
        busy = None
        if not isinstance(job, Compact):
            threshold = job.threshold if isinstance(job, Truncate) else None
            busy = self._files.await_readers(job.files, threshold)
        if busy is not None:
            self._waiting[busy] = job
            return
        job.phase = Phase.RUNNING
        try:
            self._carry_out(job)
            job.phase = Phase.DONE
        except OSError as error:
            if lack_of(error) is None:
                raise
            self._log.warning("garbage is collected later, when there is room for that", error=str(error))
            job.phase = Phase.FAILED
        self.cast(self._store, JobDone(job))

    def _carry_out(self, job: Job) -> None:
        match job:
            case Combine():
                self._combine(job)
            case Compact():
                self._compact(job)
            case Truncate():
                self._truncate(job)
            case Delete():
                self._disk.unlink(self._path(job.file))

    def _path(self, file: int) -> str:
        return f"{self._directory}/{file_name(file)}"

    def _combine(self, job: Combine) -> None:
        source = job.destination if job.source is None else job.source
        if self.trace is not None:
            _write_gc_start(self.trace, job.destination, source, valid_size=job.size)
        combine.prepare(self._disk, self._directory, job.destination, job.survivors)
        combine.commit(self._disk, self._directory, job.destination)
        if job.source is not None:
            self._disk.unlink(self._path(job.source))
        if self.trace is not None:
            before = [(file, offset) for file, survivors in job.survivors for _, offset, _ in survivors]
            for (msg_id, offset, total), place in zip(combine.placed(job.survivors), before, strict=True):
                if place != (job.destination, offset):
                    _write_gc_move(self.trace, trace_number(msg_id), job.destination, offset, total)
            reclaimed = sum(self._files.rows[file].file_size for file in job.files) - job.size
            _write_gc_done(self.trace, job.destination, source, reclaimed)

    def _compact(self, job: Compact) -> None:
        records = [(offset, total) for _, offset, total in job.survivors]
        plan = compact.plan(records)
        if self.trace is not None:
            end = sum(records[-1]) if records else 0
            _write_compact_start(self.trace, job.file, sum(total for _, total in records), end)
        compact.fill_holes(self._disk, self._path(job.file), plan)
        job.plan = plan
        if self.trace is not None:
            ids = {offset: msg_id for msg_id, offset, _ in job.survivors}
            for source, target, total in plan.moves:
                number = trace_number(ids[source])
                _write_compact_move(self.trace, number, job.file, source, target, total)
            copied = sum(move.total for move in plan.moves)
            _write_compact_done(self.trace, job.file, plan.size, copied)

    def _truncate(self, job: Truncate) -> None:
        compact.truncate(self._disk, self._path(job.file), job.size, job.vacated)
        if self.trace is not None:
            cut = self._files.rows[job.file].file_size - job.size
            _write_truncate(self.trace, job.file, job.size, cut, mark=job.threshold)
