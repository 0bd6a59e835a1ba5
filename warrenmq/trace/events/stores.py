"""The rows of message stores and of their garbage collectors."""

from __future__ import annotations

from warrenmq.trace.schema import (
    ACTOR,
    CHECKSUM,
    COUNT,
    FILE,
    OFFSET,
    SIZE,
    YES_NO,
    Event,
    T,
    in_a,
    in_b,
    in_c,
    in_flag,
    in_msg,
    in_peer,
    in_pseq,
)
from warrenmq.trace.words import BodyReport, Decision, Deferred, Ev, ReadFrom, Recovery, RollReason, Trigger

_MARK_BITS, _CHECKSUM_BITS = 47, 16


# message store


class StoreWrite(
    Event[T],
    event=Ev.STORE_WRITE,
    says="{actor} took a write of {message} by {client} and decided {decision}; references: {references}",
):
    """A write was handled."""

    decision: T = in_flag(Decision, "what the store did")
    message: T = in_msg("the message")
    client: T = in_peer(ACTOR, "client (queue)")
    file: T = in_pseq(FILE, "file of the record that existed, or 0")
    flying: T = in_a(COUNT, "flying counter seen; 0 if there was none")
    references: T = in_b(COUNT, "references afterwards")
    was_flying: T = in_c(YES_NO, "1 = a flying entry existed")


class Append(
    Event[T], event=Ev.APPEND, says="{actor} appended {message} to file {file} at {offset} ({size})"
):
    """A record was appended to the write buffer."""

    message: T = in_msg("the message")
    checksum: T = in_pseq(
        CHECKSUM,
        "one more than the CRC-32 that the body is stored with, modulo 65,535, if the message id is among the first 64 of 1,024",
    )
    file: T = in_a(FILE, "file")
    offset: T = in_b(OFFSET, "offset")
    size: T = in_c(SIZE, "bytes, framing included")


class StoreRemove(
    Event[T],
    event=Ev.STORE_REMOVE,
    says="{actor} took a remove of {message} by {client} and decided {decision}; references: {references}",
):
    """A remove was handled."""

    decision: T = in_flag(Decision, "what the store did")
    message: T = in_msg("the message")
    client: T = in_peer(ACTOR, "client (queue)")
    file: T = in_pseq(FILE, "file of the record or 0")
    flying: T = in_a(COUNT, "flying counter seen; 0 if there was none")
    references: T = in_b(COUNT, "references afterwards")
    was_flying: T = in_c(YES_NO, "1 = a flying entry existed")


class FileWrite(
    Event[T], event=Ev.FILE_WRITE, says="{actor} wrote {size} to file {file} at {offset}[ {trigger}]"
):
    """The write buffer was handed to the operating system."""

    trigger: T = in_flag(Trigger, "why")
    file: T = in_a(FILE, "file")
    offset: T = in_b(OFFSET, "offset")
    size: T = in_c(SIZE, "bytes")


class FileSync(
    Event[T], event=Ev.FILE_SYNC, says="{actor} synced file {file} up to {synced_to} ({size})[ {trigger}]"
):
    """The current file is safe up to here: on disk, or in the commit log (with durability=os: in the kernel)."""

    trigger: T = in_flag(Trigger, "why")
    file: T = in_a(FILE, "file")
    synced_to: T = in_b(OFFSET, "bytes of the file that are safe")
    size: T = in_c(SIZE, "bytes since the last sync")


class StoreConfirm(
    Event[T], event=Ev.STORE_CONFIRM, says="{actor} reports to {client} that the body of {message} {report}"
):
    """The store reports to its client that a body is safe."""

    report: T = in_flag(BodyReport, "what it reports")
    message: T = in_msg("the message")
    client: T = in_peer(ACTOR, "client (queue)")


class Roll(
    Event[T],
    event=Ev.ROLL,
    says="{actor} left file {old_file} ({old_size})[ {reason}] and opened file {new_file}",
):
    """The current file was left and the next one opened."""

    reason: T = in_flag(RollReason, "why; 0 = FULL")
    new_file: T = in_a(FILE, "new file")
    old_file: T = in_b(FILE, "old file")
    old_size: T = in_c(SIZE, "bytes of the old file")


class Lock(Event[T], event=Ev.LOCK, says="{actor} gave file {file} to the garbage collector"):
    """A file goes to the garbage collector."""

    file: T = in_a(FILE, "file")


class Unlock(Event[T], event=Ev.UNLOCK, says="{actor} got file {file} back from the garbage collector"):
    """A file came back from the garbage collector."""

    file: T = in_a(FILE, "file")


class Defer(
    Event[T], event=Ev.DEFER, says="{actor} puts off {operation} of {message} until file {file} is unlocked"
):
    """An operation on a locked file waits."""

    operation: T = in_flag(Deferred, "which operation")
    message: T = in_msg("the message")
    file: T = in_a(FILE, "file")


class Read(
    Event[T],
    event=Ev.READ,
    says="{actor} read the body of {message} {source} (file {file}, {size} at {offset})",
):
    """A body was read."""

    source: T = in_flag(ReadFrom, "where from")
    message: T = in_msg("the message")
    store: T = in_peer(ACTOR, "of a DIRECT read: the store; else 0")
    checksum: T = in_pseq(CHECKSUM, "of what was read, as APPEND says", shift=_MARK_BITS, bits=_CHECKSUM_BITS)
    mark: T = in_pseq(
        COUNT,
        "of a DIRECT read of a file that is compacted in place: the reader's mark; marks rise with each read that begins",
        bits=_MARK_BITS,
    )
    file: T = in_a(FILE, "file")
    offset: T = in_b(OFFSET, "offset")
    size: T = in_c(SIZE, "bytes")


class FileDelete(Event[T], event=Ev.FILE_DELETE, says="{actor} deleted file {file} ({size})"):
    """A file with no valid data was deleted."""

    file: T = in_a(FILE, "file")
    size: T = in_b(SIZE, "bytes")


class FileState(
    Event[T],
    event=Ev.FILE_STATE,
    says="{actor} has file {file}: {valid_total_size} of {file_size} are live records",
):
    """A file's row of the summary, written after recovery, after each combine and truncation, and at the end."""

    file: T = in_a(FILE, "file")
    valid_total_size: T = in_b(SIZE, "valid_total_size")
    file_size: T = in_c(SIZE, "file_size")


class StoreRecovered(
    Event[T],
    event=Ev.STORE_RECOVERED,
    says="{actor} is up {recovery}: {messages} messages in {files} files; damaged records: {damaged}",
):
    """The store is up."""

    recovery: T = in_flag(Recovery, "how the run before ended")
    messages: T = in_a(COUNT, "messages")
    files: T = in_b(COUNT, "files")
    damaged: T = in_c(COUNT, "records set aside as damaged")


class RefRecovered(
    Event[T],
    event=Ev.REF_RECOVERED,
    says="{actor} found {message} with {references} references in file {file} at {offset} ({size})",
):
    """A record was found at recovery."""

    message: T = in_msg("the message")
    references: T = in_pseq(COUNT, "references")
    file: T = in_a(FILE, "file")
    offset: T = in_b(OFFSET, "offset")
    size: T = in_c(SIZE, "bytes")


class RefDropped(
    Event[T],
    event=Ev.REF_DROPPED,
    says="{actor} dropped a dead client's reference to {message}; references: {references}",
):
    """A reference that a dead client held was dropped."""

    message: T = in_msg("the message")
    client: T = in_peer(ACTOR, "client of the same owner that is there now, or whoever deleted the owner")
    file: T = in_pseq(FILE, "file")
    references: T = in_b(COUNT, "references afterwards")


class StoreClosed(
    Event[T],
    event=Ev.STORE_CLOSED,
    says="{actor} stopped cleanly with {messages} messages, {references} references and {files} files",
):
    """A clean stop of a persistent store; FILE_STATE rows of every file precede."""

    messages: T = in_a(COUNT, "messages")
    references: T = in_b(COUNT, "references")
    files: T = in_c(COUNT, "files")


# garbage collector


class GcStart(
    Event[T],
    event=Ev.GC_START,
    says="{actor} combines file {source} into file {destination}: {valid_size} of live records",
):
    """A combine begins."""

    destination: T = in_a(FILE, "destination (left)")
    source: T = in_b(FILE, "source (right), the same when it is combined alone")
    valid_size: T = in_c(SIZE, "valid bytes of both")


class GcMove(Event[T], event=Ev.GC_MOVE, says="{actor} moved {message} to file {file} at {offset} ({size})"):
    """A record got a new place."""

    message: T = in_msg("the message")
    file: T = in_a(FILE, "file")
    offset: T = in_b(OFFSET, "offset")
    size: T = in_c(SIZE, "bytes")


class GcDone(
    Event[T],
    event=Ev.GC_DONE,
    says="{actor} has combined file {source} into file {destination} and reclaimed {reclaimed}",
):
    """A combine ended and is on disk."""

    destination: T = in_a(FILE, "destination")
    source: T = in_b(FILE, "source, the same when it was combined alone")
    reclaimed: T = in_c(SIZE, "bytes reclaimed")


class CompactStart(
    Event[T],
    event=Ev.COMPACT_START,
    says="{actor} compacts file {file} in place: {valid_size} of live records, the last ends at {end}",
):
    """A compaction in place begins."""

    file: T = in_a(FILE, "file")
    valid_size: T = in_b(SIZE, "valid bytes")
    end: T = in_c(OFFSET, "where its last record ends")


class CompactMove(
    Event[T],
    event=Ev.COMPACT_MOVE,
    says="{actor} copied {message} within file {file} from {old_offset} to {new_offset} ({size})",
):
    """A record was copied into a hole of its file."""

    message: T = in_msg("the message")
    file: T = in_a(FILE, "file")
    old_offset: T = in_pseq(OFFSET, "its old offset")
    new_offset: T = in_b(OFFSET, "its new offset")
    size: T = in_c(SIZE, "bytes")


class CompactDone(
    Event[T],
    event=Ev.COMPACT_DONE,
    says="{actor} has compacted file {file}: {copied} copied, it will be cut to {new_size}",
):
    """The copies are on disk."""

    file: T = in_a(FILE, "file")
    new_size: T = in_b(SIZE, "where the file will be cut")
    copied: T = in_c(SIZE, "bytes copied")


class Truncate(Event[T], event=Ev.TRUNCATE, says="{actor} cut file {file} to {new_size}, by {size}"):
    """A compacted file was cut; no reader can use old places any more."""

    file: T = in_a(FILE, "file")
    new_size: T = in_b(SIZE, "its new size")
    size: T = in_c(SIZE, "bytes that were cut off")
    mark: T = in_pseq(COUNT, "mark of the youngest reader that could know an old place")
