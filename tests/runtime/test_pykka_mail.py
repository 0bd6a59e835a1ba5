"""Pykka's own tell, ask, stop and proxies on our servers, and the traps they come with."""

import sys
import threading

import pykka
import pytest

from tests.support.limits import LIMIT
from tests.support.schedulers import Worker, crash, end_of, take
from warrenmq.runtime import CallFailed, Threads


class Counter(Worker):
    n = 0

    def add(self, more):
        if more < 0:
            msg = "only upwards"
            raise ValueError(msg)
        self.n += more
        return self.n

    def leave(self):
        sys.exit(3)


def test_tell_is_a_cast_and_ask_is_a_call_in_one_order(runtime):
    ref = runtime.start(Counter)
    for number in range(3):
        ref.tell(number)
        runtime.cast(ref, number + 10)
    assert ref.ask("what came") == [0, 10, 1, 11, 2, 12]


def test_proxies_call_get_and_set(runtime):
    ref = runtime.start(Counter)
    proxy = ref.proxy()
    assert proxy.add(2).get() == 2
    proxy.add.defer(3)
    assert proxy.n.get() == 5
    proxy.n = 7
    assert proxy.n.get() == 7


def test_stop_ends_the_server_after_what_was_sent_before(runtime):
    notes = runtime.channel()
    ref = runtime.start(Counter, notes, name="c")
    for number in range(100):
        runtime.cast(ref, lambda server, number=number: server.note("handled", number))
    assert ref.stop() is True
    assert take(notes, "handled") == (0,)
    assert take(notes, "terminate") == ("c", "normal")
    assert ref.actor_inbox.reason == "normal"
    assert ref.stop() is False
    assert not ref.is_alive()


def test_an_exception_under_ask_ends_the_server(runtime, logs):
    ref = runtime.start(Counter)
    with pytest.raises(CallFailed) as failure:
        ref.ask(lambda server, _sender: crash(server))
    assert isinstance(failure.value.__cause__, RuntimeError)
    assert isinstance(end_of(runtime, ref), RuntimeError)
    assert len(logs) == 1


@pytest.mark.parametrize(
    ("ask", "error"), [(lambda proxy: proxy.add(-1), ValueError), (lambda proxy: proxy.leave(), SystemExit)]
)
def test_an_exception_under_a_proxy_ends_that_server_only(runtime, ask, error):
    ref, other = runtime.start(Counter), runtime.start(Counter)
    with pytest.raises(CallFailed) as failure:
        ask(ref.proxy()).get()
    assert isinstance(failure.value.__cause__, error)
    assert isinstance(end_of(runtime, ref), error)
    assert other.proxy().add(1).get() == 1


def test_an_ask_of_the_dead_is_refused_as_pykka_does(runtime):
    ref = runtime.start(Counter)
    ref.stop()
    with pytest.raises(pykka.ActorDeadError):
        ref.ask("hello")
    with pytest.raises(pykka.ActorDeadError):
        ref.tell("hello")


def test_of_two_who_stop_an_actor_both_stopped_it(runtime):
    """As in Pykka: it was being stopped at the time."""
    gate = runtime.event()

    class Plain(pykka.ThreadingActor):
        def on_receive(self, _message):
            return gate.wait(LIMIT)

    for ref in (runtime.start(Counter), runtime.start(Plain)):
        ref.tell(lambda _server: gate.wait(LIMIT))
        stops = [ref.stop(block=False) for _ in range(2)]
        gate.set()
        assert [stop.get(timeout=LIMIT) for stop in stops] == [True, True]


def test_stop_all_stops_servers_too(runtime):
    refs = [runtime.start(Counter) for _ in range(3)]
    assert pykka.ActorRegistry.stop_all() == [True] * 3
    assert not any(ref.is_alive() for ref in refs)


def test_an_ask_times_out(runtime):
    ref, gate = runtime.start(Counter), runtime.event()
    future = ref.ask(lambda _server, _sender: gate.wait(LIMIT), block=False)
    with pytest.raises(pykka.Timeout):
        future.get(timeout=0.01)
    gate.set()
    assert future.get(timeout=LIMIT) is True


def test_an_ask_that_races_with_a_stop_is_always_answered():
    """In Pykka itself some of these wait for ever: the letter lands after the last look into the inbox."""
    runtime = Threads()
    futures, start = [], threading.Barrier(2)
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(100):
            ref = runtime.start(Counter)

            def ask(ref=ref):
                start.wait()
                futures.extend(ref.ask("x", block=False) for _ in range(20))

            asker = threading.Thread(target=ask)
            asker.start()
            start.wait()
            futures.append(ref.stop(block=False))
            asker.join()
    finally:
        sys.setswitchinterval(0.005)
    for future in futures:
        try:
            future.get(timeout=LIMIT)
        except pykka.ActorDeadError:
            pass
    runtime.shutdown()


def test_a_call_that_races_with_a_crash_is_always_answered():
    runtime = Threads()
    outcomes = []
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(100):
            ref, start = runtime.start(Counter), threading.Barrier(3)

            def ask(ref=ref, start=start):
                start.wait()
                for _ in range(5):
                    try:
                        outcomes.append(runtime.call(ref, "x", timeout=LIMIT))
                    except CallFailed as failure:
                        outcomes.append(failure)

            askers = [threading.Thread(target=ask) for _ in range(2)]
            for asker in askers:
                asker.start()
            start.wait()
            runtime.cast(ref, "a word")
            runtime.cast(ref, lambda _server: sys.exit())
            for asker in askers:
                asker.join()
    finally:
        sys.setswitchinterval(0.005)
        runtime.shutdown()
    assert len(outcomes) == 1000
