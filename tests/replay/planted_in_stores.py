"""Planted violations of the rules of the message store, S1 to S9."""

from __future__ import annotations

from itertools import pairwise

from tests.replay.planting import (
    COLLECTOR,
    STORE,
    Places,
    Runs,
    every,
    having,
    in_place,
    more,
    neighbours,
    plant,
    row_plant,
    rows,
)
from tests.support.simulated_trace import BUFFER, LIMIT
from tests.support.trace_writer import (
    MSG,
    PEER,
    PSEQ,
    SEQ,
    A,
    Actor,
    B,
    C,
    Row,
    RunRows,
    T,
    become,
    event,
    flag,
    insert,
    set_flag,
)
from warrenmq.trace.events import DIRECT, ROLL_FOR_LARGE, ROLL_GARBAGE, ROLL_LARGE, Decision, Ev, Trigger

in_place("S1", "a_count_that_jumps", STORE, Ev.STORE_WRITE, "E1", where=lambda row: flag(row) == Decision.CONFIRM and row[B] > 1, b=more(B))  # fmt: skip
in_place("S2", "a_write_done_against_the_counter", STORE, Ev.STORE_WRITE, where=having(Decision.WRITE), a=0)
in_place(
    "S2", "a_remove_done_against_the_counter", STORE, Ev.STORE_REMOVE, where=having(Decision.REMOVE), a=0, c=0
)
in_place("S3", "a_wrong_valid_total_size", STORE, Ev.FILE_STATE, b=more(B))
in_place("S3", "a_file_cut_below_its_live_records", COLLECTOR, Ev.TRUNCATE, "E1", "S8", b=0)
in_place("S6", "a_file_left_too_early", STORE, Ev.ROLL, c=LIMIT - 1)
in_place(
    "S7",
    "a_write_that_is_not_the_buffer",
    STORE,
    Ev.FILE_WRITE,
    where=having(Trigger.MAILBOX_EMPTY),
    c=more(C, -1),
)
in_place("S7", "a_buffer_called_full_that_is_not", STORE, Ev.FILE_WRITE,
         where=lambda row: flag(row) == Trigger.MAILBOX_EMPTY and row[C] <= BUFFER, flag=Trigger.BUFFER_FULL)  # fmt: skip


in_place("S7", "a_sync_of_more_than_was_written", STORE, Ev.FILE_SYNC, where=having(Trigger.MAILBOX_EMPTY), b=more(B), c=more(C))  # fmt: skip


@row_plant("S7", STORE, Ev.FILE_WRITE, flag=Trigger.MAILBOX_EMPTY)
def a_write_for_a_roll_over_that_does_not_come(_run: RunRows, store: Actor, row: Row) -> Places:
    """The next record goes to the same file."""
    later = [
        each for each in store.rows if each[SEQ] > row[SEQ] and event(each) in {Ev.APPEND, Ev.FILE_WRITE}
    ]
    of_it = [each for each in later if each[A] == row[A]]
    if of_it and event(of_it[0]) == Ev.APPEND:
        set_flag(row, Trigger.ROLL_OVER)
        yield


@row_plant("S4", STORE, Ev.LOCK)
def a_file_deleted_without_its_lock(run: RunRows, store: Actor, row: Row) -> Places:
    """Only those that combine delete a file; a compaction gives its lock back."""
    if any(each[SEQ] > row[SEQ] for each in store.find(Ev.FILE_DELETE, a=row[A])):
        become(row, Ev.RECV)
        yield


@row_plant("S1", STORE, Ev.STORE_REMOVE, flag=Decision.REMOVE)
def a_count_below_zero(run: RunRows, store: Actor, row: Row) -> Places:
    if row[B] == 0:
        columns = {"msg": row[MSG], "peer": row[PEER], "pseq": row[PSEQ], "a": -1, "b": -1, "c": 1}
        insert(run, store, row[SEQ], Ev.STORE_REMOVE, Decision.REMOVE, **columns)
        yield


@plant("S1", "E1")
def a_reference_without_a_holder(runs: Runs) -> Places:
    """A remove that gave back one of several references never happened, and no later row of the store tells."""
    *_, (_, store) = every(runs, STORE)
    for row in store.find(Ev.STORE_REMOVE, flag=Decision.REMOVE):
        later = [other for other in store.rows if other[MSG] == row[MSG] and other[SEQ] > row[SEQ]]
        written = any(
            each[MSG] == row[MSG]
            for _, other in every(runs, STORE)
            for each in other.find(Ev.STORE_WRITE, flag=Decision.WRITE)
        )
        if row[B] > 0 and written and all(event(other) == Ev.STORE_CONFIRM for other in later):
            become(row, Ev.READ)
            yield


@row_plant("S2", STORE, Ev.STORE_WRITE, flag=Decision.IGNORE)
def a_write_ignored_against_the_counter(run: RunRows, _store: Actor, row: Row) -> Places:
    client = run.actors[row[PEER] - 1]
    if any(other[T] > row[T] and event(other) == Ev.PUBLISH for other in client.rows):
        row[A] = row[C] = 1
        yield


@row_plant("S3", STORE, Ev.FILE_STATE, "E1", "S4")
def a_file_deleted_with_live_records(run: RunRows, store: Actor, row: Row) -> Places:
    if row[B] and row[SEQ] == len(store.rows) - 3:
        insert(run, store, row[SEQ], Ev.FILE_DELETE, a=row[A], b=row[C])
        yield


@row_plant("S4", STORE, Ev.APPEND)
def an_append_to_a_locked_file(run: RunRows, store: Actor, row: Row) -> Places:
    insert(run, store, row[SEQ], Ev.UNLOCK, a=row[A])
    insert(run, store, row[SEQ] - 1, Ev.LOCK, a=row[A])
    yield


@row_plant("S4", STORE, Ev.ROLL)
def a_current_file_that_is_locked(run: RunRows, store: Actor, row: Row) -> Places:
    insert(run, store, row[SEQ], Ev.UNLOCK, a=row[A])
    insert(run, store, row[SEQ], Ev.LOCK, a=row[A])
    yield


@plant("S4", "E1")
def a_current_file_that_is_deleted(runs: Runs) -> Places:
    """It was just opened: no record is lost."""
    for run, store in every(runs, STORE):
        for one, two in pairwise(store.rows):
            if event(one) == Ev.ROLL and event(two) != Ev.APPEND:
                insert(run, store, one[SEQ], Ev.FILE_DELETE, a=one[A])
                yield


def without_its_lock(step: int, name: str) -> None:
    """Register a plant that removes the lock of a file before a collector's step in it."""

    def change(runs: Runs) -> Places:
        for run, store in every(runs, STORE):
            for row in rows([run], COLLECTOR, step):
                lock = [each for each in store.find(Ev.LOCK, a=row[A]) if each[T] < row[T]][-1]
                become(lock, Ev.READ)
                yield

    change.__name__ = name
    plant("S4")(change)


without_its_lock(Ev.GC_START, "a_move_into_a_file_that_is_not_locked")
without_its_lock(Ev.COMPACT_MOVE, "a_compaction_without_a_lock")


@plant("S5", "D1")
def a_record_moved_onto_its_own_old_place(runs: Runs) -> Places:
    for run in runs:
        for _, collector in every([run], COLLECTOR):
            for one, two in zip(collector.rows, collector.rows[1:], strict=False):
                if event(one) == Ev.COMPACT_MOVE and event(two) == Ev.COMPACT_DONE:
                    one[B] = one[PSEQ] - one[C] + 1
                    yield


@plant("S8")
def a_truncation_that_did_not_wait_for_a_reader(runs: Runs) -> Places:
    for run in runs:
        for _, collector in every([run], COLLECTOR):
            for cut in collector.find(Ev.TRUNCATE):
                for queue in run.of("QueueProcess"):
                    for read in queue.find(Ev.READ, flag=DIRECT):
                        if read[T] > cut[T] and read[A] == cut[A]:
                            read[PSEQ] = cut[PSEQ]
                            yield


@plant("S9", "E1")
def a_store_that_was_quiet_for_a_minute_and_kept_its_garbage(runs: Runs) -> Places:
    for run, store in every(runs, STORE):
        if run.closed and event(store.rows[-3]) == Ev.FILE_STATE:
            last = store.rows[-3]
            last[C] = 10**9
            first = next(row for row in reversed(store.rows[:-3]) if event(row) != Ev.FILE_STATE)
            for later in runs:
                for actor in later.actors:
                    for row in actor.rows:
                        if row[T] > first[T]:
                            row[T] += 61 * 10**9
            yield


@row_plant("S6", STORE, Ev.ROLL)
def a_file_left_for_a_large_message_that_is_not_there(_run: RunRows, store: Actor, row: Row) -> Places:
    if len(store.find(Ev.APPEND, a=row[A])) > 1:
        set_flag(row, ROLL_FOR_LARGE)
        yield


@row_plant("S6", STORE, Ev.ROLL)
def a_file_left_as_a_large_messages_own_with_others_in_it(_run: RunRows, store: Actor, row: Row) -> Places:
    if len(store.find(Ev.APPEND, a=row[B])) > 1:
        set_flag(row, ROLL_LARGE)
        yield


@row_plant("S6", STORE, Ev.ROLL)
def a_file_left_because_of_garbage_that_it_has_not(_run: RunRows, store: Actor, row: Row) -> Places:
    live = {each[MSG]: each[C] for each in store.find(Ev.APPEND, a=row[B]) if each[T] < row[T]}
    for gone in store.find(Ev.STORE_REMOVE):
        live.pop(gone[MSG], 0)
    if sum(live.values()) * 2 >= row[C]:
        set_flag(row, ROLL_GARBAGE)
        yield


@plant("S5", "C1", "D1", "E1", "S3", "S7")
def a_record_that_leaves_a_gap(runs: Runs) -> Places:
    for one, two in neighbours(runs, STORE, Ev.APPEND):
        if one[A] == two[A]:
            two[B] += 1
            yield


@plant("S5", "D1", "S3")
def a_record_moved_to_a_wrong_place(runs: Runs) -> Places:
    for one, two in neighbours(runs, COLLECTOR):
        if event(one) == event(two) == Ev.GC_MOVE:
            two[B] += 1
            yield


@row_plant("S6", STORE, Ev.ROLL)
def an_append_to_a_full_file(run: RunRows, store: Actor, roll: Row) -> Places:
    """The roll-over came one record too late."""
    last = [row for row in store.find(Ev.APPEND, a=roll[B]) if row[SEQ] < roll[SEQ]]
    writes = [row for row in store.find(Ev.FILE_WRITE, a=roll[B]) if row[SEQ] < roll[SEQ]]
    syncs = [row for row in store.find(Ev.FILE_SYNC, a=roll[B]) if row[SEQ] < roll[SEQ]]
    told = any(row[SEQ] > roll[SEQ] for row in store.find(Ev.FILE_STATE, a=roll[B]))  # its size, for E1
    if last and last[-1][SEQ] < writes[-1][SEQ] and not told:
        end = last[-1][B] + last[-1][C]
        for row in (writes[-1], syncs[-1], roll):
            row[C] += 100
        syncs[-1][B] += 100
        insert(run, store, last[-1][SEQ], Ev.APPEND, msg=77, a=roll[B], b=end, c=100)
        at = last[-1][SEQ] + 1
        insert(run, store, at, Ev.STORE_REMOVE, Decision.REMOVE, msg=77, pseq=roll[B], a=-1, c=1)
        insert(run, store, at, Ev.STORE_WRITE, Decision.WRITE, msg=77, a=1, b=1, c=1)
        yield
