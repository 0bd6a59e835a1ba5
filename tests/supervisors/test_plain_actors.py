"""Pykka actors that know nothing of us, as children: started, watched, restarted and stopped like ours."""

import threading

import pykka
import pytest

from tests.support.schedulers import LIMIT, Worker, do, end_of, take, until
from warrenmq.runtime import CallFailed, Down, Threads
from warrenmq.supervisors import ChildSpec, Supervisor, which_children

notes: list = []


class Plain(pykka.ThreadingActor):
    """A Pykka actor as an application writes it: hooks, and state made in __init__."""

    def __init__(self, greeting, bad_start=None):
        super().__init__()
        self.greeting, self.bad_start = greeting, bad_start

    def on_start(self):
        notes.append("on_start")
        if self.bad_start:
            raise self.bad_start

    def on_stop(self):
        notes.append("on_stop")

    def on_failure(self, exception_type, exception_value, traceback):
        notes.append(exception_type.__name__)

    def on_receive(self, message):
        if isinstance(message, BaseException):
            raise message
        if message == "leave":
            self.stop()
        return f"{self.greeting}, {message}"

    def shout(self, message):
        return message.upper()


@pytest.fixture(autouse=True)
def _fresh_notes():
    notes.clear()


def supervised(runtime, **options):
    spec = ChildSpec("p", Plain, ("hello",), name="p", **options)
    return Supervisor.start_link(children=[spec], runtime=runtime, intensity=5)


def test_it_works_as_before(runtime):
    supervised(runtime)
    ref = runtime.whereis("p")
    assert ref.ask("you") == "hello, you"
    assert ref.proxy().shout("hey").get() == "HEY"
    assert ref.proxy().greeting.get() == "hello"
    assert ref.actor_class.__name__ == "Plain"
    assert issubclass(ref.actor_class, Plain)
    assert runtime.call("p", "caller") == "hello, caller"
    assert runtime.cast("p", "nobody waits") is True


@pytest.mark.parametrize("error", [LookupError("x"), SystemExit(1), KeyboardInterrupt()])
def test_a_crash_is_reported_with_its_reason_and_mended(error, caplog):
    """SystemExit, too: in Pykka alone it would stop every actor of the process."""
    runtime = Threads()
    sup, bystander = supervised(runtime), runtime.start(Worker)
    first, told = runtime.whereis("p"), runtime.channel()
    first.actor_inbox.on_close(told.put)
    first.tell(error)
    reason = told.get(timeout=LIMIT)
    assert error in (reason, reason.__cause__)
    until(runtime, lambda: runtime.is_registered("p"))
    assert runtime.whereis("p") is not first
    assert runtime.call("p", "again") == "hello, again"
    assert bystander.is_alive()
    assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 1
    sup.stop()
    runtime.shutdown()


def test_a_crash_in_simulation_is_mended_too(runtime, caplog):
    supervised(runtime)
    first = runtime.whereis("p")
    first.tell(LookupError("x"))
    assert isinstance(end_of(runtime, first), LookupError)
    until(runtime, lambda: runtime.is_registered("p"))
    assert runtime.call("p", "again") == "hello, again"
    assert notes == ["on_start", "LookupError", "on_start"]


def test_an_exception_under_ask_goes_to_the_caller_as_in_pykka(runtime):
    supervised(runtime)
    with pytest.raises(LookupError):
        runtime.whereis("p").ask(LookupError("yours"))
    with pytest.raises(CallFailed) as failure:
        runtime.call("p", LookupError("yours"))
    assert isinstance(failure.value.__cause__, LookupError)
    assert failure.value.handling, "it may have taken effect"
    assert runtime.whereis("p").ask("still here") == "hello, still here"


def test_leaving_by_itself_is_a_normal_end(runtime):
    sup = supervised(runtime, restart="transient")
    ref = runtime.whereis("p")
    ref.tell("leave")
    assert end_of(runtime, ref) == "normal"
    assert [child.ref for child in which_children(runtime, sup)] == [None]
    assert notes == ["on_start", "on_stop"]


def test_its_supervisor_stops_it_through_pykkas_own_stop(runtime):
    sup = supervised(runtime)
    ref = runtime.whereis("p")
    sup.stop()
    assert ref.actor_inbox.reason == "shutdown"
    assert notes == ["on_start", "on_stop"]
    assert not ref.is_alive()
    assert ref not in pykka.ActorRegistry.get_all()


def test_a_failing_on_start_is_raised_at_the_starter(runtime, caplog):
    with pytest.raises(LookupError, match="no start"):
        runtime.start(Plain, "hello", LookupError("no start"))
    assert runtime.living() == []
    assert pykka.ActorRegistry.get_all() == []
    assert caplog.records == []


def test_a_failing_constructor_is_raised_at_the_starter(runtime):
    with pytest.raises(TypeError):
        runtime.start(Plain)
    assert runtime.living() == []


def test_it_can_be_watched_and_linked(runtime):
    seen = runtime.channel()
    watcher, ref = runtime.start(Worker, seen), runtime.start(Plain, "hello")
    key = runtime.call(watcher, do(lambda server: server.monitor(ref)))
    runtime.call(watcher, do(lambda server: server.link(ref)))
    runtime.stop_actor(ref, "normal", timeout=LIMIT)
    assert take(seen, "info") == (Down(key, ref, "normal"),)
    other = runtime.start(Plain, "hello")
    runtime.call(watcher, do(lambda server: server.link(other)))
    runtime.stop_actor(watcher, "gone", timeout=LIMIT)
    assert end_of(runtime, other) == "gone"


def test_one_that_hangs_is_given_up_after_its_shutdown_time():
    runtime, gate = Threads(), threading.Event()

    class Hanging(Plain):
        def on_receive(self, message):
            gate.wait(LIMIT)
            notes.append("woke")

    spec = ChildSpec("h", Hanging, ("hello",), name="h", shutdown=0.02)
    sup = Supervisor.start_link(children=[spec], runtime=runtime)
    ref = runtime.whereis("h")
    ref.tell("hang")
    late = ref.ask("never answered by it", block=False)
    sup.stop()
    assert ref.actor_inbox.reason == "killed"
    with pytest.raises(pykka.ActorDeadError):
        late.get(timeout=LIMIT)
    gate.set()
    runtime.shutdown()
    assert not runtime._threads


def test_an_idle_one_that_is_given_up_ends(runtime):
    ref = runtime.start(Plain, "hello")
    assert ref.ask("you") == "hello, you"
    runtime.disown(ref)
    runtime.shutdown()
    assert not getattr(runtime, "_threads", None)
    assert notes == ["on_start"]


def test_an_error_in_on_stop_becomes_the_reason(runtime, logs):
    class Untidy(Plain):
        def on_stop(self):
            raise LookupError

    ref = runtime.start(Untidy, "hello")
    ref.stop()
    assert isinstance(end_of(runtime, ref), LookupError)
    assert [line["event"] for line in logs] == ["actor crashed"]
