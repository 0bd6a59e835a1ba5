"""The garbage collector of a message store (rabbit_msg_store_gc).

It has no tables: a job names the files, which the store has locked, and the survivors in them.  A job waits while
somebody still reads one of its files; whoever ends the last read says NoReaders.  Nothing here raises but a failing
disk: then the collector crashes, and its store, which is linked to it, with it.

Its disk goes through the fence of its store as well as its own.  When the store is given up, a collector that is in the
middle of a job must not touch files which the store's successor is about to read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from warrenmq.actors.msg_store_messages import JobDone, NoReaders
from warrenmq.log import Log
from warrenmq.runtime import Server
from warrenmq.storage.combine import Combine, Delete, Phase, commit, placed, prepare
from warrenmq.storage.disk import is_full
from warrenmq.storage.rdq import file_name
from warrenmq.storage.store_tables import trace_number
from warrenmq.trace.events import Ev

if TYPE_CHECKING:
    from pykka import ActorRef

    from warrenmq.storage.combine import Job
    from warrenmq.storage.disk import Disk
    from warrenmq.storage.file_summary import FileSummary


class MsgStoreGc(Server):
    """One collector a store.

    store      who gets JobDone
    files      the store's file summary: readers, sizes
    waiting    file -> the job that waits until nobody reads it (RabbitMQ: pending_no_readers)
    """

    def init(self, store: ActorRef[Any], disk: Disk, directory: str, files: FileSummary) -> None:
        """Begin; `disk` is the store's, fence and all."""
        self._store = store
        self._disk = disk.fenced(self.fence)
        self._directory = directory
        self._files = files
        self._waiting: dict[int, Job] = {}
        self._log = Log("warrenmq.store", store_directory=directory)

    def handle_cast(self, message: Any) -> None:
        """A job, or the news that one may be tried again."""
        match message:
            case Combine() | Delete():
                self._attempt(message)
            case NoReaders():
                if (job := self._waiting.pop(message.file, None)) is not None:
                    self._attempt(job)
            case _:
                raise TypeError(f"a garbage collector does not understand {message!r}")

    def _attempt(self, job: Job) -> None:
        busy = self._files.first_with_readers(job.files)
        if busy is not None:
            self._waiting[busy] = job
            return
        job.phase = Phase.RUNNING
        job.phase = self._combine(job) if isinstance(job, Combine) else self._delete(job)
        self.cast(self._store, JobDone(job))

    def _delete(self, job: Delete) -> Phase:
        self._disk.unlink(f"{self._directory}/{file_name(job.file)}")
        return Phase.DONE

    def _combine(self, job: Combine) -> Phase:
        if self.trace is not None:
            self.trace.emit(Ev.GC_START, a=job.destination, b=job.source, c=job.size)
        try:
            prepare(self._disk, self._directory, job.destination, job.survivors)
        except OSError as error:
            if not is_full(error):
                raise
            self._log.warning("the disk is too full to combine files", error=str(error))
            return Phase.FAILED
        commit(self._disk, self._directory, job.destination)
        self._disk.unlink(f"{self._directory}/{file_name(job.source)}")
        if self.trace is not None:
            self._tell(job)
        return Phase.DONE

    def _tell(self, job: Combine) -> None:
        assert self.trace is not None
        before = [(file, offset) for file, survivors in job.survivors for _, offset, _ in survivors]
        for (msg_id, offset, total), place in zip(placed(job.survivors), before, strict=True):
            if place != (job.destination, offset):
                self.trace.emit(Ev.GC_MOVE, 0, trace_number(msg_id), a=job.destination, b=offset, c=total)
        reclaimed = sum(self._files.rows[file].file_size for file in job.files) - job.size
        self.trace.emit(Ev.GC_DONE, a=job.destination, b=job.source, c=reclaimed)
