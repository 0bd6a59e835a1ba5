"""The pool: never two runners, no lost wake-up, no actor held up; and waiting threads that run actors.

Where a test is about a lost wake-up the wheel's tick is a minute, since it would find the actor that was forgotten.
"""

import inspect
import signal
import sys
import threading
import time
from collections import deque
from contextvars import ContextVar
from queue import SimpleQueue
from types import MappingProxyType
from typing import NamedTuple

import pytest
from pykka import ActorRef

from tests.support.schedulers import LIMIT, Worker, busy, do, take, until
from warrenmq import signals
from warrenmq.actors.sending.confirms import Confirm
from warrenmq.errors import ResourceError
from warrenmq.runtime import NO_REPLY, Pool, Server, helper, waiting, wheel, workers
from warrenmq.runtime.waiting import Channel, Event
from warrenmq.seams.blocking import THIS_THREAD

MINUTE_NS = 60_000_000_000
RUN_TWICE = "a pooled actor raised outside of its callbacks"
"""Logged when two threads are in one actor: its Context can be entered once."""


@pytest.fixture
def pool(logs):
    """Its tick looks for nothing within a test's time."""
    made = Pool(tick_ns=MINUTE_NS)
    yield made
    made.shutdown(1.0)
    assert RUN_TWICE not in [line["event"] for line in logs]


@pytest.fixture
def ticking(logs):
    made = Pool()
    yield made
    made.shutdown(1.0)
    assert RUN_TWICE not in [line["event"] for line in logs]


@pytest.fixture
def _restless():
    """Threads change at nearly every line."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


class Helpable(Worker):
    helpable = True


class Ledger(Server):
    """Notes what it handles; finds a second thread in it at the same time."""

    helpable = True

    def init(self, peers=()):
        self.peers = peers
        self.handled = []
        self.inside = 0
        self.torn = 0
        self.unflushed = 0

    def handle_cast(self, message):
        self._enter()
        self.handled.append(message)
        self.unflushed += 1
        for peer in self.peers:
            self.cast(peer, message)
        self._leave()

    def handle_call(self, request, sender):
        self._enter()
        self._leave()
        return list(self.handled), self.torn, self.unflushed

    def mailbox_empty(self):
        self._enter()
        self.unflushed = 0
        self._leave()

    def _enter(self):
        self.torn += self.inside != 0
        self.inside += 1

    def _leave(self):
        self.torn += self.inside != 1
        self.inside -= 1


class Ranked(Ledger):
    ranks = MappingProxyType({frozenset: 1})  # of what it never gets


@pytest.mark.usefixtures("_restless")
@pytest.mark.parametrize("kind", [Ledger, Ranked])
def test_each_message_is_handled_once_in_its_senders_order_by_one_thread_at_a_time(pool, kind):
    """Senders that wait now and then run actors themselves, beside the workers."""
    ends = [pool.start(kind) for _ in range(3)]
    fronts = [pool.start(kind, peers=tuple(ends)) for _ in range(3)]
    senders, each, wrong = 6, 400, []

    def send(sender):
        for number in range(each):
            front = fronts[(sender + number) % len(fronts)]
            pool.cast(front, (sender, number))
            if number % (sender + 1) == 0:
                handled, _torn, _ = pool.call(front, "look", LIMIT)
                wrong.extend([] if (sender, number) in handled else [(sender, number)])

    threads = [threading.Thread(target=send, args=(sender,)) for sender in range(senders)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    assert not any(thread.is_alive() for thread in threads)
    assert wrong == []
    sent = sorted((sender, number) for sender in range(senders) for number in range(each))
    for front in fronts:
        pool.call(front, "look", LIMIT)
    until(pool, lambda: not any(one.mailbox for one in pool.living()))
    looks = [pool.call(one, "look", LIMIT) for one in (*ends, *fronts)]
    assert sum(torn for _, torn, _ in looks) == 0
    for handled, _, _ in looks[:3]:
        assert sorted(handled) == sent
    for handled, _, _ in looks[3:]:
        for sender in range(senders):
            numbers = [number for who, number in handled if who == sender]
            assert numbers == sorted(numbers)
    for ref in (*ends, *fronts):
        pool.cast(ref, "last")
        until(pool, lambda ref=ref: ref._actor_weakref().unflushed == 0)


@pytest.mark.usefixtures("_restless")
def test_a_ball_between_two_actors_never_gets_lost(pool):
    """Each hop is a wake-up: one that were lost would end the game."""
    done, hops = pool.event(), 20_000

    class Player(Server):
        helpable = True
        other = None

        def handle_cast(self, message):
            if message == hops:
                done.set()
            else:
                self.runtime.cast(self.other, message + 1)

    one, two = pool.start(Player), pool.start(Player)
    one._actor_weakref().other, two._actor_weakref().other = two, one
    pool.cast(one, 0)
    assert done.wait(LIMIT)


class Patient(Helpable):
    """Answers when its mailbox is empty, and finds mail then that came meanwhile."""

    def init(self, notes):
        super().init(notes)
        self.left, self.asked = [], []

    def handle_cast(self, message):
        self.note(message)

    def handle_call(self, request, sender):
        self.left, self.asked = request, [sender]
        return NO_REPLY

    def mailbox_empty(self):
        while self.left:
            self.cast(self.actor_ref, self.left.pop(0))
        while self.asked:
            self.asked.pop().reply(None)

    def can_wait(self, kinds):
        return kinds == {int}


@pytest.fixture
def patient(pool):
    """This thread alone has called it, so that it is expected to wait for the next call and to run it."""
    made = pool.start(Patient, pool.channel())
    for _ in range(helper.ALONE + 2):
        pool.call(made, [], LIMIT)
        until(pool, lambda: not pool._workers.computing)
    return made


def notes_of(patient):
    return patient._actor_weakref().notes


def test_mail_that_can_wait_is_left_to_the_thread_that_comes_next(pool, patient):
    pool.call(patient, [1, 2], LIMIT)
    until(pool, lambda: not pool._workers.computing)
    assert patient.actor_inbox.length() == 2
    pool.call(patient, [], LIMIT)
    take(notes_of(patient), 1)
    take(notes_of(patient), 2)


def test_mail_that_can_wait_waits_for_a_tick(pool, patient):
    pool.call(patient, [1], LIMIT)
    assert patient.actor_inbox.length() == 1
    pool._workers.watch()
    take(notes_of(patient), 1)


@pytest.mark.parametrize("mail", [["text"], [1, "text"]])
def test_mail_that_cannot_wait_is_handled_at_once(pool, patient, mail):
    pool.call(patient, [*mail], LIMIT)
    for message in mail:
        take(notes_of(patient), message)


@pytest.fixture
def called(pool, monkeypatch):
    """Has an item for each time that a worker was called."""
    times = []
    call_worker = pool._workers.call_worker
    monkeypatch.setattr(pool._workers, "call_worker", lambda: times.append(1) or call_worker())
    return times


def test_a_thread_that_soon_waits_calls_no_worker(pool, patient, called):
    for _ in range(10):
        pool.cast(patient, 1)
        pool.cast(patient, "text")
        pool.call(patient, [], LIMIT)
    assert not called
    for message in [1, "text"] * 10:
        take(notes_of(patient), message)


def test_a_thread_that_waits_for_nothing_calls_a_worker(pool, patient, called):
    for number in range(helper.SOON + 1):
        assert not called
        pool.cast(patient, f"text {number}")
    assert called
    pool.call(patient, [], LIMIT)
    pool.cast(patient, "more")  # it is expected to wait again, since it did
    pool.call(patient, [], LIMIT)
    assert len(called) == 1


class Prompt(Patient):
    """Answers at once, and would find nothing to do when its mailbox is empty."""

    def handle_call(self, request, sender):
        return request


def test_an_empty_mailbox_is_left_to_the_thread_that_comes_next_while_it_is_alone(pool, called):
    prompt = pool.start(Prompt, pool.channel())
    prompt._actor_weakref().can_wait = lambda kinds: not kinds
    until(pool, lambda: not pool._workers.computing)
    for _ in range(helper.ALONE + 2):
        pool.call(prompt, [], LIMIT)
        until(pool, lambda: not pool._workers.computing)
    called.clear()
    for _ in range(10):
        pool.call(prompt, [], LIMIT)
    assert not called
    other = threading.Thread(target=lambda: [pool.call(prompt, [], LIMIT) for _ in range(2)])
    other.start()
    other.join(LIMIT)
    pool.call(prompt, [], LIMIT)
    assert called


def test_mail_that_cannot_wait_takes_along_what_could(pool, patient):
    pool.call(patient, [1], LIMIT)
    other = threading.Thread(target=pool.cast, args=(patient, "text"))
    other.start()
    other.join(LIMIT)
    take(notes_of(patient), 1)
    take(notes_of(patient), "text")


def test_mail_that_comes_after_the_last_look_and_before_the_actor_is_let_go_is_handled(pool):
    """The sender finds the actor claimed and calls no one: its runner has to look once more."""
    notes = pool.channel()
    worker = pool.start(Worker, notes)
    inbox = worker.actor_inbox
    once, next_timer = [1], inbox.next_timer

    def late():
        if once:
            once.pop()
            inbox.send(lambda server: server.note("late"))
        return next_timer()

    inbox.next_timer = late
    pool.cast(worker, "wake up")
    take(notes, "late")


def test_mail_that_comes_between_the_look_and_the_next_line_is_handled(pool):
    """By then the actor is let go, so that its sender sees to it."""
    notes = pool.channel()
    worker = pool.start(Worker, notes)
    inbox = worker.actor_inbox
    once, has_mail = [1], inbox.has_mail

    def early():
        found = has_mail()
        if once and not found:
            once.pop()
            inbox.send(lambda server: server.note("early"))
        return found

    inbox.has_mail = early
    pool.cast(worker, "wake up")
    take(notes, "early")


def test_mail_that_comes_when_a_worker_is_about_to_park_is_handled(pool):
    """Its sender still counts it among those that compute, and calls no one."""
    notes = pool.channel()
    worker = pool.start(Worker, notes)
    once = [1]

    class Computing(set):
        def discard(self, member):
            if once:
                once.pop()
                worker.actor_inbox.send(lambda server: server.note("late"))
            super().discard(member)

    until(pool, lambda: not pool._workers.computing)
    pool._workers.computing = Computing()
    pool.cast(worker, "wake up")
    take(notes, "late")


def test_an_actor_that_runs_is_run_by_no_other_thread(ticking):
    """A worker is free, and its mail comes while it is in the middle of a message."""
    ledger = ticking.start(Worker)
    inside, gate, second = ticking.event(), threading.Event(), ticking.event()

    def wait(_server):
        inside.set()
        gate.wait(LIMIT)

    ticking.cast(ledger, wait)
    assert inside.wait(LIMIT)
    ticking.cast(ledger, lambda _server: second.set())
    other = ticking.start(Worker)
    for _ in range(20):
        ticking.call(other, "look", LIMIT)
    assert not second.is_set()
    gate.set()
    assert second.wait(LIMIT)


def test_an_actor_that_blocks_unannounced_holds_the_others_up_for_a_tick_and_is_named(ticking):
    stuck, other = ticking.start(Worker, name="stuck"), ticking.start(Worker)
    gate, inside = threading.Event(), threading.Event()

    def block(_server):
        inside.set()
        gate.wait(LIMIT)

    ticking.cast(stuck, block)
    assert inside.wait(LIMIT)
    assert ticking.call(other, do(lambda _server: "served"), LIMIT) == "served"
    until(ticking, lambda: ticking.stats().stuck == ("stuck",))
    assert ticking.stuck() == ("stuck",)
    gate.set()
    until(ticking, lambda: ticking.stats().stuck == ())


class Answering(NamedTuple):
    """An actor, another one that stands in the line while it answers, and a thread that sleeps until it has answered."""

    pool: Pool
    notes: Channel
    asked: ActorRef
    other: ActorRef
    answer: Event
    waiting: threading.Thread

    def run(self, then=None):
        """Have it answer and, when it has told the other one to compute for a moment, do something more."""

        def ask(server):
            server.cast(self.other, lambda other: (time.sleep(0.05), other.note("other")))
            self.answer.set()
            if then is not None:
                then(server)

        self.pool.cast(self.asked, ask)

    def order(self):
        """The order in which the thread and the other one went on."""
        return [self.notes.get(timeout=LIMIT)[0] for _ in range(2)]


@pytest.fixture(params=["pool"])
def answering(request, monkeypatch):
    pool = request.getfixturevalue(request.param)
    if request.param == "pool":
        # on a busy machine the wheel's first looks come late, and find the worker in the middle of its slice
        monkeypatch.setattr(pool._workers, "watch", lambda: None)
    notes, answer = pool.channel(), pool.event()
    asked, other = pool.start(Worker), pool.start(Worker)
    other._actor_weakref().notes = notes
    waiting = threading.Thread(target=lambda: (answer.wait(LIMIT), notes.put(("woken",))))
    waiting.start()
    until(pool, lambda: answer.bells and not pool._workers.computing)
    yield Answering(pool, notes, asked, other, answer, waiting)
    waiting.join(LIMIT)


def test_a_worker_that_has_other_actors_to_run_puts_off_waking_a_thread(answering, monkeypatch):
    monkeypatch.setattr(workers, "LATE", 60.0)
    answering.run()
    assert answering.order() == ["other", "woken"]


def test_a_thread_is_woken_between_two_actors_when_it_was_put_off_for_long(answering, monkeypatch):
    monkeypatch.setattr(workers, "LATE", 0.0)
    answering.run()
    assert answering.order() == ["woken", "other"]


@pytest.mark.parametrize("ends", ["blocks", "pauses", "waits"])
def test_a_worker_wakes_whom_it_put_off_before_it_stands_still(answering, monkeypatch, ends):
    monkeypatch.setattr(workers, "LATE", 60.0)
    gate, event = threading.Event(), answering.pool.event()

    def stand_still(server):
        if ends == "blocks":
            with THIS_THREAD.blocking:
                gate.wait(2 * LIMIT)
        elif ends == "pauses":
            server.runtime.pause()
            gate.wait(2 * LIMIT)
        else:
            event.wait(LIMIT)

    answering.run(stand_still)
    answering.waiting.join(LIMIT)
    assert not answering.waiting.is_alive()
    gate.set()
    event.set()
    assert sorted(answering.order()) == ["other", "woken"]


@pytest.mark.parametrize("answering", ["ticking"], indirect=True)
def test_the_wheel_wakes_whom_a_worker_put_off_that_stands_still_unannounced(answering, monkeypatch):
    monkeypatch.setattr(workers, "LATE", 60.0)
    gate = threading.Event()
    answering.run(lambda _server: gate.wait(2 * LIMIT))
    answering.waiting.join(LIMIT)
    assert not answering.waiting.is_alive()
    gate.set()


def test_an_actor_that_says_that_it_blocks_holds_nobody_up(pool):
    slow, other = pool.start(Worker), pool.start(Worker)
    gate, inside = threading.Event(), threading.Event()

    def block(_server):
        with THIS_THREAD.blocking:
            inside.set()
            gate.wait(LIMIT)

    pool.cast(slow, block)
    assert inside.wait(LIMIT)
    assert pool.call(other, do(lambda _server: "served"), LIMIT) == "served"
    gate.set()


def test_while_a_worker_blocks_another_one_runs_what_it_left_in_the_line(pool, monkeypatch):
    monkeypatch.setattr(workers, "SIZE", 1)
    slow, other = pool.start(Worker), pool.start(Worker)
    gate, served = threading.Event(), threading.Event()

    def block(server):
        server.cast(other, lambda _server: served.set())
        with THIS_THREAD.blocking:
            gate.wait(2 * LIMIT)

    pool.cast(slow, block)
    assert served.wait(LIMIT)
    gate.set()


def test_the_wheel_calls_a_worker_whose_caller_was_interrupted_before_it_rang(ticking, monkeypatch):
    monkeypatch.setattr(workers, "SIZE", 1)
    monkeypatch.setattr(workers, "LINGER", 2 * LIMIT)
    actor, served, lost, ring = ticking.start(Worker), threading.Event(), [], workers.ring
    ticking.call(actor, do(lambda _server: None), LIMIT)
    until(ticking, lambda: not ticking._workers.computing)
    monkeypatch.setattr(workers, "ring", lambda bell: ring(bell) if lost else lost.append(bell))
    sender = threading.Thread(target=ticking.cast, args=(actor, lambda _server: served.set()))
    sender.start()
    sender.join(LIMIT)
    assert served.wait(LIMIT)
    assert lost


def test_a_thread_that_may_wait_leaves_nothing_for_later_while_no_wheel_ticks(ticking, monkeypatch):
    monkeypatch.setattr(wheel, "HEARTBEAT_NS", MINUTE_NS)
    monkeypatch.setattr(workers, "LINGER", 2 * LIMIT)
    actor, served = ticking.start(Helpable), threading.Event()
    ticking.call(actor, do(lambda _server: None), LIMIT)
    until(ticking, lambda: not ticking._workers.ticking)
    ticking.cast(actor, lambda _server: served.set())
    assert served.wait(LIMIT)


def test_more_actors_wait_than_there_are_workers_for(pool, monkeypatch):
    """At the bound an actor that waits runs the one that it asked."""
    monkeypatch.setattr("warrenmq.runtime.workers.MOST_WORKERS", 3)
    callee = pool.start(Worker)
    notes = pool.channel()
    callers = [pool.start(Worker, notes) for _ in range(10)]
    gate = busy(pool, callee)
    for caller in callers:
        pool.cast(caller, lambda server: server.note("answer", server.call(callee, do(lambda _: 7), LIMIT)))
    gate.set()
    assert [take(notes, "answer") for _ in callers] == [(7,)] * len(callers)


def test_at_the_bound_actors_that_are_stuck_are_not_counted(ticking, monkeypatch):
    """They wait for one behind them in the line, and not in a way that the pool knows of."""
    monkeypatch.setattr(workers, "MOST_WORKERS", 3)
    monkeypatch.setattr(workers, "STUCK", 0.01)
    callee, notes = ticking.start(Worker), ticking.channel()
    callers = [ticking.start(Worker, notes) for _ in range(10)]
    for caller in callers:
        ticking.cast(caller, lambda server: server.note("answer", callee.ask("what came")))
    assert [take(notes, "answer") for _ in callers] == [([],)] * len(callers)


def test_a_timer_that_is_due_when_its_actor_has_looked_and_is_not_let_go_yet_comes(ticking):
    """Another thread finds the actor claimed, and leaves it to its runner."""
    worker = ticking.start(Worker, notes := ticking.channel())
    ticking.call(worker, do(lambda server: server.send_after(0.02, "due")))
    cell = worker.actor_inbox.incoming

    class Slow:
        """A context that is left late."""

        def run(self, *call):
            cell.context = context
            context.run(*call)
            time.sleep(0.1)

    context, cell.context = cell.context, Slow()
    ticking.cast(worker, "look")
    assert take(notes, "info") == ("due",)


def test_timers_and_idle_actors_share_two_threads(pool):
    notes = pool.channel()
    refs = [pool.start(Worker, notes) for _ in range(200)]
    for number, ref in enumerate(refs):
        pool.cast(ref, lambda server, number=number: server.send_after(0.001 * (number % 7), number))
    assert sorted(take(notes, "info")[0] for _ in refs) == list(range(len(refs)))
    assert pool.stats().workers <= 2


def test_an_actor_that_has_ended_leaves_no_alarm_behind(pool):
    """A channel has a timer of a minute: a server to which clients come and go would keep a minute of them."""
    for _ in range(300):
        worker = pool.start(Worker)
        pool.call(worker, do(lambda server: server.send_after(3600, "never")))
        pool.stop_actor(worker)
    until(pool, lambda: len(pool._wheel._alarms) < 100)


def test_a_timer_before_a_later_one_leaves_no_alarm_behind(pool):
    worker = pool.start(Worker, notes := pool.channel())
    pool.call(worker, do(lambda server: server.send_after(3600, "never")))
    for number in range(300):
        pool.cast(worker, lambda server, number=number: server.send_after(0.001, number))
        assert take(notes, "info") == (number,)
    assert len(pool._wheel._alarms) < 100


def clocks():
    return {each for each in threading.enumerate() if each.name == "actors' clock"}


def test_threads_end_with_the_last_actor_and_come_back_with_the_next(pool):
    of_others = clocks()  # of earlier tests' pools, which take their time
    for _ in range(3):
        worker = pool.start(Worker)
        pool.call(worker, "look")
        pool.stop_actor(worker)
        until(pool, lambda: pool.stats().workers == 0)
        until(pool, lambda: not clocks() - of_others)


# -- the limit of threads


def no_thread(_thread):
    msg = "can't start new thread"
    raise RuntimeError(msg)


def test_without_any_thread_a_start_is_refused_with_a_sentence(pool, monkeypatch):
    with (
        monkeypatch.context() as patch,
        pytest.raises(ResourceError, match="no thread could be started for 'jobs'"),
    ):
        patch.setattr(threading.Thread, "start", no_thread)
        pool.start(Worker, name="jobs")
    assert pool.living() == []
    assert pool.call(pool.start(Worker, name="jobs"), "look") == []


def test_at_the_limit_of_threads_everything_goes_on_with_those_there_are(ticking, monkeypatch):
    first = ticking.start(Worker)
    monkeypatch.setattr(threading.Thread, "start", no_thread)
    refs = [ticking.start(Worker) for _ in range(50)]
    assert [ticking.call(ref, do(lambda _: 1), LIMIT) for ref in refs] == [1] * 50
    other = refs[0]
    assert ticking.call(first, do(lambda server: server.call(other, do(lambda _: 2), LIMIT)), LIMIT) == 2


# -- waiting is working


def test_a_thread_that_waits_runs_the_actor_that_it_sent_to_and_what_that_sent_to(pool):
    first, last, done = pool.start(Helpable), pool.start(Helpable), pool.channel()

    def pass_on(server):
        here = threading.get_ident()
        server.cast(last, lambda _: done.put({here, threading.get_ident()}))

    for _ in range(1_000):  # a worker may be quicker
        pool.cast(first, pass_on)
        if done.get(timeout=LIMIT) == {threading.get_ident()}:
            return
    pytest.fail("it never ran them itself")


def test_a_worker_does_what_a_thread_leaves_when_it_has_its_answer(pool):
    first, last, done = pool.start(Helpable), pool.start(Helpable), threading.Semaphore(0)

    def pass_on(server, _sender):
        server.cast(last, lambda _: done.release())

    for _ in range(100):
        pool.call(first, pass_on)
        assert done.acquire(timeout=LIMIT)


def test_a_thread_that_waits_runs_no_actor_that_may_run_an_applications_code(pool):
    worker = pool.start(Worker)
    for _ in range(50):
        assert pool.call(worker, do(lambda _: threading.get_ident())) != threading.get_ident()


def test_a_short_wait_ends_in_time_though_the_actor_hangs(ticking):
    slow = ticking.start(Helpable)
    gate, known = threading.Event(), ticking.event()
    ticking.call(slow, "look")

    def hang(_server):
        gate.wait(LIMIT)
        known.set()

    ticking.cast(slow, hang)
    assert not known.wait(0.05)
    gate.set()
    assert known.wait(LIMIT)


def test_the_callback_of_a_confirm_may_want_a_lock_that_a_waiting_thread_holds(pool):
    queue, lock, called = pool.start(Helpable), threading.Lock(), pool.channel()

    def callback(_confirm):
        called.put(lock.acquire(timeout=LIMIT))
        lock.release()

    for _ in range(20):
        mine, other = Confirm(pool), Confirm(pool)
        other.add_done_callback(callback)

        def settle(_server, mine=mine, other=other):
            mine.confirm()
            other.confirm()

        with lock:
            pool.cast(queue, settle)
            mine.result(LIMIT)
        assert called.get(timeout=LIMIT)


@pytest.fixture
def sigint_raises():
    """KeyboardInterrupt, as in a program; processes of a parallel test run ignore the signal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("sigint_raises")
def test_a_signal_ends_no_actor_that_the_main_thread_runs(pool):
    worker = pool.start(Helpable)
    interrupted = 0
    for _ in range(1_000):

        def interrupt(server, _sender):
            if threading.current_thread() is threading.main_thread():
                signal.raise_signal(signal.SIGINT)
                server.seen.append("went on")
            return list(server.seen)

        try:
            pool.call(worker, interrupt)
        except KeyboardInterrupt:
            interrupted += 1
            break
    assert interrupted == 1
    assert pool.call(worker, "look") == ["went on"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_caller_deep_in_a_recursion_gives_its_actor_no_recursion_error(pool):
    worker = pool.start(Helpable)
    pool.call(worker, "look")

    def shallow(server, _sender):
        return nested(60)

    def nested(depth):
        return 0 if depth == 0 else 1 + nested(depth - 1)

    def deep(left):
        return pool.call(worker, shallow) if left == 0 else deep(left - 1)

    depth = len(inspect.stack(0))
    assert deep(sys.getrecursionlimit() - depth - 90) == 60
    assert pool.call(worker, "look") == []


def test_an_actor_keeps_its_context_variables_whoever_runs_it(pool):
    variable = ContextVar("variable", default="none")
    variable.set("the caller's")
    worker = pool.start(Helpable)
    assert {pool.call(worker, do(lambda _: variable.get())) for _ in range(20)} == {"none"}
    pool.call(worker, do(lambda _: variable.set("the actor's") and None))
    assert {pool.call(worker, do(lambda _: variable.get())) for _ in range(20)} == {"the actor's"}
    assert variable.get() == "the caller's"


def test_a_shutdown_does_not_trip_over_a_worker_that_is_about_to_be_started(monkeypatch):
    """Another thread has put it on the list and was taken off the processor before it started the thread."""
    reached, go = threading.Event(), threading.Event()
    start = threading.Thread.start

    def slow_start(thread):
        if thread.name == "actors":
            reached.set()
            assert go.wait(LIMIT)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", slow_start)
    pool = Pool()
    caller = threading.Thread(target=lambda: pool.start(Helpable), daemon=True)
    start(caller)
    assert reached.wait(LIMIT)
    pool._workers.join(0.01)
    go.set()
    caller.join(LIMIT)
    pool.shutdown()


@pytest.mark.usefixtures("sigint_raises")
@pytest.mark.parametrize(("patience", "told"), [(workers.STUCK, 0), (0.0, 1)])
def test_a_signal_that_comes_again_is_put_off_too_unless_the_actor_hangs(pool, monkeypatch, patience, told):
    """Its handler may wait for that actor, as to close a broker."""
    monkeypatch.setattr(signals, "PATIENCE", patience)
    worker, calls = pool.start(Helpable), []
    signal.signal(signal.SIGINT, lambda *_: calls.append(inside[0]))
    inside = [False]

    def interrupt(_server, _sender):
        if threading.current_thread() is threading.main_thread():
            inside[0] = True
            for _ in range(2):
                signal.raise_signal(signal.SIGINT)
            inside[0] = False

    until(pool, lambda: pool.call(worker, interrupt) or calls)
    assert calls == [True] * told + [False]


def test_a_handler_that_interrupts_the_call_of_a_worker_may_wait_for_an_actor(pool):
    """The handler of a signal runs between any two lines of the main thread."""
    worker, other = pool.start(Worker), pool.start(Worker)
    answers = []

    class Computing(set):
        def add(self, member):
            if threading.current_thread() is caller and not answers:
                answers.append("none")
                answers[0] = pool.call(other, "what came", LIMIT)
            super().add(member)

    until(pool, lambda: not pool._workers.computing)
    pool._workers.computing = Computing()
    caller = threading.Thread(target=pool.cast, args=(worker, "wake up"))
    caller.start()
    caller.join(LIMIT)
    assert answers == [[]]


def test_a_handler_that_interrupts_the_start_of_a_worker_may_wait_for_an_actor(ticking, monkeypatch):
    start_thread, answers = workers.start_thread, []
    monkeypatch.setattr(wheel, "HEARTBEAT_NS", 1_000_000)

    def start(thread):
        if not answers:
            answers.append("none")
            answers[0] = ticking.call(ticking.start(Worker), "what came", LIMIT)
        start_thread(thread)

    monkeypatch.setattr(workers, "start_thread", start)
    assert ticking.call(ticking.start(Worker), "what came", LIMIT) == []
    assert answers == [[]]


@pytest.mark.parametrize("of", ["a message", "a signal"])
def test_what_an_interrupted_sender_left_in_a_mailbox_is_handled(ticking, monkeypatch, of):
    monkeypatch.setattr(wheel, "HEARTBEAT_NS", 1_000_000)
    worker, left = ticking.start(Worker, notes := ticking.channel()), []
    ticking.call(worker, do(lambda _server: None))
    make_ready = ticking._workers.make_ready

    def interrupted(cell, message=None):
        if not left:
            left.append(cell)
            raise KeyboardInterrupt
        make_ready(cell, message)

    monkeypatch.setattr(ticking._workers, "make_ready", interrupted)
    with pytest.raises(KeyboardInterrupt):
        if of == "a message":
            ticking.cast(worker, lambda server: server.note("handled"))
        else:
            ticking.stop_actor(worker)
    take(notes, "handled" if of == "a message" else "terminate")


def test_a_wait_that_is_interrupted_before_it_runs_an_actor_leaves_it_in_the_line(ticking, monkeypatch):
    class Interrupted(signals.PutOff):
        def __enter__(self):
            raise InterruptedError

    worker = ticking.start(Helpable, notes := SimpleQueue())
    monkeypatch.setattr(waiting, "PutOff", Interrupted)
    interrupted = 0
    for number in range(20):
        try:
            ticking.call(worker, do(lambda server, number=number: server.note(number)))
        except InterruptedError:
            interrupted += 1
        take(notes, number)
    assert interrupted


class Emptied(deque):
    """A line that is found empty where it was not: the handler of a signal waited meanwhile, and ran the last."""

    def __bool__(self):
        return True


def test_a_wait_that_a_handler_left_nothing_to_run_runs_nothing():
    interrupted = helper.Helper()
    interrupted.mine = Emptied()
    assert waiting._next(None, interrupted) is None
