"""Durable actors on a simulated machine: faults that come at a moment of the test's choice."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

import warrenmq
from warrenmq.actors.vhost.vhost import queue_name
from warrenmq.errors import AskFailed, Blocked
from warrenmq.supervisors import ChildSpec, Supervisor
from warrenmq.testing import SimulatedMachine


@dataclass
class Pay:
    amount: int


@dataclass
class Buy:
    """A payment behind a question for the price."""


@dataclass
class Price:
    """A question that changes the state: each time it is dearer."""


@dataclass
class Quit:
    pass


@dataclass
class State:
    pass


class Payer(warrenmq.DurableActor):
    messages = (Pay, Buy, State)
    retries: ClassVar = {"max_attempts": 1}
    handled: ClassVar[list[Any]] = []
    fails: ClassVar[Callable[[], bool]]

    def initial_state(self) -> Any:
        return {"left": 100, "paid": []}

    def on_receive(self, message: Any) -> Any:
        if isinstance(message, State):
            return self.state
        Payer.handled.append(message)
        amount = message.amount if isinstance(message, Pay) else Shop.ref(self.broker).ask(Price())
        self.state["left"] -= amount
        self.state["paid"].append(amount)
        if Payer.fails():
            raise ValueError("as asked")
        Shop.ref(self.broker).tell(Pay(amount))
        return None


class Patient(Payer):
    """A payer that tries again."""

    retries: ClassVar = {"max_attempts": 3, "backoff": 1.0}


class Shop(warrenmq.DurableActor):
    messages = (Pay, Price, Quit, State)

    def initial_state(self) -> Any:
        return {"got": 0, "price": 6}

    def on_receive(self, message: Any) -> Any:
        match message:
            case Pay(amount):
                self.state["got"] += amount
            case Price():
                self.state["price"] += 1
                return self.state["price"]
            case Quit():
                self.stop()
            case State():
                return self.state
        return None


@pytest.fixture
def machine():
    Payer.handled.clear()
    Payer.fails = lambda: False
    with SimulatedMachine(seed=5) as made:
        yield made


def start(broker, *actors):
    return [broker.runtime.start(each, broker) for each in actors]


def state(broker, actor):
    return actor.ref(broker).ask(State(), timeout=60)


def kill_queue(machine, actor):
    machine.sim.kill(machine.broker.runtime.whereis(queue_name(actor.__name__)))


def test_what_a_message_led_to_does_not_outlive_it(machine):
    """A message may be handled before it is on the disk; in a power cut then nothing of it is left."""
    operation, came = 0, True
    while came:
        operation += 1
        broker = machine.open()
        start(broker, Payer, Shop)
        assert state(broker, Payer)["left"] + state(broker, Shop)["got"] == 100, operation
        with machine.crash_at(operation, power_cut=True) as outage:
            Payer.ref(broker).tell(Pay(1))
            machine.sleep(0.1)
        came = outage.came


def test_what_was_answered_is_on_the_disk():
    for seed in range(8):
        with SimulatedMachine(seed) as machine:
            broker = machine.open()
            start(broker, Shop)
            assert Shop.ref(broker).ask(Price()) == 7
            machine.crash(power_cut=True)
            broker = machine.open()
            start(broker, Shop)
            assert state(broker, Shop)["price"] == 7, seed


def test_a_state_that_was_written_when_the_process_was_killed_outlives_a_power_cut():
    """The kill may come between the rename of the file and the sync of its folder."""
    for operation in range(1, 60):
        with SimulatedMachine(1) as machine:
            broker = machine.open()
            start(broker, Shop)
            state(broker, Shop)
            with machine.crash_at(operation, power_cut=False) as outage:
                Shop.ref(broker).tell(Pay(5)).result()
                machine.sleep(1)
            if not outage.came:
                return
            broker = machine.open()
            start(broker, Shop)
            machine.sleep(1)
            there = state(broker, Shop)
            machine.crash(power_cut=True)
            broker = machine.open()
            start(broker, Shop)
            assert state(broker, Shop) == there
    raise AssertionError("it takes more operations than that")


def test_a_question_that_is_asked_again_has_the_answer_that_it_had(machine):
    """An answer is kept with the id of its question, so that the one who is asked changes no state a second time."""
    broker = machine.open()
    _, shop = start(broker, Patient, Shop)
    Payer.fails = lambda: len(Payer.handled) == 1
    Patient.ref(broker).tell(Buy())
    machine.wait_until(lambda: len(broker.queue("Patient")) == 0 and bool(Payer.handled))
    machine.sleep(0.5)
    broker.runtime.stop_actor(shop)
    start(broker, Shop)
    machine.wait_until(lambda: state(broker, Shop)["got"] == 7)
    assert len(Payer.handled) == 2
    assert state(broker, Patient)["paid"] == [7]
    assert state(broker, Shop)["price"] == 7


class Till(warrenmq.DurableActor):
    """Takes money, says how much there is, and pays ten, or tells the Asker that there are none."""

    def initial_state(self) -> Any:
        return {"money": 0}

    def on_receive(self, message: Any) -> Any:
        if message == "pay":
            if is_rich := self.state["money"] >= 10:
                self.state["money"] -= 10
            Asker.ref(self.broker).tell(is_rich)
        elif message != "how much":
            self.state["money"] += message
        return self.state["money"]


class Asker(warrenmq.DurableActor):
    """Notes what it is told; asked to look, it fails the first time, behind the answer."""

    retries: ClassVar = {"max_attempts": 3, "backoff": 5.0}
    answers: ClassVar[list[int]] = []

    def initial_state(self) -> Any:
        return []

    def on_receive(self, message: Any) -> Any:
        if message == "look":
            self.answers.append(Till.ref(self.broker).ask("how much"))
            if len(self.answers) == 1:
                raise ValueError("as asked")
        elif isinstance(message, bool):
            self.state.append(message)
        return self.state


def restarted(machine, actor, ref):
    machine.sleep(1)
    machine.broker.runtime.stop_actor(ref)
    return start(machine.broker, actor)[0]


def test_a_question_that_changed_nothing_is_known_after_a_restart_as_well(machine):
    Asker.answers.clear()
    broker = machine.open()
    _, till = start(broker, Asker, Till)
    Till.ref(broker).tell(1).result()
    till = restarted(machine, Till, till)
    Asker.ref(broker).tell("look").result()
    restarted(machine, Till, till)
    Till.ref(broker).tell(10).result()
    machine.wait_until(lambda: len(Asker.answers) == 2)
    assert Asker.answers == [1, 1]


def test_a_message_that_told_something_and_changed_nothing_is_known_after_a_restart_as_well(machine):
    broker = machine.open()
    _, till = start(broker, Asker, Till)
    Till.ref(broker).tell(1).result()
    till = restarted(machine, Till, till)
    Till.ref(broker).tell("pay", message_id="once").result()
    restarted(machine, Till, till)
    Till.ref(broker).tell(10).result()
    Till.ref(broker).tell("pay", message_id="once").result()
    assert Till.ref(broker).ask("how much") == 11
    assert Asker.ref(broker).ask("all") == [False]


def test_an_ask_whose_question_is_lost_fails(machine):
    broker = machine.open()
    asked = Shop.ref(broker).ask(Price(), block=False)
    kill_queue(machine, Shop)
    with pytest.raises(AskFailed):
        asked.get(timeout=60)


@pytest.mark.parametrize("ends", ["killed", "deleted"])
def test_the_queue_for_answers_may_end(machine, ends):
    """An asker hears that, and the next question has another queue; one that was restarted does not stay."""
    broker = machine.open()
    Shop.ref(broker)
    before = {queue.name for queue in broker.queues()}

    def of_answers():
        return {queue.name for queue in broker.queues()} - before

    asked = Shop.ref(broker).ask(Price(), block=False)
    [name] = of_answers()
    if ends == "killed":
        machine.sim.kill(broker.runtime.whereis(queue_name(name)))
    else:
        broker.queue(name).delete()
    with pytest.raises(AskFailed, match="queue for answers is gone"):
        asked.get(timeout=60)
    start(broker, Shop)
    assert state(broker, Shop)["price"] == 7
    assert len(of_answers()) == 1


def test_a_receiver_that_is_restarted_costs_no_attempt(machine):
    broker = machine.open()
    start(broker, Payer, Shop)
    killed = []

    def before_op(op, path):
        machine.before_op(op, path)
        if Payer.handled and not killed and op == "append" and machine.sim.running == queue_name("Shop"):
            killed.append(path)
            kill_queue(machine, Shop)

    machine.disk.before_op = before_op
    Payer.ref(broker).tell(Pay(1))
    machine.wait_until(lambda: bool(killed))
    assert state(broker, Payer)["paid"] == [1]
    assert state(broker, Shop)["got"] == 1
    assert len(broker.queue("Payer-failed")) == 0


@pytest.mark.parametrize("kills", [True, False])
def test_a_successor_handles_messages_in_their_order(kills):
    """Those that its predecessor held come back before it is given any."""
    for seed in range(5):
        with SimulatedMachine(seed) as machine:
            Payer.handled.clear()
            Payer.fails = lambda: False
            broker = machine.open()
            (payer,) = start(broker, Payer)
            for amount in range(100):
                Payer.ref(broker).tell(Pay(amount))
            machine.wait_until(lambda: len(Payer.handled) > 3)
            if kills:
                machine.sim.kill(payer)
            else:
                broker.runtime.stop_actor(payer)
            start(broker, Payer)
            machine.wait_until(lambda of=broker: len(state(of, Payer)["paid"]) == 100)
            assert state(broker, Payer)["paid"] == [*range(100)]


def test_an_actor_that_is_killed_while_it_starts_holds_nothing_back(machine):
    broker = machine.open()
    confirms = [Payer.ref(broker).tell(Pay(amount)) for amount in range(20)]
    confirms[-1].result()
    app = Supervisor.start_link(
        children=[ChildSpec("payer", Payer, args=(broker,), name="payer")],
        intensity=100, period=1.0, strategy="one_for_one", runtime=broker.runtime,
    )  # fmt: skip
    for moment in range(60):
        first = broker.runtime.whereis("payer")
        machine.sim.kill(first)
        machine.wait_until(
            lambda old=first: (
                broker.runtime.is_registered("payer") and broker.runtime.whereis("payer") is not old
            )
        )
        for _ in range(moment):
            machine.sim.checkpoint()
    assert state(broker, Payer)["paid"] == [*range(20)]
    broker.runtime.stop_actor(app)


def test_a_state_that_finds_no_room_is_written_when_there_is_some(machine):
    broker = machine.open()
    (shop,) = start(broker, Shop)
    machine.disk.fail_next("append", ".snapshot.tmp", errno.ENOSPC)
    Shop.ref(broker).tell(Pay(3)).result()
    machine.sleep(5)
    assert shop.is_alive()
    machine.crash(power_cut=True)
    broker = machine.open()
    start(broker, Shop)
    assert state(broker, Shop)["got"] == 3


@pytest.mark.parametrize("delays", [True, False])
def test_a_message_that_fails_while_the_disk_is_full_is_not_tried_a_thousand_times(machine, delays):
    """There is no room for the copy that would come later, so it comes again as it is."""
    machine.disk.tells_room = True
    broker = machine.open()
    if delays:
        broker.inside.client.have_later()
    (payer,) = start(broker, Patient)
    Patient.ref(broker).tell(Pay(3)).result()
    machine.wait_until(lambda: state(broker, Patient)["paid"] == [3])

    def fails():
        machine.disk.free_bytes = 0
        return len(Payer.handled) < 5

    Payer.fails = fails
    Patient.ref(broker).tell(Pay(4)).result()
    machine.sleep(2)
    assert payer.is_alive()
    assert 1 < len(Payer.handled) < 5
    machine.disk.free_bytes = None
    Payer.fails = lambda: False
    machine.wait_until(lambda: state(broker, Patient)["paid"] == [3, 4])


class Filler(warrenmq.DurableActor):
    """Fills the disk before it answers."""

    machine: ClassVar[SimulatedMachine]

    def on_receive(self, message: Any) -> Any:
        self.machine.disk.free_bytes = 0
        return message


def test_an_answer_that_finds_no_room_comes_when_there_is_some(machine):
    machine.disk.tells_room = True
    Filler.machine = machine
    broker = machine.open()
    start(broker, Filler)
    asked = Filler.ref(broker).ask("a question", block=False)
    machine.sleep(3)
    machine.disk.free_bytes = None
    assert asked.get(timeout=60) == "a question"


def test_an_ask_that_an_alarm_holds_up_keeps_its_timeout(machine):
    broker = machine.open()
    start(broker, Shop)
    broker.set_disk_free_limit(1 << 60)
    began = machine.sim.monotonic_ns()
    with pytest.raises(Blocked, match="disk alarm"):
        Shop.ref(broker).ask(Price(), timeout=3)
    assert machine.sim.monotonic_ns() - began < 4_000_000_000
    broker.set_disk_free_limit(0)
    assert Shop.ref(broker).ask(Price(), timeout=3) == 7


@pytest.mark.parametrize("raised", [SystemExit, asyncio.CancelledError])
def test_a_message_that_ends_in_what_is_no_exception_is_a_failed_one(raised, tmp_path):
    class Exiting(warrenmq.DurableActor):
        retries = {"max_attempts": 1}

        def on_receive(self, message):
            raise raised

    with warrenmq.open(tmp_path) as broker:
        actor = broker.runtime.start(Exiting, broker)
        with pytest.raises(AskFailed, match=raised.__name__):
            Exiting.ref(broker).ask("exit", timeout=10)
        assert actor.is_alive()
        broker.runtime.stop_actor(actor)
        assert len(broker.queue("Exiting-failed")) == 1


def test_an_actor_may_stop_itself(machine):
    """Pykka's message for that is none of its queue."""
    broker = machine.open()
    (shop,) = start(broker, Shop)
    Shop.ref(broker).tell(Quit()).result()
    machine.wait_until(lambda: not shop.is_alive())
    machine.sleep(1)
    assert not broker.queue("Shop").peek()


def test_an_actor_whose_queue_is_deleted_stops(machine):
    broker = machine.open()
    (shop,) = start(broker, Shop)
    broker.queue("Shop").delete()
    machine.wait_until(lambda: not shop.is_alive())
    Shop.ref(broker)


def test_an_actor_whose_broker_is_closed_in_the_middle_of_a_message_stops(machine):
    broker = machine.open()
    payer, shop = start(broker, Payer, Shop)
    Payer.ref(broker).tell(Pay(1)).result()
    broker.close()
    machine.wait_until(lambda: not payer.is_alive() and not shop.is_alive())
    broker = machine.open()
    start(broker, Payer, Shop)
    machine.wait_until(lambda: state(broker, Shop)["got"] == 1)
    assert state(broker, Payer)["left"] == 99
