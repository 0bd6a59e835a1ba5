"""One broken trace for each way of breaking each rule: a consistent trace with the smallest change that does it.

A plant is a function that changes the runs and returns True, or False when this trace has no place for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from itertools import pairwise

import pytest

from tests.support.simulated_trace import BUFFER, LIMIT, consistent_trace
from tests.support.trace_writer import (
    MSG,
    PEER,
    PSEQ,
    RECEIVES,
    SEQ,
    WHO,
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
from warrenmq.replay.rules.no_confirm_is_overdue import OVERDUE
from warrenmq.replay.rules.passes.settlements import CONSUMER_SHIFT
from warrenmq.trace.events import (
    CLEAN,
    CONFIRM_DURABLE,
    CONFIRM_TRANSIENT,
    DEAD_LETTERED,
    DIRECT,
    DIRTY,
    DROP_EXPIRED,
    DROP_LOST,
    DROP_MAXLEN,
    DROP_PURGED,
    IN_STORE,
    MULTIPLE,
    PERSISTENT,
    REDELIVERED,
    RETURNED,
    ROLL_FOR_LARGE,
    ROLL_GARBAGE,
    ROLL_LARGE,
    WRITTEN,
    Decision,
    Ev,
    Reason,
    Trigger,
)
from warrenmq.trace.schema import COLUMNS

Runs = list[RunRows]
Places = Iterator[None]
Plant = Callable[[Runs], bool]
PLANTS: list[tuple[str, Plant, frozenset[str]]] = []
"""(rule, plant, other rules that the same change breaks of necessity)"""

SIZES = ((8, 12), (25, 40))
"""(steps, seeds) of traces with a plant: short ones first, because the time of a test goes with rows."""

QUEUE, STORE, COLLECTOR, CLIENT, SUPERVISOR = "QueueProcess", "MsgStore", "MsgStoreGc", "client", "QueueSup"


def plant(rule: str, *implied: str) -> Callable[[Callable[[Runs], Places]], Plant]:
    """Register a function that changes the runs and then yields; what it would change next stays as it is."""

    def register(function: Callable[[Runs], Places]) -> Plant:
        @wraps(function)
        def at_the_first_place(runs: Runs) -> bool:
            return any(True for _ in function(runs))

        PLANTS.append((rule, at_the_first_place, frozenset(implied)))
        return at_the_first_place

    return register


def row_plant(
    rule: str, kind: str, what: int, *implied: str, **columns: int
) -> Callable[[Callable[[RunRows, Actor, Row], Places]], Plant]:
    """Register a function that is called for each row of an event of such actors, until it yields."""

    def register(function: Callable[[RunRows, Actor, Row], Places]) -> Plant:
        @wraps(function)
        def at_each_row(runs: Runs) -> Places:
            for run, actor in every(runs, kind):
                for row in actor.find(what, **columns):
                    yield from function(run, actor, row)

        return plant(rule, *implied)(at_each_row)

    return register


def every(runs: Runs, kind: str) -> Iterator[tuple[RunRows, Actor]]:
    """Actors of a kind, each with its run; the transient store, which forgets all that it had, is left out."""
    return ((run, actor) for run in runs for actor in run.of(kind) if "transient" not in actor.name)


def rows(runs: Runs, kind: str, what: int, **columns: int) -> Iterator[Row]:
    """Rows of an event, of all actors of a kind."""
    return (row for _, actor in every(runs, kind) for row in actor.find(what, **columns))


def neighbours(runs: Runs, kind: str, what: int | None = None) -> Iterator[tuple[Row, Row]]:
    """Two rows in a row of one actor, of an event or of any."""
    return (
        pair
        for _, actor in every(runs, kind)
        for pair in pairwise(actor.rows if what is None else actor.find(what))
    )


def exchange(one: Row, two: Row) -> None:
    """Swap what two rows say; each keeps its place."""
    one[MSG:], two[MSG:] = two[MSG:], one[MSG:]


def in_place(
    rule: str,
    name: str,
    kind: str,
    what: int,
    *implied: str,
    where: Callable[[Row], bool] = lambda _: True,
    last_run: bool = False,
    **columns: int | Callable[[Row], int],
) -> Plant:
    """Register a plant that changes columns (flag, event, a, b, ...) of one row: to a number, or to what a function of the row says."""

    def change(runs: Runs) -> Places:
        for row in filter(where, rows(runs[-1:] if last_run else runs, kind, what)):
            new = {each: value(row) if callable(value) else value for each, value in columns.items()}
            if "event" in new:
                become(row, new.pop("event"))
            if "flag" in new:
                set_flag(row, new.pop("flag"))
            for each, value in new.items():
                row[COLUMNS.index(each)] = value
            yield

    change.__name__ = name
    return plant(rule, *implied)(change)


def having(flag_: int) -> Callable[[Row], bool]:
    return lambda row: flag(row) == flag_


def more(column: int, by: int = 1) -> Callable[[Row], int]:
    return lambda row: row[column] + by


in_place("C1", "a_report_that_no_store_made", STORE, Ev.STORE_CONFIRM, where=having(WRITTEN), peer=9999)
in_place("C1", "a_persistent_message_confirmed_at_once", QUEUE, Ev.CONFIRM, where=having(CONFIRM_DURABLE), flag=CONFIRM_TRANSIENT)  # fmt: skip
in_place("Q3", "a_message_that_expires_too_soon", QUEUE, Ev.DROP, where=lambda row: flag(row) & ~DEAD_LETTERED == DROP_EXPIRED, c=1)  # fmt: skip
in_place("Q5", "a_message_that_is_stuck", QUEUE, Ev.QUEUE_RESTS, where=lambda row: row[B] == 0, b=1)
in_place("A1", "an_ack_of_another_tag", QUEUE, Ev.ACK, where=having(0), c=more(C))
in_place(
    "A1",
    "an_ack_of_a_tag_of_another_consumer",
    QUEUE,
    Ev.ACK,
    where=having(MULTIPLE),
    c=more(C, 1 << CONSUMER_SHIFT),
)
in_place("D1", "a_direct_read_beside_the_record", QUEUE, Ev.READ, where=having(DIRECT), b=more(B))
in_place("D1", "a_direct_read_of_another_file", QUEUE, Ev.READ, where=having(DIRECT), a=more(A))
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
in_place("S7", "a_write_for_a_roll_over_that_does_not_come", STORE, Ev.FILE_WRITE, where=having(Trigger.MAILBOX_EMPTY), flag=Trigger.ROLL_OVER)  # fmt: skip
in_place("S7", "a_sync_of_more_than_was_written", STORE, Ev.FILE_SYNC, where=having(Trigger.MAILBOX_EMPTY), b=more(B), c=more(C))  # fmt: skip
in_place("E1", "a_queue_that_counts_wrong_when_it_stops", QUEUE, Ev.QUEUE_CLOSED, a=more(A))
in_place("E1", "a_store_that_counts_wrong_when_it_stops", STORE, Ev.STORE_CLOSED, b=more(B, -1))
a_queue_that_begins_again_with_other_ids = in_place(
    "E1", "a_queue_that_begins_again_with_other_ids", QUEUE, Ev.QUEUE_RECOVERED, last_run=True, b=more(B, -1)
)
in_place(
    "E1",
    "a_queue_that_drops_more_than_a_clean_stop_left",
    QUEUE,
    Ev.QUEUE_RECOVERED,
    last_run=True,
    c=more(C, 100),
)
in_place(
    "E1", "a_store_that_lost_a_file_between_two_runs", STORE, Ev.STORE_RECOVERED, last_run=True, b=more(B, -1)
)
in_place("W1", "a_thread_that_goes_on_after_no_alarm", CLIENT, Ev.ALARM_BLOCKED, event=Ev.UNDELIVERED)
a_restart_beyond_intensity = in_place(
    "R1", "a_restart_beyond_intensity", SUPERVISOR, Ev.RESTART, a=lambda row: row[B] + 1
)
in_place("R1", "an_escalation_within_intensity", SUPERVISOR, Ev.RESTART, event=Ev.ESCALATE)
in_place("R1", "a_restart_that_was_not_counted", SUPERVISOR, Ev.RESTART, a=more(A, -1))
in_place(
    "R2",
    "an_incarnation_that_starts_again",
    SUPERVISOR,
    Ev.CHILD_START,
    "R3",
    event=Ev.ACTOR_START,
    peer=0,
    a=1,
)
in_place("S4", "a_file_deleted_without_its_lock", STORE, Ev.LOCK, event=Ev.RECV)
in_place("R3", "a_child_of_another_supervisor", SUPERVISOR, Ev.CHILD_START, peer=5)
in_place("R3", "a_child_that_never_started", QUEUE, Ev.ACTOR_START, event=Ev.QI_WRITE, a=0)
in_place(
    "R3",
    "a_child_that_ended_for_another_reason",
    SUPERVISOR,
    Ev.CHILD_EXIT,
    where=having(Reason.SHUTDOWN),
    flag=Reason.CRASH,
)
in_place(
    "R3",
    "a_child_that_was_left_running",
    SUPERVISOR,
    Ev.CHILD_EXIT,
    where=having(Reason.SHUTDOWN),
    event=Ev.QI_WRITE,
    peer=0,
)
in_place("R3", "a_child_that_runs_and_is_started_again", SUPERVISOR, Ev.RESTART, peer=5)


@plant("T1")
def a_time_that_stands_still(runs: Runs) -> Places:
    for one, two in neighbours(runs, QUEUE):
        if event(one) == Ev.QI_WRITE and event(two) == Ev.QI_SYNC:
            two[T] = one[T]
            yield


@plant("T1")
def a_row_that_is_there_twice(runs: Runs) -> Places:
    sup = runs[1].of("QueueSup")[0]
    index = sup.rows.index(sup.find(Ev.CHILD_START)[0])
    sup.rows.insert(index, list(sup.rows[index]))
    sup.last += 1
    yield


@row_plant("T2", STORE, Ev.RECV)
def a_receive_of_nothing(run: RunRows, _store: Actor, receive: Row) -> Places:
    sender = run.actors[receive[PEER] - 1]
    if event(sender.rows[receive[PSEQ]]) != Ev.SEND:
        receive[PSEQ] += 1
        yield


@plant("T2")
def a_message_received_twice(runs: Runs) -> Places:
    for one, two in neighbours(runs, STORE, Ev.RECV):
        if one[PEER] == two[PEER]:
            two[PSEQ] = one[PSEQ]
            yield


@plant("T2")
def a_message_received_by_another_actor(runs: Runs) -> Places:
    client = runs[0].of("client")[0]
    sent = next(row for row in client.find(Ev.SEND) if row[PEER])
    sent[PEER] = 1
    yield


@row_plant("T4", STORE, Ev.RECV)
def a_message_received_before_it_was_sent(run: RunRows, _store: Actor, receive: Row) -> Places:
    rows = run.actors[receive[PEER] - 1].rows
    sent = rows[receive[PSEQ] - 1]
    if receive[PSEQ] < len(rows) and rows[receive[PSEQ]][T] > receive[T] + 1:
        sent[T] = receive[T] + 1
        yield


@plant("C1")
def a_confirm_without_a_sync(runs: Runs) -> Places:
    for _, queue in every(runs, QUEUE):
        embedded = [
            row for row in queue.find(Ev.PUBLISH) if row[WHO] & PERSISTENT and not row[WHO] & IN_STORE
        ]
        confirms = [
            row for row in queue.find(Ev.CONFIRM, flag=CONFIRM_DURABLE) for p in embedded if row[A] == p[A]
        ]
        if confirms:
            for sync in queue.find(Ev.QI_SYNC):
                if sync[SEQ] < confirms[0][SEQ]:
                    become(sync, Ev.QI_WRITE)
            yield


@row_plant("C1", QUEUE, Ev.ON_DISK, flag=WRITTEN)
def a_confirm_before_the_store_reported(_run: RunRows, queue: Actor, told: Row) -> Places:
    if any(row[MSG] == told[MSG] and row[SEQ] > told[SEQ] for row in queue.find(Ev.CONFIRM)):
        become(told, Ev.QI_WRITE)
        yield


@plant("C1")
def a_store_confirm_before_the_sync(runs: Runs) -> Places:
    for _, store in every(runs, STORE):
        appended: set[int] = set()
        for one, two in pairwise(store.rows):
            if event(one) == Ev.APPEND:
                appended.add(one[MSG])
            if event(one) == Ev.FILE_SYNC and event(two) == Ev.STORE_CONFIRM and two[MSG] in appended:
                exchange(one, two)
                yield


@row_plant("C1", QUEUE, Ev.CONFIRM, flag=CONFIRM_DURABLE)
def a_confirm_given_twice(run: RunRows, queue: Actor, row: Row) -> Places:
    insert(run, queue, row[SEQ], Ev.CONFIRM, CONFIRM_DURABLE, msg=row[MSG], a=row[A], b=row[B])
    yield


def successive(runs: Runs) -> Iterator[tuple[Actor, RunRows, Actor]]:
    """A queue's process, and the next one of its name with its run."""
    for name in ("queue:a", "queue:b"):
        lives = [(run, actor) for run, actor in every(runs, QUEUE) if actor.name == name]
        for (_, before), (run, after) in pairwise(lives):
            yield before, run, after


def recover_again(run: RunRows, queue: Actor, id_: int) -> None:
    """Insert the recovery of a message that is gone, and its purge."""
    insert(run, queue, 1, Ev.RECOVERED, a=id_, b=1)
    insert(run, queue, 2, Ev.DROP, DROP_PURGED, a=id_, b=1)


@plant("C2", "E1", "S1")
def a_confirmed_message_that_is_lost(runs: Runs) -> Places:
    for before, _run, after in successive(runs):
        safe = {row[A] for row in before.find(Ev.CONFIRM, flag=CONFIRM_DURABLE)}
        safe -= {row[A] + i for row in before.find(Ev.PUBLISH) if row[WHO] & IN_STORE for i in range(row[B])}
        touches = [row for row in after.rows if event(row) in {Ev.DELIVER, Ev.DROP}]
        touched = {id_ for row in touches for id_ in range(row[A], row[A] + row[B])}
        for row in after.find(Ev.RECOVERED):
            if row[A] in safe - touched:
                become(row, Ev.QI_WRITE)
                yield


@plant("C2", "Q1")
def a_confirmed_message_whose_body_is_damaged(runs: Runs) -> Places:
    for _, queue in every(runs, QUEUE):
        safe = {row[A] for row in queue.find(Ev.CONFIRM, flag=CONFIRM_DURABLE)}
        for row in queue.find(Ev.DROP):
            if row[A] in safe and flag(row) == DROP_PURGED:
                set_flag(row, DROP_LOST)
                yield


@plant("C2", "Q1")
def a_message_confirmed_in_an_earlier_life_whose_body_is_damaged(runs: Runs) -> Places:
    for before, _run, after in successive(runs):
        safe = {row[A] for row in before.find(Ev.CONFIRM, flag=CONFIRM_DURABLE)}
        recovered = {row[A] for row in after.find(Ev.RECOVERED)}
        for row in after.find(Ev.DROP):
            if row[A] in safe & recovered and flag(row) == DROP_PURGED:
                set_flag(row, DROP_LOST)
                yield


@plant("C2", "E1")
def an_acked_message_that_comes_back(runs: Runs) -> Places:
    for before, run, after in successive(runs):
        synced = max((row[SEQ] for row in before.find(Ev.QI_SYNC)), default=0)
        for ack in before.find(Ev.ACK):
            if ack[SEQ] < synced:
                recover_again(run, after, ack[A])
                yield


@plant("C2", "E1")
def a_transient_message_that_comes_back(runs: Runs) -> Places:
    for before, run, after in successive(runs):
        for publish in before.find(Ev.PUBLISH):
            gone = {row[A] for row in before.rows if event(row) in {Ev.ACK, Ev.DROP}}
            if not publish[WHO] & PERSISTENT and publish[A] not in gone:
                recover_again(run, after, publish[A])
                yield


@plant("C3", "C4")
def a_confirm_that_is_never_given(runs: Runs) -> Places:
    for _, queue in every(runs, QUEUE):
        if queue.find(Ev.QUEUE_CLOSED):
            for row in queue.find(Ev.CONFIRM, flag=CONFIRM_DURABLE):
                become(row, Ev.QI_WRITE)
                yield


@plant("C5", "C4")
def a_dead_queue_that_nacks_nothing(runs: Runs) -> Places:
    for run, queue in every(runs, QUEUE):
        ends = (row for each in run.actors for row in each.find(Ev.CHILD_EXIT, peer=queue.id))
        if any(ends) and not queue.find(Ev.QUEUE_CLOSED):
            for nacked in (row for each in run.of("Nacks") for row in each.find(Ev.NACKED, peer=queue.id)):
                nacked[B] = 0
            for row in queue.find(Ev.CONFIRM, flag=CONFIRM_DURABLE):
                become(row, Ev.QI_WRITE)
                yield


@row_plant("Q6", QUEUE, Ev.DELIVER)
def another_body(_run: RunRows, queue: Actor, row: Row) -> Places:
    if row[PSEQ] and any(each[C] >> 32 & 0xFFFF for each in queue.find(Ev.PUBLISH, a=row[A], b=row[B])):
        row[PSEQ] = row[PSEQ] % 0xFFFF + 1
        yield


@row_plant("Q6", STORE, Ev.APPEND)
def another_body_written(run: RunRows, _store: Actor, row: Row) -> Places:
    published = [each for queue in run.of(QUEUE) for each in queue.find(Ev.PUBLISH, msg=row[MSG], b=1)]
    if row[PSEQ] and any(each[C] >> 32 & 0xFFFF for each in published if each[WHO] & IN_STORE):
        row[PSEQ] = row[PSEQ] % 0xFFFF + 1
        yield


@row_plant("Q6", QUEUE, Ev.READ)
def another_body_read(run: RunRows, _queue: Actor, row: Row) -> Places:
    if row[PSEQ] >> 47 and any(store.find(Ev.APPEND, msg=row[MSG]) for store in run.of(STORE)):
        row[PSEQ] = (row[PSEQ] >> 47) % 0xFFFF + 1 << 47 | row[PSEQ] & (1 << 47) - 1
        yield


@row_plant("X1", CLIENT, Ev.ROUTED, b=2)
def a_queue_that_an_exchange_misses(_run: RunRows, _client: Actor, row: Row) -> Places:
    row[B] = 1
    yield


@plant("Q1")
def a_delivery_out_of_order(runs: Runs) -> Places:
    for one, two in neighbours(runs, QUEUE):
        if event(one) == event(two) == Ev.DELIVER and one[A] < two[A]:
            exchange(one, two)
            yield


@row_plant("Q1", QUEUE, Ev.DELIVER)
def a_second_delivery_without_its_flag(_run: RunRows, queue: Actor, row: Row) -> Places:
    first = queue.find(Ev.DELIVER, a=row[A])[0]
    if row is not first and row[WHO] & REDELIVERED:
        row[WHO] &= ~REDELIVERED
        yield


@row_plant("Q1", QUEUE, Ev.ACK)
def an_ack_of_what_is_gone(run: RunRows, queue: Actor, row: Row) -> Places:
    insert(run, queue, row[SEQ], Ev.ACK, peer=row[PEER], a=row[A], b=1)
    yield


@row_plant("Q1", QUEUE, Ev.DELIVER, flag=0)
def a_delivery_of_what_is_unacked(run: RunRows, queue: Actor, row: Row) -> Places:
    insert(run, queue, row[SEQ], Ev.DELIVER, REDELIVERED, a=row[A], b=1)
    yield


def a_first_delivery_without_its_flag(recovery: int, name: str) -> None:
    """Register a plant that takes the flag from the first delivery of a message after a recovery."""

    def change(runs: Runs) -> Places:
        for _, queue in every(runs, QUEUE):
            if queue.find(Ev.QUEUE_RECOVERED, flag=recovery):
                seen: set[int] = set()
                recovered = {row[A] for row in queue.find(Ev.RECOVERED)}
                for row in queue.find(Ev.DELIVER):
                    if row[A] in recovered - seen and row[WHO] & REDELIVERED:
                        row[WHO] &= ~REDELIVERED
                        yield
                    seen.add(row[A])

    change.__name__ = name
    plant("Q4")(change)


a_first_delivery_without_its_flag(DIRTY, "a_message_of_before_a_crash_without_its_flag")
a_first_delivery_without_its_flag(CLEAN, "a_message_delivered_before_a_clean_stop_without_its_flag")


@row_plant("A1", QUEUE, Ev.DROP, pseq=1)
def a_reject_of_more_than_was_delivered_up_to_the_tag(_run: RunRows, queue: Actor, row: Row) -> Places:
    if len(queue.find(Ev.DROP, c=row[C])) == 1:
        row[C] -= 1
        yield


@plant("A2")
def an_ack_of_one_tag_that_settles_more(runs: Runs) -> Places:
    for _, queue in every(runs, QUEUE):
        for one, two in pairwise(queue.rows):
            both = event(one) == event(two) == Ev.ACK and one[C] == two[C] and one[PSEQ]
            if both and all(row[B] == 1 for row in queue.find(Ev.ACK, c=one[C])):
                for row in queue.find(Ev.ACK, c=one[C]):
                    set_flag(row, 0)
                yield


@row_plant("A3", QUEUE, Ev.REQUEUE, flag=RETURNED)
def a_message_that_a_cancelled_consumer_never_took_and_kept(_run: RunRows, queue: Actor, row: Row) -> Places:
    of_it = {Ev.DELIVER, Ev.ACK, Ev.DROP, Ev.REQUEUE}
    later = [other for other in queue.rows if other[SEQ] > row[SEQ]]
    goes_on = any(event(other) == Ev.QI_SYNC for other in later)
    if goes_on and not any(event(other) in of_it and other[A] == row[A] for other in later):
        become(row, Ev.QI_WRITE)
        yield


@row_plant("A3", QUEUE, Ev.CONSUMER_GONE, "A1")
def a_delivery_to_a_consumer_that_is_gone(_run: RunRows, queue: Actor, gone: Row) -> Places:
    for row in queue.find(Ev.DELIVER):
        if row[SEQ] > gone[SEQ]:
            row[PEER] = gone[PEER]
            yield


@plant("C4", "C5")
def a_confirm_that_is_overdue(runs: Runs) -> Places:
    """Of a queue that does not stop cleanly, so that it is not C3."""
    for _, queue in every(runs, QUEUE):
        if not queue.find(Ev.QUEUE_CLOSED):
            for row in queue.find(Ev.CONFIRM, flag=CONFIRM_DURABLE):
                if sum(sync[SEQ] > row[SEQ] for sync in queue.find(Ev.QI_SYNC)) > OVERDUE:
                    become(row, Ev.QI_WRITE)
                    yield


@plant("Q2")
def a_younger_message_that_is_too_much(runs: Runs) -> Places:
    for _, queue in every(runs, QUEUE):
        for one, two in pairwise(row for row in queue.rows if event(row) != Ev.SEND):
            too_much = {flag(one) & ~DEAD_LETTERED, flag(two) & ~DEAD_LETTERED} == {DROP_MAXLEN}
            if event(one) == event(two) == Ev.DROP and too_much and one[B] == two[B] == 1:
                one[A], two[A] = two[A], one[A]
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
    if store.find(Ev.APPEND, a=row[A]):
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


@plant("S5", "C1", "D1", "S3", "S7")
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


@row_plant("E1", STORE, Ev.STORE_CLOSED)
def a_file_that_is_larger_than_its_records(_run: RunRows, store: Actor, row: Row) -> Places:
    """BatchSummary when the store stopped."""
    store.rows[row[SEQ] - 2][C] += 1
    yield


@plant("W1")
def a_thread_that_sends_while_it_waits(runs: Runs) -> Places:
    """The end of its wait comes one row too late."""
    for run in runs:
        for client in run.of("client"):
            for one, two in pairwise(client.rows):
                if (
                    event(one) == Ev.CREDIT_UNBLOCKED
                    and event(two) == Ev.SEND
                    and two[MSG]
                    and one[PEER] == two[PEER]
                ):
                    exchange(one, two)
                    for actor in run.actors:
                        for row in actor.rows:
                            if event(row) in RECEIVES and row[PEER] == client.id and row[PSEQ] == two[SEQ]:
                                row[PSEQ] = one[SEQ]
                    yield


@row_plant("W1", QUEUE, Ev.CREDIT_UNBLOCKED)
def a_queue_that_waits_twice(_run: RunRows, _queue: Actor, row: Row) -> Places:
    become(row, Ev.CREDIT_BLOCKED)
    yield


@plant("W1")
def a_queue_that_goes_on_and_had_not_waited(runs: Runs) -> Places:
    for _, queue in every(runs, QUEUE):
        if queue.find(Ev.CREDIT_UNBLOCKED):
            become(queue.rows[queue.find(Ev.CREDIT_BLOCKED)[0][SEQ] - 1], Ev.QI_WRITE)
            yield


@plant("R2")
def a_row_of_the_dead(runs: Runs) -> Places:
    for run in runs:
        for dead in run.of("QueueProcess"):
            others = [each for each in run.of("QueueProcess") if each.name == dead.name and each.id > dead.id]
            starts = [row for each in others for row in each.find(Ev.ACTOR_START)]
            if starts and flag(dead.rows[-1]) == Reason.KILLED:
                started = starts[0][T]
                dead.rows[-1][T] = started + 20
                insert(run, dead, len(dead.rows) - 1, Ev.QI_WRITE, t=started + 10)
                yield


def every_plant() -> list[list[RunRows]]:
    """One trace for each planted violation."""
    return [planted(plant) for _, plant, _ in PLANTS]


def a_plant_of_each_rule() -> list[list[RunRows]]:
    """One trace for each rule: where it is the engine that is tested, and not the rules."""
    return [planted(plant) for plant in {rule: plant for rule, plant, _ in reversed(PLANTS)}.values()]


def planted(plant: Plant) -> list[RunRows]:
    """A small consistent trace with this plant in it."""
    for steps, seeds in SIZES:
        for seed in range(seeds):
            runs = consistent_trace(seed, steps)
            if plant(runs):
                return runs
    raise AssertionError(f"no consistent trace has a place for {plant.__name__}")


each_plant = pytest.mark.parametrize(
    ("rule", "plant", "implied"), PLANTS, ids=[f"{rule}-{plant.__name__}" for rule, plant, _ in PLANTS]
)
"""A test of every violation: its rule, what plants it, the other rules that it breaks of necessity."""
