"""Suspended actors: they hold no thread, handle no mail, and go on where they were."""

import sys
import threading
from contextlib import suppress
from queue import Empty
from random import Random

import pytest

from tests.support.schedulers import LIMIT, Worker, crash, do, end_of, take, until
from warrenmq.runtime import Pool
from warrenmq.runtime.reasons import KILLED

MINUTE_NS = 60_000_000_000


class Patient(Worker):
    """Its mailbox_empty waits for whatever `waiters` are told, once there was a message for it."""

    helpable = True

    def init(self, notes, waiters):
        super().init(notes)
        self.waiters = waiters
        self.went_on = 0

    def mailbox_empty(self):
        if self.seen and not self.suspend(self.begin, self.go_on):
            self.note("stayed")

    def begin(self, waiter):
        self.note("waits", threading.get_ident())
        self.waiters.put(waiter)
        return True

    def go_on(self):
        self.note("went on", *self.seen)
        self.seen.clear()


@pytest.fixture
def pool():
    """A forgotten actor is found by no tick within a test's time."""
    made = Pool(tick_ns=MINUTE_NS)
    yield made
    made.shutdown(1.0)


@pytest.fixture
def suspended(pool):
    """A suspended actor, its notes, and who has to be told."""
    notes, waiters = pool.channel(), pool.channel()
    patient = pool.start(Patient, notes, waiters)
    suspend(pool, patient)
    return patient, notes, waiters.get(timeout=LIMIT)


def suspend(pool, patient, *messages):
    """Send messages to it from an actor whose thread has another one to run then."""
    other = pool.start(Worker)

    def send(server):
        for message in messages or ("first",):
            server.cast(patient, message)
        server.cast(other, "there is something else to do")

    pool.cast(pool.start(Worker), send)


def test_its_thread_runs_others_and_it_goes_on_before_its_mail(pool, suspended):
    patient, notes, waiter = suspended
    (thread,) = take(notes, "waits")
    other = pool.start(Worker)
    assert pool.call(other, do(lambda _: threading.get_ident()), timeout=0.9) == thread
    pool.cast(patient, lambda server: server.note("mail"))
    until(pool, lambda: not pool._workers.computing)
    assert notes.empty()
    waiter.over()
    assert take(notes, "went on") == ("first",)
    take(notes, "mail")
    pool.cast(patient, lambda server: server.note("more mail"))
    take(notes, "more mail")


def test_a_wait_may_be_over_before_the_actor_has_left_its_thread(pool):
    class AtOnce(Patient):
        def begin(self, waiter):
            waiter.over()
            return True

    notes = pool.channel()
    patient = pool.start(AtOnce, notes, None)
    for message in range(3):
        suspend(pool, patient, message)
        assert take(notes, "went on") == (message,)


def test_a_thread_that_has_nothing_else_to_do_is_not_left(pool):
    notes = pool.channel()
    patient = pool.start(Patient, notes, None)
    pool.cast(patient, "alone")
    take(notes, "stayed")


def test_what_could_not_begin_is_left_to_the_actor(pool):
    class Refused(Patient):
        def begin(self, waiter):
            return False

    notes = pool.channel()
    suspend(pool, pool.start(Refused, notes, None))
    take(notes, "stayed")


def test_jobs_are_done_in_turn_after_the_actors_that_are_ready(pool, suspended):
    _, notes, waiter = suspended
    done = []
    waiter.run_later(lambda: done.append(1))
    waiter.run_later(lambda: done.append(2) or waiter.over())
    take(notes, "went on")
    assert done == [1, 2]


def test_one_that_is_killed_does_not_go_on(pool, suspended):
    patient, notes, waiter = suspended
    pool.cast(patient, "never handled")
    pool.kill(patient)
    assert end_of(pool, patient) == KILLED
    waiter.over()
    until(pool, lambda: not pool._workers.ready and not pool._workers.computing)
    with pytest.raises(BaseException, match="no note"):
        take(notes, "went on", timeout=0.01)


def test_a_stop_waits_until_it_has_gone_on(pool, suspended):
    patient, notes, waiter = suspended
    stopper = threading.Thread(target=pool.stop_actor, args=(patient,))
    stopper.start()
    until(pool, lambda: patient.actor_inbox._exits)
    assert patient.is_alive()
    waiter.over()
    stopper.join(LIMIT)
    take(notes, "went on")
    take(notes, "terminate")


def test_what_the_rest_raises_ends_it(pool, suspended):
    patient, _, waiter = suspended
    patient._actor_weakref()._then = lambda: crash(None)
    waiter.over()
    assert str(end_of(pool, patient)) == "as told"


def test_each_goes_on_once_whichever_thread_has_the_last_word(pool):
    """Waits end in another thread, some before their actor has left its own; threads change at nearly every line."""
    notes, waiters = pool.channel(), pool.channel()
    patients = [pool.start(Patient, notes, waiters) for _ in range(20)]
    ended = threading.Event()

    def end_waits():
        rng, held = Random(7), []
        while not ended.is_set() or held:
            if rng.random() < 0.5 or not held:
                with suppress(Empty):
                    held.append(waiters.get_nowait())
            else:
                held.pop(rng.randrange(len(held))).over()

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    threads = [threading.Thread(target=end_waits) for _ in range(2)]
    try:
        for thread in threads:
            thread.start()
        sent = 300
        for number in range(sent):
            pool.cast(patients[number % len(patients)], number)
        went_on, waited = [], 0
        while len(went_on) < sent:
            note = notes.get(timeout=LIMIT)
            if note[0] == "went on":
                went_on += note[1:]
            elif note[0] == "waits":
                waited += 1
            elif note[0] == "stayed":
                for each in patients:
                    pool.cast(each, lambda server: server.go_on())
        assert sorted(went_on) == list(range(sent))
        assert waited
    finally:
        ended.set()
        sys.setswitchinterval(before)
        for thread in threads:
            thread.join(LIMIT)
