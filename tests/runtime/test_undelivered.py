"""A cast is handled exactly once, or comes back exactly once, however it races with the end of its receiver."""

import sys
import threading
from collections import Counter
from types import MappingProxyType

import pytest

from tests.support.schedulers import LIMIT, Worker, busy, crash, end_of
from warrenmq.runtime import Fence, Server, Stop, Threads
from warrenmq.runtime.inbox import CLOSED, WAKE
from warrenmq.runtime.mailbox import Mailbox
from warrenmq.runtime.messages import Exit


class Keeper(Server):
    """Counts what it handles, and what it never will."""

    def init(self, tally):
        self.tally = tally

    def handle_cast(self, message):
        if message == "leave":
            raise Stop
        if message == "fall":
            raise RuntimeError
        if callable(message):
            message(self)
        else:
            self.tally.handled.append(message)

    def undelivered(self, message):
        self.tally.returned.append(message)


class Ranking(Keeper):
    ranks = MappingProxyType({str: 9})


class Tally:
    def __init__(self):
        self.handled, self.returned = [], []


@pytest.mark.parametrize("kind", [Keeper, Ranking])
@pytest.mark.parametrize("end", ["leave", "fall"])
def test_mail_left_in_the_mailbox_and_mail_for_the_dead_comes_back(runtime, kind, end):
    tally = Tally()
    keeper = runtime.start(kind, tally)
    gate = busy(runtime, keeper)
    runtime.cast(keeper, 3)
    runtime.cast(keeper, end)
    assert all(runtime.cast(keeper, number) for number in (6, 9))
    gate.set()
    end_of(runtime, keeper)
    assert runtime.cast(keeper, 12) is False
    assert tally.handled + tally.returned == [3, 6, 9, 12]
    assert tally.handled == ([] if kind is Ranking else [3]), "the order to end has the highest rank"


def test_signals_calls_and_timers_do_not_count_as_undelivered_mail(runtime):
    tally = Tally()
    keeper, caller = runtime.start(Keeper, tally), runtime.start(Worker)
    gate = busy(runtime, keeper, first=lambda server: server.send_after(0.0, "tick"))
    runtime.cast(keeper, "leave")
    runtime.cast(caller, lambda server: server.call(keeper, "request", timeout=None))
    gate.set()
    end_of(runtime, caller)
    assert keeper.actor_inbox.reason == "normal"
    assert tally.returned == []


def test_a_static_hook_works_and_one_that_fails_harms_no_other_mail(runtime, logs):
    returned = []

    class Static(Server):
        @staticmethod
        def undelivered(message):
            returned.append(message)
            if message == 1:
                raise LookupError

    ref = runtime.start(Static)
    runtime.kill(ref)
    for number in range(3):
        assert not runtime.cast(ref, number)
    assert returned == [0, 1, 2]
    assert [line["event"] for line in logs] == ["undelivered failed"]


def test_a_hook_that_sends_after_the_end_does_no_harm(runtime, logs):
    class Chatty(Worker):
        def undelivered(self, message):
            self.cast(self.actor_ref, message)

    chatty, told = runtime.start(Chatty), runtime.channel()
    chatty.actor_inbox.on_close(told.put)
    gate = busy(runtime, chatty)
    runtime.cast(chatty, crash)
    runtime.cast(chatty, "left")
    gate.set()
    assert isinstance(told.get(timeout=LIMIT), RuntimeError)
    assert [line["event"] for line in logs] == ["actor crashed", "undelivered failed"]


def test_mail_of_a_killed_actor_comes_back_though_its_thread_may_never_wake(runtime):
    for kind in (Keeper, Ranking):
        tally = Tally()
        keeper = runtime.start(kind, tally)
        gate = busy(runtime, keeper)
        for number in range(10):
            runtime.cast(keeper, number)
        runtime.kill(keeper)
        assert Counter(tally.returned) == Counter(range(10))
        gate.set()


class Late:
    """A channel whose next put comes too late: just before it, the receiver is killed."""

    def __init__(self, channel, kill):
        self.channel, self.kill = channel, kill

    def put(self, item):
        if (kill := self.kill) is not None:
            self.kill = None
            kill()
        self.channel.put(item)

    def __getattr__(self, name):
        return getattr(self.channel, name)


def test_a_cast_that_lands_after_the_last_look_into_the_mailbox_comes_back(runtime):
    tally = Tally()
    keeper = runtime.start(Keeper, tally)
    gate = busy(runtime, keeper)
    inbox = keeper.actor_inbox
    inbox.incoming = Late(inbox.incoming, lambda: runtime.kill(keeper))
    assert runtime.cast(keeper, 1) is False
    assert tally.returned == [1]
    gate.set()


def test_a_late_sender_leaves_the_owner_what_is_to_wake_it():
    """Else an owner that was about to park when it was killed would sleep for ever."""
    runtime = Threads()
    inbox = Mailbox(runtime, Fence(), None, flushes=True)
    inbox.incoming = Late(inbox.incoming, inbox.kill)
    assert inbox.send("late") is False
    assert inbox.incoming.get_nowait() is WAKE, "what a parked owner would get"
    assert inbox.get() is CLOSED


def race(kind, how, senders=3, each=200):
    """Send from several threads while the receiver ends; what became of each message."""
    runtime = Threads()
    tally = Tally()
    keeper = runtime.start(kind, tally)
    start = threading.Barrier(senders + 1)
    refused = []

    def send(first):
        start.wait()
        refused.extend(number for number in range(first, first + each) if not runtime.cast(keeper, number))

    threads = [threading.Thread(target=send, args=(index * each,)) for index in range(senders)]
    for thread in threads:
        thread.start()
    start.wait()
    if how == "kill":
        runtime.kill(keeper)
    else:
        runtime.cast(keeper, how)
    for thread in threads:
        thread.join(LIMIT)
    end_of(runtime, keeper)
    runtime.shutdown()
    return tally, refused, senders * each


@pytest.mark.parametrize("kind", [Keeper, Ranking])
@pytest.mark.parametrize("how", ["leave", "fall", "kill"])
def test_each_cast_of_a_race_is_handled_or_comes_back_exactly_once(kind, how):
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(15):
            tally, refused, sent = race(kind, how)
            assert Counter(tally.handled + tally.returned) == Counter(range(sent))
            assert set(refused) <= set(tally.returned)
    finally:
        sys.setswitchinterval(0.005)


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
