"""The answers to publishers: put together as RabbitMQ does, and each number answered once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warrenmq.amqp.channel.confirms import ChannelConfirm, Confirms, coalesce
from warrenmq.amqp.channel.messages import Settled
from warrenmq.queue.messages import DELETED


@pytest.mark.parametrize(
    ("runs", "negatives", "smallest", "answers"),
    [
        ([(1, 3), (5, 1)], [], 4, [(3, True), (5, False)]),
        ([(1, 1), (3, 1)], [(2, 1)], None, [(1, True), (3, False)]),
        ([(2, 1)], [(1, 1), (3, 1)], None, [(2, False)]),
        ([(1, 9)], [], None, [(9, True)]),
        ([(2, 1)], [], 1, [(2, False)]),
        ([(4, 1)], [], None, [(4, True)]),
        ([(5, 1), (1, 3)], [], None, [(5, True)]),
        ([(1, 4)], [(3, 1)], None, [(2, True), (3, False), (4, False)]),
    ],
)
def test_answers_are_put_together(runs, negatives, smallest, answers):
    assert coalesce(runs, negatives, smallest) == answers


@pytest.mark.parametrize(
    ("confirmed", "rejected", "unconfirmed", "acks", "nacks"),
    [
        ([1, 2, 3, 5], [], [4], [(3, True), (5, False)], []),
        ([1, 3], [2], [], [(1, True), (3, False)], [(2, False)]),
        (range(1, 10), [], [], [(9, True)], []),
        ([7], [], [], [(7, False)], []),
        ([], [7], [], [], [(7, True)]),
    ],
)
def test_worked_trace_8(confirmed, rejected, unconfirmed, acks, nacks):
    confirms = Confirms()
    for seqno in sorted([*confirmed, *rejected, *unconfirmed]):
        confirms.expect(seqno, 1)
    for seqno in confirmed:
        confirms.settle(Settled(seqno, 1, ok=True))
    for seqno in rejected:
        confirms.settle(Settled(seqno, 1, ok=False))
    assert confirms.take_answers() == (acks, nacks)
    assert confirms.waiting is bool(unconfirmed)


def test_a_run_is_confirmed_by_the_last_of_its_queues():
    sent = []
    confirm = ChannelConfirm(sent.append, 5, 3, 2)
    confirm.confirm()
    assert sent == []
    confirm.confirm()
    assert sent == [Settled(5, 3, ok=True)]


def test_a_queue_that_refuses_settles_a_run_and_the_others_have_no_say():
    sent = []
    confirm = ChannelConfirm(sent.append, 5, 3, 3)
    confirm.confirm()
    confirm.nack("the queue is full")
    confirm.confirm()
    assert sent == [Settled(5, 3, ok=False)]


@given(st.data())
def test_every_number_is_answered_once_and_multiple_covers_no_other_answer(data):
    confirms = Confirms()
    open_runs, expected, answers = [], {}, {}

    def answer_up_to(seqno, multiple, kind):
        covered = [seqno] if not multiple else [each for each in range(1, seqno + 1) if each not in answers]
        for each in covered:
            assert each not in answers
            answers[each] = kind

    for _ in range(data.draw(st.integers(1, 20))):
        step = data.draw(st.sampled_from(["publish", "unroutable", "settle", "flush"]))
        if step in ("publish", "unroutable"):
            count = data.draw(st.integers(1, 4))
            first = confirms.take_seqnos(count)
            if step == "publish":
                confirms.expect(first, count)
                open_runs.append((first, count))
            else:
                confirms.unroutable(first, count)
                expected.update(dict.fromkeys(range(first, first + count), True))
        elif step == "settle" and open_runs:
            first, count = open_runs.pop(data.draw(st.integers(0, len(open_runs) - 1)))
            ok = data.draw(st.booleans())
            confirms.settle(Settled(first, count, ok))
            confirms.settle(Settled(first, count, ok=False))  # a second one changes nothing
            expected.update(dict.fromkeys(range(first, first + count), ok))
        elif step == "flush":
            acks, nacks = confirms.take_answers()
            for seqno, multiple in acks:
                answer_up_to(seqno, multiple, True)
            for seqno, multiple in nacks:
                answer_up_to(seqno, multiple, False)
            assert answers == expected


def test_a_deleted_queue_has_nothing_against_a_run():
    sent = []
    confirm = ChannelConfirm(sent.append, 5, 3, 2)
    confirm.nack(DELETED)
    assert sent == []
    confirm.confirm()
    assert sent == [Settled(5, 3, ok=True)]


def test_a_queue_that_answers_each_message_of_a_run_has_answered_it_with_the_last():
    sent = []
    first, *others = ChannelConfirm(sent.append, 5, 3, 1).parts(3)
    for part in (first, others[0]):
        part.confirm()
        assert sent == []
    others[1].confirm()
    assert sent == [Settled(5, 3, ok=True)]
