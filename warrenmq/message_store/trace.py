"""The store's rows in the trace that need some thought; the plain ones are written where they happen."""

from __future__ import annotations

from warrenmq.message.stored import checksum_of
from warrenmq.message_store.actions import WriteAction
from warrenmq.message_store.file_summary import FileSummary
from warrenmq.message_store.flying import Seen
from warrenmq.message_store.message_index import Entry, MessageIndex
from warrenmq.message_store.recovery import Recovered
from warrenmq.message_store.tables import Client, trace_number
from warrenmq.trace.events import (
    CLEAN,
    DIRTY,
    EMPTY,
    NOT_CHECKED,
    Decision,
    FileState,
    RefRecovered,
    StoreClosed,
    StoreRecovered,
    StoreRemove,
    StoreWrite,
)
from warrenmq.trace.recorder import ActorTrace
from warrenmq.trace.writers import writer

_write_store_write, _write_store_remove = writer(StoreWrite), writer(StoreRemove)
_write_recovered, _write_ref_recovered = writer(StoreRecovered), writer(RefRecovered)
_write_file_state, _write_closed = writer(FileState), writer(StoreClosed)
_DECISIONS = {
    WriteAction.IGNORE: int(Decision.IGNORE),
    WriteAction.WRITE: int(Decision.WRITE),
    WriteAction.REWRITE: int(Decision.WRITE),
    WriteAction.REVIVE: int(Decision.CONFIRM),
    WriteAction.COUNT: int(Decision.CONFIRM),
}


def checksum_in_row(number: int, data: bytes, at: int = 0) -> int:
    """The checksum that a row has of the stored message at `at`, whose message has this number in the trace; 0 = none."""
    return 0 if number & NOT_CHECKED else checksum_of(data, at)


def tell_write(
    trace: ActorTrace, client: Client, msg_id: bytes, seen: Seen, action: WriteAction, entry: Entry | None
) -> None:
    """A write is about to be done; `entry` is what the index has now."""
    refs, file = (entry[0], entry[1]) if entry is not None else (0, 0)
    if action is not WriteAction.IGNORE:
        refs += 1
    known = seen is not None
    _write_store_write(
        trace, _DECISIONS[action], trace_number(msg_id), client.trace_id, file, seen or 0, refs, known
    )


def tell_remove(
    trace: ActorTrace, client: int, msg_id: bytes, seen: Seen, decision: Decision, entry: Entry | None
) -> None:
    """A remove was done; `entry` is what the index has now."""
    refs, file = (entry[0], entry[1]) if entry is not None else (0, 0)
    known = seen is not None
    _write_store_remove(trace, decision, trace_number(msg_id), client, file, seen or 0, refs, known)


def tell_recovered(trace: ActorTrace | None, recovered: Recovered) -> None:
    """The store has recovered these messages and files."""
    if trace is None:
        return
    index, files = recovered.index, recovered.files
    flag = DIRTY if recovered.damage or any(row.file_size for row in files.rows.values()) else EMPTY
    if recovered.clean and not recovered.wiped:
        flag = CLEAN
    living = sum(1 for _, entry in index.items() if entry[0])
    _write_recovered(trace, flag, living, len(files.rows), len(recovered.damage))
    for msg_id, (refs, file, offset, total) in index.items():
        if refs:
            _write_ref_recovered(trace, trace_number(msg_id), refs, file, offset, total)
    _tell_files(trace, files)


def tell_closed(trace: ActorTrace | None, index: MessageIndex, files: FileSummary) -> None:
    """A clean stop: every file, and the totals."""
    if trace is not None:
        _tell_files(trace, files)
        counts = [entry[0] for _, entry in index.items() if entry[0]]
        _write_closed(trace, len(counts), references=sum(counts), files=len(files.rows))


def _tell_files(trace: ActorTrace, files: FileSummary) -> None:
    for number, row in files.rows.items():
        _write_file_state(trace, number, row.valid_total_size, row.file_size)
