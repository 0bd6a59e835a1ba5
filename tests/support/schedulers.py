"""Both schedulers for one test, and small actors that tell a channel what happens to them.

Tests that take the `runtime` fixture run under threads and under simulation: nothing in them may wait but
through the runtime, and every wait has a limit, so that a failure is a failure and not a hang.
"""

import contextlib
from queue import Empty

import pytest

from tests.support.limits import LIMIT
from warrenmq.runtime import Pool, Server, Simulation, Threads

PRODUCTION = {"threads": Threads, "pool": Pool}


@contextlib.contextmanager
def scheduler(kind):
    """A runtime by name: threads, or simulation and its seed."""
    if kind in PRODUCTION:
        runtime = PRODUCTION[kind]()
        yield runtime
        runtime.shutdown(1.0)
    else:
        with Simulation(int(kind.split("-")[1])) as runtime:
            yield runtime


both_schedulers = pytest.fixture(params=[*PRODUCTION, "simulation-1", "simulation-2", "simulation-3"])


class Worker(Server):
    """Runs a message that is a function of the server, notes any other, and reports to its channel."""

    def init(self, notes=None, on_init=None):
        self.notes = notes if notes is not None else self.runtime.channel()
        self.seen = []
        self.note("init", self.name)
        if on_init is not None:
            on_init(self)

    def note(self, *what):
        self.notes.put(what)

    def handle_cast(self, message):
        if callable(message):
            message(self)
        else:
            self.seen.append(message)

    def handle_call(self, request, sender):
        return request(self, sender) if callable(request) else list(self.seen)

    def handle_info(self, message):
        self.seen.append(message)
        self.note("info", message)

    def terminate(self, reason):
        self.note("terminate", self.name, reason)


class Trapper(Worker):
    trap_exit = True


def crash(_server):
    """A message that crashes a Worker."""
    msg = "as told"
    raise RuntimeError(msg)


def do(function):
    """A request: what the function of the server returns."""
    return lambda server, _sender: function(server)


def take(notes, kind, timeout=LIMIT):
    """The next note of this kind; those before it are dropped."""
    while True:
        try:
            note = notes.get(timeout=timeout)
        except Empty:
            pytest.fail(f"no note {kind!r} came")
        if note[0] == kind:
            return note[1:]


def drained(notes):
    """All notes that are there."""
    found = []
    while not notes.empty():
        found.append(notes.get_nowait())
    return found


def end_of(runtime, ref):
    """Wait for an actor's end; its reason."""
    gone = runtime.event()
    ref.actor_inbox.on_close(lambda _reason: gone.set())
    assert gone.wait(LIMIT), "the actor did not end"
    return ref.actor_inbox.reason


def until(runtime, what):
    """Wait for what cannot be waited for otherwise."""
    for _ in range(round(LIMIT / 0.001)):
        if what():
            return
        runtime.event().wait(0.001)
    pytest.fail("it did not come true")


def busy(runtime, ref, first=None):
    """Have an actor in the middle of a message (after `first(server)`) until the returned gate is opened."""
    inside, gate = runtime.event(), runtime.event()

    def wait(server):
        if first is not None:
            first(server)
        inside.set()
        gate.wait(LIMIT)

    runtime.cast(ref, wait)
    assert inside.wait(LIMIT)
    return gate
