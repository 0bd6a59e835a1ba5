"""Mailboxes that are closed and opened again, interleaved with senders line by line; test_undelivered.py runs it."""

import sys
import threading

import pytest

from tests.support.schedulers import LIMIT
from warrenmq.runtime import Fence, Threads
from warrenmq.runtime.mailbox import Mailbox
from warrenmq.runtime.messages import Exit


def stopped_at_line(number, function, meanwhile):
    """Call a function in a thread that is held up before its n-th line while `meanwhile` runs in another, to its end or until it
    waits for the first one; returns what both return and whether there was such a line.
    """
    lines, answers, other_came = 0, {}, threading.Event()

    def note(name, what):
        answers[name] = what()
        other_came.set()

    def other():
        note("other", meanwhile)

    threads = [threading.Thread(target=other)]

    def trace(frame, event, _argument):
        nonlocal lines
        if event == "line" and "runtime" in frame.f_code.co_filename:
            lines += 1
            if lines == number:
                threads[0].start()
                other_came.wait(0.02)
        return trace

    def held_up():
        sys.settrace(trace)
        try:
            answers["first"] = function()
        finally:
            sys.settrace(None)

    first = threading.Thread(target=held_up)
    first.start()
    first.join(LIMIT)
    if came := threads[0].ident is not None:
        threads[0].join(LIMIT)
    return answers.get("first"), answers.get("other"), came


def look_into(inbox):
    """All mail that its owner would get."""
    mail = []
    while isinstance(message := inbox.take(), int):
        mail.append(message)
    return mail


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("comes_late", ["sender", "owner"])
@pytest.mark.parametrize("mail", [(), (1,)])
def test_a_message_that_meets_a_mailbox_which_closes_if_it_is_empty_is_with_one_of_both(
    mail, comes_late, is_open
):
    """A message that comes to a mailbox which is opened again has not come too late, whatever line either of them is at."""
    for number in range(1, 100):
        lost = []
        inbox = Mailbox(Threads(), Fence(), lost.append, flushes=True)
        for message in mail:
            inbox.send(message)

        def send(inbox=inbox):
            return (inbox.send_open if is_open else inbox.send)(2)

        def close(inbox=inbox):
            return inbox.close_empty("asleep")

        if comes_late == "owner":
            sent, closed, came = stopped_at_line(number, send, close)
        else:
            closed, sent, came = stopped_at_line(number, close, send)
        if not came:
            break
        if closed:
            assert (sent, inbox.gives_back) == (False, True), number
        else:
            assert (sent, inbox.gives_back, look_into(inbox)) == (True, False, [*mail, 2]), number
        assert lost == []
    assert number > 3


def test_an_order_to_stop_reaches_a_mailbox_that_is_opened_again():
    for number in range(1, 100):
        inbox = Mailbox(Threads(), Fence(), None, flushes=True)
        inbox.send(1)
        order = Exit(None, "shutdown")
        closed, _, came = stopped_at_line(
            number,
            lambda inbox=inbox: inbox.close_empty("asleep"),
            lambda inbox=inbox, order=order: inbox.signal(order),
        )
        if not came:
            break
        assert not closed
        assert inbox.take() is order, number
    assert number > 3
