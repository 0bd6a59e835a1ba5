"""Arbitrary arguments of public calls: each call ends in a result or in one sentence, and the broker serves others meanwhile.

The calls are discovered: a new public method is called as well, and one with a parameter of a new name fails here until
GOOD has a value for it.
"""

from __future__ import annotations

import asyncio
import inspect
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import pytest

import warrenmq
from tests.broker.odd_arguments import HUGE_TABLES, Boom, HostileDatetime, HostileZone, odd_values
from warrenmq import aio
from warrenmq.broker.handles import QueueHandle
from warrenmq.broker.message_options import MessageOptions
from warrenmq.message.properties import Properties
from warrenmq.runtime import Server, Threads
from warrenmq.settings import Settings
from warrenmq.supervisors import (
    ChildSpec,
    Supervisor,
    delete_child,
    restart_child,
    start_child,
    stop_child,
    which_children,
)
from warrenmq.testing import SimulatedMachine

OTHER_FACES = 2
"""Of the calls one in so many is tried on faces that check their arguments by the owner's functions."""
TIMEOUT = 60.0
"""Seconds after which a call that has not ended is taken for one that hangs."""

OUR_OWN = {
    "Confirm": {"confirm", "fail", "follow", "nack", "parts"}, "Consumer": {"ahead", "lapse"}, "Broker": {"local"},
}  # fmt: skip
"""Methods without an underscore that are for this package's other modules ("for Queue, Consumer and Publishing")."""

GOOD: dict[str, Any] = {
    "name": "scratch", "type": "direct", "destination": "target", "source": "amq.topic", "routing_key": "target", "exchange": "",
    "body": b"body", "bodies": [b"body"], "item": b"item", "items": [b"item"], "most": 1, "watermark": 0.9, "limit": 1_000_000,
    "callback": lambda _confirm: None, "text": "a mark", "pattern": "^none$", "definition": {"max-length": 5},
}  # fmt: skip
"""The value of each required parameter while another one is odd."""

ALLOWED = (warrenmq.Error, TypeError, ValueError, queue.Empty, queue.Full, TimeoutError, StopAsyncIteration)


ODD_TIMES: dict[str, Callable[[], Any]] = {
    "a hostile time": lambda: HostileDatetime(9020, 1, 1, tzinfo=UTC), "a time of a hostile zone": lambda: datetime(2020, 1, 1, tzinfo=HostileZone()),
    "the last time": lambda: datetime.max.replace(tzinfo=UTC), "a naive time": lambda: datetime(2020, 1, 1),  # noqa: DTZ001
    "the longest span": lambda: timedelta.max, "the shortest span": lambda: timedelta.min, "a millisecond": lambda: timedelta(milliseconds=1),
}  # fmt: skip
"""More values for the keywords of a publish."""


def public(kind: type) -> list[str]:
    """The public methods of a class."""
    ours = OUR_OWN.get(kind.__name__, set())
    return sorted(
        name for name, each in inspect.getmembers(kind, callable)
        if not name.startswith("_") and name not in ours and not isinstance(inspect.getattr_static(kind, name), type)
    )  # fmt: skip


def odd_calls(
    function: Callable[..., Any], good: dict[str, Any] = GOOD
) -> Iterator[tuple[str, dict[str, Any]]]:
    """(what is odd, arguments): every parameter with every odd value, the required others being good ones."""
    parameters = [
        each
        for each in inspect.signature(function).parameters.values()
        if each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)
    ]
    required = {each.name: good[each.name] for each in parameters if each.default is each.empty}
    if not parameters:
        yield "", {}
    for each in parameters:
        for name, make in odd_values(each.name).items():
            yield f"{each.name}={name}", required | {each.name: make()}


def wrong_refusal(what: str, error: BaseException) -> str | None:
    """Describe an error that no caller can expect; None for a fitting one in one sentence."""
    if isinstance(error, Boom):
        return (
            None
            if any(each in what for each in ("bodies=", "items=", "children="))
            else f"{error!r}, and no iterable of the caller's raised it"
        )
    if isinstance(error, OSError) and any(each in what for each in ("path=", "file=", "trace=")):
        return None  # the system's own words
    if not isinstance(error, ALLOWED):
        return repr(error)
    said = str(error)
    one_sentence = bool(said) and "\n" not in said and len(said) < 500
    return (
        None if one_sentence or isinstance(error, (queue.Empty, StopAsyncIteration)) else f"it says {said!r}"
    )


class World:
    """A broker with all that can be called, and another queue that is used all the while."""

    def __init__(self, folder: Path, *, attached: bool = False) -> None:
        """`attached`: the broker is another one's, which has the directory open already."""
        self.folder = folder
        self.owner = warrenmq.open(folder / "data", shared=True) if attached else None
        self.broker = warrenmq.open(folder / "data", shared=attached)
        self.queue = self.broker.declare_queue("target", arguments={"x-max-length": 100})
        self.other = self.broker.declare_queue("other")
        self.calls = self.served = self.made = 0
        self.now = ""
        """The call that is going on."""
        self.failure: BaseException | None = None
        self.problems: list[str] = []
        self._stop = threading.Event()
        self._server = threading.Thread(target=self._serve, daemon=True)
        self._server.start()

    def _serve(self) -> None:
        while not self._stop.is_set():
            self.other.publish(b"%d" % self.served).result(TIMEOUT)
            delivery = self.other.get(TIMEOUT)
            assert delivery.body == b"%d" % self.served
            delivery.ack()
            self.served += 1
            self._stop.wait(0.005)  # a queue that is used, not a load on all the calls

    def run(self, calls: Callable[[], None]) -> None:
        """Run them in a thread of their own; fail when one of them hangs."""

        def all_of_them() -> None:
            try:
                calls()
            except BaseException as error:
                self.failure = error

        thread = threading.Thread(target=all_of_them, daemon=True)
        thread.start()
        while thread.is_alive():
            before = self.calls
            thread.join(TIMEOUT)
            assert not thread.is_alive() or self.calls > before, f"{self.now} hangs"
        if self.failure is not None:
            raise self.failure
        assert not self.problems, "\n".join(each[:300] for each in self.problems)

    def call(self, what: str, function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        """One call, and what is true after it."""
        self.now = what
        self.calls += 1
        result = None
        try:
            result = function(**arguments)
        except BaseException as error:
            if (problem := wrong_refusal(what, error)) is not None:
                self.problems.append(f"{what}: {problem}")
        assert self.broker.is_open, f"{what} took the broker down"
        return result

    def finish(self) -> None:
        """The other queue was served before, during and after; nothing died, and no thread is left."""
        served = self.served
        deadline = time.monotonic() + TIMEOUT
        while self.served < served + 3:
            assert self._server.is_alive(), "the other queue is not served any more"
            assert time.monotonic() < deadline, "the other queue is not served any more"
            time.sleep(0.001)
        self._stop.set()
        self._server.join(TIMEOUT)
        restarts = {actor.name: actor.restarts for actor in self.broker.stats().actors if actor.restarts}
        assert not restarts
        self.broker.close(TIMEOUT)
        if self.owner is not None:
            self.owner.close(TIMEOUT)

    # -- subjects

    def fresh_delivery(self) -> warrenmq.Delivery:
        self.queue.publish(b"delivered").result(TIMEOUT)
        delivery = self.queue.get(TIMEOUT)
        assert delivery is not None
        return delivery

    def fresh_confirm(self) -> warrenmq.Confirm:
        confirm = self.queue.publish(b"confirmed")
        confirm.result(TIMEOUT)
        return confirm

    def fresh_broker(self) -> warrenmq.Broker:
        self.made += 1
        return warrenmq.open(self.folder / f"broker-{self.made}")


@pytest.fixture
def attached() -> bool:
    """True if the world's broker is attached to another one; parametrized by the tests of both."""
    return False


both = pytest.mark.parametrize("attached", [False, True], ids=["owner", "attached"])


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attached: bool) -> Iterator[World]:
    monkeypatch.chdir(tmp_path)
    before = set(threading.enumerate())
    made = World(tmp_path, attached=attached)
    yield made
    made.finish()
    deadline = time.monotonic() + TIMEOUT
    while (left := {each for each in set(threading.enumerate()) - before if not each.daemon or each.name.startswith("queue:")}) \
            and time.monotonic() < deadline:  # fmt: skip
        time.sleep(0.01)
    assert not left


def keep_filled(world: World) -> None:
    """So that no call has a reason to wait."""
    if not world.queue.info().ready:
        world.queue.publish_many([b"filling"] * 50).result(TIMEOUT)


def clean_up(world: World, name: str, result: Any) -> None:
    """Undo what a call that was fine has done."""
    match name:
        case "declare_queue" | "declare_exchange" if result is not None and result.name not in (
            "target",
            "other",
        ):
            delete = world.broker.delete_queue if name == "declare_queue" else world.broker.delete_exchange
            with suppress(warrenmq.AccessRefused):
                delete(result)
        case "delete":
            world.broker.declare_queue("target", arguments={"x-max-length": 100})
        case "consume" if result is not None:
            result.cancel()
        case "set_vm_memory_high_watermark":
            world.broker.set_vm_memory_high_watermark(0.9)
        case "set_disk_free_limit":
            world.broker.set_disk_free_limit(0)


@both
def test_the_embedded_face(world: World) -> None:
    exchange = world.broker.declare_exchange("ours", "fanout")
    subjects: dict[type, Callable[[], Any]] = {
        warrenmq.Broker: lambda: world.broker, QueueHandle: lambda: world.queue, warrenmq.Exchange: lambda: exchange,
        warrenmq.Consumer: lambda: world.queue.consume(no_ack=True), warrenmq.Confirm: world.fresh_confirm,
        warrenmq.Delivery: world.fresh_delivery,
    }  # fmt: skip

    def calls() -> None:
        for kind, subject in subjects.items():
            for name in public(kind):
                if (kind, name) == (warrenmq.Broker, "close"):
                    continue  # test_close
                made = subject()
                step = 1 if world.owner is None else OTHER_FACES
                for what, arguments in islice(odd_calls(getattr(made, name)), 0, None, step):
                    if name in ("get", "take"):
                        keep_filled(world)
                    result = world.call(f"{kind.__name__}.{name}({what})", getattr(made, name), arguments)
                    clean_up(world, name, result)
                    if kind in (warrenmq.Delivery, warrenmq.Confirm):
                        made = subject()
                if kind is warrenmq.Consumer:
                    made.cancel()

    world.run(calls)


@both
def test_huge_tables(world: World) -> None:
    def calls() -> None:
        for name, make in HUGE_TABLES.items():
            world.call(
                f"declare_queue({name})", world.broker.declare_queue, {"name": name, "arguments": make()}
            )
            world.call(
                f"publish({name})",
                world.queue.publish,
                {"body": b"", "properties": Properties(headers=make())},
            )

    world.run(calls)


@both
def test_the_keywords_of_a_publish(world: World) -> None:
    good = {"exchange": "", "routing_key": "target", "body": b"body"}
    every = {keyword: odd_values(keyword) | ODD_TIMES for keyword in MessageOptions.__annotations__}
    every["x" * (1 << 20)] = {"0": lambda: 0}

    def calls() -> None:
        for keyword, values in every.items():
            for name, make in values.items():
                world.call(f"publish({keyword[:20]}={name})", world.broker.publish, good | {keyword: make()})
        for name, make in odd_values("mandatory").items():
            given = good | {"delay": 1, "mandatory": make()}
            world.call(f"publish(delay=1, mandatory={name})", world.broker.publish, given)

    world.run(calls)


def test_close(world: World) -> None:
    def calls() -> None:
        broker = world.fresh_broker()
        for what, arguments in odd_calls(broker.close):
            world.call(f"close({what})", broker.close, arguments)
            if not broker.is_open:
                broker = world.fresh_broker()
        broker.close()

    world.run(calls)


@both
def test_a_transaction(world: World) -> None:
    def calls() -> None:
        world.call(
            "outside", world.broker.tx().publish, {"exchange": "", "routing_key": "target", "body": b"x"}
        )
        assert world.problems == []
        before = world.queue.info().next_seq_id
        with world.broker.tx() as tx:
            for what, arguments in odd_calls(tx.publish):
                world.call(f"tx.publish({what})", tx.publish, arguments)
        assert world.queue.info().next_seq_id > before
        with pytest.raises(Boom), world.broker.tx() as tx:
            tx.publish("", "target", b"rolled back")
            raise Boom

    world.run(calls)


def test_opening(world: World) -> None:
    def calls() -> None:
        for opening in (warrenmq.open, partial(warrenmq.open, shared=True), warrenmq.Queue):
            for what, arguments in odd_calls(opening, {"path": "made"}):
                opened = world.call(f"{opening}({what})", opening, arguments)
                if opened is not None:
                    opened.close()
        for what, arguments in odd_calls(Settings.load):
            world.call(f"Settings.load({what})", Settings.load, arguments)
        world.call("Settings.load(a megabyte)", Settings.load, {"x" * (1 << 20): 1})
        for field in fields(Settings):
            for name, make in odd_values(field.name).items():
                world.call(
                    f"Settings.load({field.name}={name})", Settings.load, {"environ": {}, field.name: make()}
                )

    world.run(calls)


@pytest.mark.parametrize("codec", ["bytes", "json", "msgpack"])
def test_the_queue_of_the_standard_library(world: World, codec: Literal["bytes", "json", "msgpack"]) -> None:
    with warrenmq.Queue(world.folder / "simple", codec=codec) as simple:
        item = {"bytes": b"item"}.get(codec, "item")

        def calls() -> None:
            for name in public(warrenmq.Queue):
                if name == "close":
                    continue  # it takes nothing
                for what, arguments in odd_calls(getattr(simple, name), {"item": item, "items": [item]}):
                    if name in ("get", "get_nowait"):
                        simple.put(item)
                    if name == "join":
                        while simple.qsize():
                            simple.get()
                        with suppress(ValueError):
                            while True:
                                simple.task_done()
                    world.call(f"{codec}: QueueHandle.{name}({what})", getattr(simple, name), arguments)

        world.run(calls)


def test_asyncio(world: World) -> None:
    async def face() -> None:
        async with aio.open(world.folder / "aio") as broker:
            target = await broker.declare_queue("target")
            for subject in (broker, target, target.consume()):
                for name in public(type(subject)):
                    if name in ("start", "close"):
                        continue
                    for what, arguments in islice(odd_calls(getattr(subject, name)), 0, None, OTHER_FACES):
                        if name == "get":
                            await target.publish(b"to be got")
                        label = f"aio: {type(subject).__name__}.{name}({what})"
                        world.calls += 1
                        world.now = label
                        try:
                            result = getattr(subject, name)(**arguments)
                            if inspect.isawaitable(result):
                                await result
                        except BaseException as error:
                            if (problem := wrong_refusal(label, error)) is not None:
                                world.problems.append(f"{label}: {problem}")
                        if name.startswith("set_"):
                            await broker.set_vm_memory_high_watermark(0.9)
                            await broker.set_disk_free_limit(0)
                        assert broker.sync.is_open, f"{label} took the broker down"
            await target.publish(b"still served")
            assert not [actor for actor in (await broker.stats()).actors if actor.restarts]

    world.run(lambda: asyncio.run(face()))


class Child(Server):
    """A child that does nothing."""


def test_supervisors(world: World) -> None:
    runtime = Threads()
    try:
        good = {"id": "child", "actor": Child, "child": ChildSpec("child", Child)}

        def calls() -> None:
            for what, arguments in odd_calls(ChildSpec, good):
                world.call(f"ChildSpec({what})", ChildSpec, arguments)
            options = {
                "children": [ChildSpec("child", Child)],
                "strategy": "one_for_one",
                "intensity": 1,
                "period": 5.0,
            }
            for option in options:
                for name, make in odd_values(option).items():
                    given = {"runtime": runtime} | options | {option: make()}
                    ref = world.call(f"start_link({option}={name})", Supervisor.start_link, given)
                    if ref is not None:
                        runtime.stop_actor(ref)
            supervisor = Supervisor.start_link(runtime=runtime, children=[])
            for ask in (start_child, stop_child, restart_child, delete_child):
                for name, make in odd_values("id").items():
                    world.call(
                        f"{ask.__name__}({name})",
                        lambda value, ask=ask: ask(runtime, supervisor, value),
                        {"value": make()},
                    )
            start_child(runtime, supervisor, ChildSpec("alive", Child))
            assert [each.id for each in which_children(runtime, supervisor)] == ["alive"]

        world.run(calls)
    finally:
        runtime.shutdown()


def test_a_simulated_machine_refuses_what_it_cannot_use() -> None:
    with pytest.raises(warrenmq.ArgumentTypeError, match="settings is of type dict; give a"):
        SimulatedMachine(settings={"durability": "os"})  # type: ignore[arg-type]
    with SimulatedMachine() as machine, pytest.raises(warrenmq.Error, match="no trace to save"):
        machine.save_trace("trace")
