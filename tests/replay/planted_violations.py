"""One broken trace for each way of breaking each rule: a consistent trace with the smallest change that does it.

A plant is a function that changes the runs and returns True, or False when this trace has no place for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest

from tests.replay import planted_in_stores  # noqa: F401 - registers its plants
from tests.replay.planting import (
    CLIENT,
    PLANTS,
    QUEUE,
    STORE,
    SUPERVISOR,
    Places,
    Runs,
    covers,
    every,
    exchange,
    having,
    in_place,
    meet,
    more,
    neighbours,
    plant,
    planted,
    row_plant,
)
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
    NO_ACK,
    OVERFLOW_DROP_HEAD,
    OVERFLOW_REJECT,
    PERSISTENT,
    REDELIVERED,
    RETURNED,
    WRITTEN,
    Ev,
    QueueLimits,
    Reason,
)

in_place("C1", "a_persistent_message_confirmed_at_once", QUEUE, Ev.CONFIRM, where=having(CONFIRM_DURABLE), flag=CONFIRM_TRANSIENT)  # fmt: skip
in_place("Q3", "a_message_that_expires_too_soon", QUEUE, Ev.DROP, where=lambda row: flag(row) & ~DEAD_LETTERED == DROP_EXPIRED, c=1)  # fmt: skip
in_place("Q5", "a_message_that_is_stuck", QUEUE, Ev.QUEUE_RESTS, where=lambda row: row[B] == 0, b=1)
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


@row_plant("A1", QUEUE, Ev.ACK, flag=0, b=1)
def an_ack_of_another_tag(_run: RunRows, queue: Actor, row: Row) -> Places:
    """No other row names that tag: two of one tag are A2's."""
    settling = [each for what in (Ev.ACK, Ev.DROP, Ev.REQUEUE) for each in queue.find(what)]
    if row[C] and not any(each[C] <= row[C] + 1 < each[C] + each[B] for each in settling):
        row[C] += 1
        yield


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
    if receive[PSEQ] < len(sender.rows) and event(sender.rows[receive[PSEQ]]) != Ev.SEND:
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


@row_plant("C1", STORE, Ev.STORE_CONFIRM, flag=WRITTEN)
def a_report_that_no_store_made(run: RunRows, _store: Actor, row: Row) -> Places:
    """Its queue lived to take it."""
    if run.actors[row[PEER] - 1].find(Ev.ON_DISK, flag=WRITTEN, msg=row[MSG]):
        row[PEER] = 9999
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


IN_FORCE = 1 << QueueLimits.column("in_force").shift
"""Beside what a full queue does, in the flag of QUEUE_LIMITS."""


def successive(runs: Runs) -> Iterator[tuple[Actor, RunRows, Actor]]:
    """A queue's process, and the next one of its name with its run."""
    for name in ("queue:a", "queue:b"):
        lives = [(run, actor) for run, actor in every(runs, QUEUE) if actor.name == name]
        for (_, before), (run, after) in pairwise(lives):
            yield before, run, after


def recover_again(run: RunRows, queue: Actor, id_: int) -> Places:
    """Insert the recovery of a message that is gone, and its purge, unless a new message has its sequence id."""
    if not any(covers(row, id_) for row in queue.find(Ev.PUBLISH)):
        insert(run, queue, 1, Ev.RECOVERED, a=id_, b=1)
        insert(run, queue, 2, Ev.DROP, DROP_PURGED, a=id_, b=1)
        yield


@plant("C2", "E1", "S1", "Q7")
def a_confirmed_message_that_is_lost(runs: Runs) -> Places:
    for before, _run, after in successive(runs):
        safe = {row[A] for row in before.find(Ev.CONFIRM, flag=CONFIRM_DURABLE)}
        safe -= {row[A] + i for row in before.find(Ev.PUBLISH) if row[WHO] & IN_STORE for i in range(row[B])}
        touches = [row for row in after.rows if event(row) in {Ev.DELIVER, Ev.DROP}]
        touches += [row for row in before.rows if event(row) in {Ev.ACK, Ev.DROP}]
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
                yield from recover_again(run, after, ack[A])


@plant("C2", "E1")
def a_transient_message_that_comes_back(runs: Runs) -> Places:
    for before, run, after in successive(runs):
        for publish in before.find(Ev.PUBLISH):
            gone = {row[A] for row in before.rows if event(row) in {Ev.ACK, Ev.DROP}}
            if not publish[WHO] & PERSISTENT and publish[A] not in gone:
                yield from recover_again(run, after, publish[A])


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
def a_queue_that_an_exchange_misses(run: RunRows, client: Actor, row: Row) -> Places:
    """Both queues were bound before the row after which it chose."""
    since = row[PSEQ] or max((each[T] for each in client.find(Ev.ROUTED) if each[T] < row[T]), default=0)
    bound = [each for actor in run.actors for each in actor.find(Ev.BOUND, a=row[A]) if each[T] < since]
    if len({each[B] for each in bound}) == row[B]:
        row[B] = 1
        yield


@row_plant("X1", CLIENT, Ev.UNROUTED)
def a_publish_that_is_called_unroutable(run: RunRows, _client: Actor, row: Row) -> Places:
    """To an exchange with a binding that was there before the row after which it was routed."""
    for bound in (each for actor in run.actors for each in actor.find(Ev.BOUND) if each[T] < row[PSEQ]):
        row[A] = bound[A]
        yield


def limited(runs: Runs) -> Iterator[tuple[Actor, Row]]:
    """Queues that tell limits once, which are in force then."""
    for _, queue in every(runs, QUEUE):
        told = queue.find(Ev.QUEUE_LIMITS, flag=OVERFLOW_DROP_HEAD | IN_FORCE)
        if len(told) == 1 == len(queue.find(Ev.QUEUE_LIMITS)) and not queue.find(Ev.DROP, flag=DROP_LOST):
            yield queue, told[0]


@plant("Q7")
def a_queue_that_drops_more_than_it_has_to(runs: Runs) -> Places:
    for queue, told in limited(runs):
        if any(flag(row) & ~DEAD_LETTERED == DROP_MAXLEN for row in queue.find(Ev.DROP)):
            told[A] += 1
            yield


@plant("Q7")
def a_queue_that_is_longer_than_its_limit(runs: Runs) -> Places:
    for queue, told in limited(runs):
        for rest in queue.find(Ev.QUEUE_RESTS):
            told[A] = rest[A] - 1
            yield


@plant("Q7")
def a_publish_that_should_have_been_refused(runs: Runs) -> Places:
    for queue, told in limited(runs):
        if queue.find(Ev.PUBLISH):
            set_flag(told, OVERFLOW_REJECT)
            told[A] = 0
            yield


@row_plant("Q8", QUEUE, Ev.UNROUTED)
def a_dead_letter_that_is_never_sent(_run: RunRows, queue: Actor, row: Row) -> Places:
    if any(sync[SEQ] > row[SEQ] for sync in queue.find(Ev.QI_SYNC)):
        become(row, Ev.QI_WRITE)
        yield


@row_plant("Q8", QUEUE, Ev.DROP)
def a_dead_letter_that_is_sent_twice(run: RunRows, queue: Actor, row: Row) -> Places:
    """Before it is owed; to nobody that would have to receive it."""
    before = [each for each in queue.find(Ev.DROP) if each[SEQ] < row[SEQ] and flag(each) & DEAD_LETTERED]
    if flag(row) & DEAD_LETTERED and not before:
        insert(run, queue, row[SEQ] - 1, Ev.SEND, msg=1 << 60, peer=queue.id, b=1)
        yield


@plant("Q1")
def a_delivery_out_of_order(runs: Runs) -> Places:
    for one, two in neighbours(runs, QUEUE):
        if event(one) == event(two) == Ev.DELIVER and one[A] < two[A]:
            exchange(one, two)
            yield


@row_plant("Q1", QUEUE, Ev.DELIVER, b=1)
def a_second_delivery_without_its_flag(_run: RunRows, queue: Actor, row: Row) -> Places:
    first = next(each for each in queue.find(Ev.DELIVER) if covers(each, row[A]))
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
                    its = {*range(row[A], row[A] + row[B])}
                    if its <= recovered - seen and row[WHO] & REDELIVERED:
                        row[WHO] &= ~REDELIVERED
                        yield
                    seen |= its

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


@row_plant("A4", QUEUE, Ev.CONSUMER_ADDED)
def a_consumer_with_more_than_its_prefetch_count(_run: RunRows, queue: Actor, added: Row) -> Places:
    several = [
        row for row in queue.find(Ev.DELIVER, peer=added[PEER]) if row[B] > 1 and not flag(row) & NO_ACK
    ]
    if added[A] > 1 and several:
        added[A] = 1
        yield


@row_plant("A3", QUEUE, Ev.REQUEUE, flag=RETURNED)
def a_message_that_a_cancelled_consumer_never_took_and_kept(_run: RunRows, queue: Actor, row: Row) -> Places:
    of_it = {Ev.DELIVER, Ev.ACK, Ev.DROP, Ev.REQUEUE}
    later = [other for other in queue.rows if other[SEQ] > row[SEQ]]
    goes_on = any(event(other) == Ev.QI_SYNC for other in later)
    if goes_on and not any(event(other) in of_it and meet(other, row) for other in later):
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
                            sender = row[PEER] or actor.id
                            if event(row) in RECEIVES and sender == client.id and row[PSEQ] == two[SEQ]:
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


each_plant = pytest.mark.parametrize(
    ("rule", "plant", "implied"), PLANTS, ids=[f"{rule}-{plant.__name__}" for rule, plant, _ in PLANTS]
)
"""A test of every violation: its rule, what plants it, the other rules that it breaks of necessity."""
