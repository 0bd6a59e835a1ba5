"""Durable actors: each message is handled, its effects happen together, and nothing is lost with the actor or the process."""

import gc
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar
from weakref import ref

import pykka
import pytest

import warrenmq
from tests.support.limits import LIMIT
from warrenmq.broker.delivery import Delivery
from warrenmq.durable_actors.snapshot import FOLDER, Snapshot
from warrenmq.errors import ArgumentTypeError, ArgumentValueError, AskFailed, CorruptFile
from warrenmq.supervisors import ChildSpec, Supervisor


@dataclass
class Add:
    number: int


@dataclass
class Total:
    pass


@dataclass
class Fail:
    times: int


@dataclass
class Unlisted:
    pass


class Adder(warrenmq.DurableActor):
    messages = (Add, Total, Fail)
    retries = {"max_attempts": 3, "backoff": 0}
    failures = 0

    def initial_state(self):
        return {"total": 0, "numbers": []}

    def on_receive(self, message):
        match message:
            case Add(number):
                self.state["total"] += number
                self.state["numbers"].append(number)
            case Total():
                return self.state
            case Fail(times):
                self.state["total"] += 1_000_000
                Adder.ref(self.broker).tell(Add(1_000_000))
                Adder.failures += 1
                if Adder.failures <= times:
                    raise ValueError("as asked")
        return None


@pytest.fixture
def broker(tmp_path):
    Adder.failures = 0
    with warrenmq.open(tmp_path / "data") as opened:
        yield opened


@pytest.fixture(autouse=True)
def _stopped():
    """All actors of a test end before its broker does, or with it."""
    yield
    pykka.ActorRegistry.stop_all()


def started(broker, actor=Adder):
    return broker.runtime.start(actor, broker)


def supervised(broker, actor):
    return Supervisor.start_link(
        strategy="one_for_one",
        intensity=3,
        period=10.0,
        children=[ChildSpec("adder", actor, args=(broker,), name="adder")],
        runtime=broker.runtime,
    )


def started_and_idle(broker, actor):
    """An actor that has handled and acked all that it was told."""
    running = started(broker, actor)
    settled(
        broker,
        lambda: not broker.queue(actor.__name__).info().ready + broker.queue(actor.__name__).info().unacked,
    )
    return running


def total(broker):
    return Adder.ref(broker).ask(Total(), timeout=LIMIT)["total"]


def test_messages_wait_for_an_actor_and_are_handled_in_order(broker):
    adder = Adder.ref(broker)
    for number in range(200):
        adder.tell(Add(number))
    adder.tell(Add(200)).result(LIMIT)
    started(broker)
    assert adder.ask(Total(), timeout=LIMIT) == {"total": sum(range(201)), "numbers": list(range(201))}


def test_the_reference_of_pykka_tells_and_asks_durably(broker):
    adder = started(broker)
    adder.tell(Add(1))
    assert adder.ask(Total(), timeout=LIMIT)["total"] == 1
    assert adder.ask(Total(), block=False).get(timeout=LIMIT)["total"] == 1
    assert adder.stop()
    adder.tell(Add(2))  # its queue takes it
    started(broker)
    assert total(broker) == 3


def test_a_message_that_fails_has_no_effect_and_is_tried_again(broker):
    started(broker)
    Adder.ref(broker).tell(Fail(times=2))
    settled(broker, lambda: total(broker) == 2_000_000)
    assert Adder.failures == 3


def settled(broker, condition):
    """Wait for what must happen."""
    pause = broker.runtime.event()
    for _ in range(round(LIMIT) * 50):
        if condition():
            return
        pause.wait(0.02)
    raise AssertionError("it did not happen")


def test_a_message_that_fails_too_often_is_given_up_and_its_asker_hears_of_it(broker):
    started(broker)
    with pytest.raises(AskFailed, match="as asked"):
        Adder.ref(broker).ask(Fail(times=99), timeout=LIMIT)
    assert Adder.failures == 3
    assert total(broker) == 0
    dead = broker.queue("Adder-failed").get(timeout=LIMIT)
    assert dead.properties.type == "Fail"
    assert dead.properties.headers["x-death"][0]["count"] == 3


@pytest.mark.parametrize(("body", "kind"), [(b"\xc1", None), (b"\x80", "Add"), (b"\x01", "Unknown")])
def test_a_message_that_cannot_be_decoded_is_given_up_at_once(broker, body, kind):
    started(broker)
    properties = warrenmq.Properties(type=kind)
    broker.publish("", "Adder", body, properties=properties).result(LIMIT)
    assert broker.queue("Adder-failed").get(timeout=LIMIT).body == body
    assert total(broker) == 0


def test_the_same_id_counts_once(broker):
    adder = Adder.ref(broker)
    for _ in range(3):
        adder.tell(Add(5), message_id="five")
    started(broker)
    assert total(broker) == 5


def test_a_message_is_acked_behind_the_state_that_it_made(broker, monkeypatch):
    done = []

    def noted(of, name):
        original = getattr(of, name)
        monkeypatch.setattr(of, name, lambda *args: (done.append(name), original(*args))[1])

    noted(Snapshot, "write")
    noted(Delivery, "ack")
    Adder.ref(broker).tell(Add(1))
    started(broker)
    settled(broker, lambda: len(done) >= 2)
    assert done[:2] == ["write", "ack"]


def test_state_and_messages_are_there_when_the_directory_is_opened_again(tmp_path):
    with warrenmq.open(tmp_path) as broker:
        actor = started(broker)
        Adder.ref(broker).tell(Add(1))
        assert total(broker) == 1
        broker.runtime.stop_actor(actor)
        Adder.ref(broker).tell(Add(2)).result(LIMIT)
    with warrenmq.open(tmp_path) as broker:
        started(broker)
        assert total(broker) == 3


def test_a_new_incarnation_takes_what_a_killed_one_held(broker):
    app = supervised(broker, Adder)
    adder = Adder.ref(broker)
    for number in range(300):
        adder.tell(Add(number))
        if number == 100:
            broker.runtime.kill(broker.runtime.whereis("adder"))
    settled(broker, lambda: total(broker) == sum(range(300)))
    broker.runtime.stop_actor(app)


class DiesOnce(Adder):
    """Is killed while it handles its first message, with others at hand."""

    lives = 0

    def on_receive(self, message):
        if not DiesOnce.lives:
            DiesOnce.lives = 1
            self.broker.runtime.kill(self.actor_ref)
        return super().on_receive(message)


def test_a_killed_incarnation_gives_back_what_it_had_at_hand(broker):
    """It stayed unacked, with a consumer that was gone, for a minute."""
    for number in range(100):
        DiesOnce.ref(broker).tell(Add(number))
    app = supervised(broker, DiesOnce)
    queue = broker.queue("DiesOnce")
    settled(broker, lambda: not queue.info().ready and not queue.info().unacked)
    assert DiesOnce.ref(broker).ask(Total(), timeout=LIMIT)["total"] == sum(range(100))
    broker.runtime.stop_actor(app)


def test_an_actor_is_started_again_though_its_queue_was_deleted(broker):
    started(broker).tell(Add(1))
    assert total(broker) == 1
    broker.queue("Adder").delete()
    started(broker).tell(Add(2))
    assert total(broker) == 3


def test_a_broker_that_is_closed_is_not_kept(tmp_path):
    with warrenmq.open(tmp_path / "data") as opened:
        adder = started(opened)
        assert total(opened) == 0
        opened.runtime.stop_actor(adder)
    kept = ref(opened)
    del opened, adder
    gc.collect()
    assert kept() is None


class Slow(warrenmq.DurableActor):
    """Waits in its first message until it is let go."""

    entered, go = threading.Event(), threading.Event()
    seen: list = []

    def on_receive(self, message):
        Slow.seen.append(message)
        if len(Slow.seen) == 1:
            Slow.entered.set()
            Slow.go.wait(LIMIT)
        return message


def test_an_incarnation_that_lost_its_address_acks_nothing(broker):
    ref = Slow.ref(broker)
    ref.tell("one").result(LIMIT)
    first = started(broker, Slow)
    assert Slow.entered.wait(LIMIT)
    started(broker, Slow)
    settled(broker, lambda: len(Slow.seen) == 2)
    Slow.go.set()
    assert ref.ask("two", timeout=LIMIT) == "two"
    assert Slow.seen == ["one", "one", "two"]
    settled(broker, lambda: broker.queue("Slow").info().unacked == 0)  # the ack follows the answer
    broker.runtime.stop_actor(first)


class Sum(warrenmq.DurableActor):
    """Adds numbers to its state; any other message is what the state becomes."""

    retries = {"max_attempts": 1}

    def initial_state(self):
        return {"total": 0}

    def on_receive(self, message):
        if isinstance(message, int):
            self.state["total"] += message
        elif message != "total":
            self.state = message
        return self.state and self.state["total"]


def test_ids_are_kept_of_messages_that_undid_each_other(broker):
    """Their state is what it was; but a crash may leave the ack of one on the disk and not that of the other."""
    ref = Sum.ref(broker)
    ref.tell(0, message_id="first").result(LIMIT)
    broker.runtime.stop_actor(started_and_idle(broker, Sum))
    ref.tell(1, message_id="more")
    ref.tell(-1, message_id="less").result(LIMIT)
    broker.runtime.stop_actor(started_and_idle(broker, Sum))
    ref.tell(-1, message_id="less").result(LIMIT)
    started(broker, Sum)
    assert ref.ask("total", timeout=LIMIT) == 0


def test_an_incarnation_that_is_about_to_write_its_state_writes_it_before_its_successor_reads_it(
    broker, monkeypatch
):
    writes, write_now, original = threading.Event(), threading.Event(), Snapshot.write

    def write(snapshot):
        if not writes.is_set():
            writes.set()
            write_now.wait(LIMIT)
        original(snapshot)

    monkeypatch.setattr(Snapshot, "write", write)
    ref = Sum.ref(broker)
    ref.tell(1)
    running = [started(broker, Sum)]
    assert writes.wait(LIMIT)
    successor = threading.Thread(target=lambda: running.append(started(broker, Sum)))
    successor.start()
    ref.tell(10).result(LIMIT)
    for _ in range(2):  # a successor that does not wait has written its own state before the second answer
        with suppress(pykka.Timeout):
            ref.ask("total", timeout=0.5)
    write_now.set()
    successor.join(LIMIT)
    assert ref.ask("total", timeout=LIMIT) == 11
    for each in running:
        broker.runtime.stop_actor(each)
    started(broker, Sum)
    assert ref.ask("total", timeout=LIMIT) == 11


def test_a_state_does_not_become_none(broker):
    """None is an actor without a state, of which no snapshot is written: the one before would come back."""
    started(broker, Sum)
    ref = Sum.ref(broker)
    assert ref.ask(7, timeout=LIMIT) == 7
    with pytest.raises(AskFailed, match="cannot become None"):
        ref.ask(None, timeout=LIMIT)
    assert ref.ask("total", timeout=LIMIT) == 7


def test_an_ask_that_nobody_answers_times_out(broker):
    with pytest.raises(pykka.Timeout, match=r"no answer of Adder in 0\.01 s"):
        Adder.ref(broker).ask(Total(), timeout=0.01)


def test_a_message_can_be_delayed(broker):
    started(broker)
    Adder.ref(broker).tell(Add(1), delay=0.05).result(LIMIT)
    settled(broker, lambda: total(broker) == 1)


def test_a_message_that_cannot_be_written_is_refused_where_it_is_sent(broker):
    with pytest.raises(ArgumentTypeError, match="not among the messages"):
        Adder.ref(broker).tell(Unlisted())
    with pytest.raises(ArgumentTypeError):
        Adder.ref(broker).tell(object())


class Strange(warrenmq.DurableActor):
    retries = {"max_attempts": 1}

    def initial_state(self):
        return {}

    def on_receive(self, message):
        self.state["odd"] = object() if message == "state" else 1
        return object() if message == "answer" else self.state.get("odd")


def test_a_state_or_an_answer_that_cannot_be_written_is_a_failure_of_the_message(broker):
    started(broker, Strange)
    ref = Strange.ref(broker)
    for message in ("state", "answer"):
        with pytest.raises(AskFailed, match="cannot be written"):
            ref.ask(message, timeout=LIMIT)
    assert ref.ask("fine", timeout=LIMIT) == 1


class Odd(warrenmq.DurableActor):
    codec = "pickle"


def test_there_is_no_pickle(broker):
    with pytest.raises(ArgumentValueError, match="codec"):
        Odd.ref(broker)


def test_a_damaged_snapshot_is_not_taken_for_an_empty_state(tmp_path):
    with warrenmq.open(tmp_path) as broker:
        started(broker)
        Adder.ref(broker).tell(Add(1))
        assert total(broker) == 1
    [path] = tmp_path.glob(f"msg_stores/vhosts/*/{FOLDER}/*")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with warrenmq.open(tmp_path) as broker, pytest.raises(CorruptFile, match="begin anew"):
        started(broker)


def test_retries_that_retry_policy_does_not_take_are_refused(broker):
    class Wrong(warrenmq.DurableActor):
        retries: ClassVar = {"max_attempt": 3}

    with pytest.raises(
        ArgumentTypeError, match="retries has 'max_attempt', which is none of max_attempts, backoff"
    ):
        Wrong.ref(broker)
