"""The store's rows in the trace that need some thought; the plain ones are written where they happen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warrenmq.message_store.actions import WriteAction
from warrenmq.message_store.tables import trace_number
from warrenmq.trace.events import CLEAN, DIRTY, Decision, Ev

if TYPE_CHECKING:
    from warrenmq.message_store.file_summary import FileSummary
    from warrenmq.message_store.flying import Seen
    from warrenmq.message_store.message_index import Entry, MessageIndex
    from warrenmq.message_store.recovery import Recovered
    from warrenmq.message_store.tables import Client
    from warrenmq.trace.recorder import ActorTrace

_STORE_WRITE, _STORE_REMOVE = int(Ev.STORE_WRITE), int(Ev.STORE_REMOVE)
_STORE_RECOVERED, _REF_RECOVERED, _FILE_STATE = map(
    int, (Ev.STORE_RECOVERED, Ev.REF_RECOVERED, Ev.FILE_STATE)
)
_STORE_CLOSED = int(Ev.STORE_CLOSED)
_DECISIONS = {
    WriteAction.IGNORE: int(Decision.IGNORE),
    WriteAction.WRITE: int(Decision.WRITE),
    WriteAction.REWRITE: int(Decision.WRITE),
    WriteAction.REVIVE: int(Decision.CONFIRM),
    WriteAction.COUNT: int(Decision.CONFIRM),
}


def tell_write(
    trace: ActorTrace, client: Client, msg_id: bytes, seen: Seen, action: WriteAction, entry: Entry | None
) -> None:
    """A write is about to be done; `entry` is what the index has now."""
    refs, file = (entry[0], entry[1]) if entry is not None else (0, 0)
    if action is not WriteAction.IGNORE:
        refs += 1
    known = seen is not None
    trace.emit(
        _STORE_WRITE,
        _DECISIONS[action],
        trace_number(msg_id),
        client.trace_id,
        file,
        a=seen or 0,
        b=refs,
        c=known,
    )


def tell_remove(
    trace: ActorTrace, client: int, msg_id: bytes, seen: Seen, decision: Decision, entry: Entry | None
) -> None:
    """A remove was done; `entry` is what the index has now."""
    refs, file = (entry[0], entry[1]) if entry is not None else (0, 0)
    known = seen is not None
    trace.emit(_STORE_REMOVE, decision, trace_number(msg_id), client, file, a=seen or 0, b=refs, c=known)


def tell_recovered(trace: ActorTrace | None, recovered: Recovered) -> None:
    """The store is up again, with these messages and files."""
    if trace is None:
        return
    index, files = recovered.index, recovered.files
    flag = CLEAN if recovered.clean else DIRTY
    living = sum(1 for _, entry in index.items() if entry[0])
    trace.emit(_STORE_RECOVERED, flag, a=living, b=len(files.rows), c=len(recovered.damage))
    for msg_id, (refs, file, offset, total) in index.items():
        if refs:
            trace.emit(_REF_RECOVERED, 0, trace_number(msg_id), pseq=refs, a=file, b=offset, c=total)
    _tell_files(trace, files)


def tell_closed(trace: ActorTrace | None, index: MessageIndex, files: FileSummary) -> None:
    """A clean stop: every file, and what there is in all."""
    if trace is not None:
        _tell_files(trace, files)
        counts = [entry[0] for _, entry in index.items() if entry[0]]
        trace.emit(_STORE_CLOSED, a=len(counts), b=sum(counts), c=len(files.rows))


def _tell_files(trace: ActorTrace, files: FileSummary) -> None:
    for number, row in files.rows.items():
        trace.emit(_FILE_STATE, a=number, b=row.valid_total_size, c=row.file_size)
