"""Queues that are deleted: what is left of them, and of those that have no process when they are."""

from __future__ import annotations

import gc
from types import FunctionType, ModuleType

import pytest

import warrenmq
from tests.support.simulated import SMALL, SimulatedHost, take_all
from warrenmq.actors.sending.message_sender import MessageSender
from warrenmq.actors.vhost import queue_declarations
from warrenmq.actors.vhost.vhost import queue_name
from warrenmq.lens.fold import Folding
from warrenmq.lens.tables import ACTOR, ENTRY
from warrenmq.replay.export.selection import rows_in_order
from warrenmq.settings import Settings
from warrenmq.trace.events import Ev
from warrenmq.trace.reader import open_memory

SLEEPY = Settings(
    queue_sleep_after=100, queue_index_embed_msgs_below=100, commit_log=True, disk_free_limit=0.0
)
"""With a commit log, and with queues that sleep soon."""
STORES = "msg_store_persistent", "msg_store_transient"


def texts_in(root: object) -> set[str]:
    """All texts that an object leads to, but for the senders', which look for dead queues when they know many."""
    passed_over = ModuleType | FunctionType | type | MessageSender
    seen, found, work = {id(root)}, set[str](), [root]
    while work:
        top = work.pop()
        keys = top if isinstance(top, dict) else ()  # which are none of its referents if they are texts
        for each in (*gc.get_referents(top), *keys):
            if isinstance(each, str):
                found.add(each)
            elif id(each) not in seen and not isinstance(each, passed_over):
                seen.add(id(each))
                work.append(each)
    return found


@pytest.mark.parametrize("sleeps", [True, False])
def test_nothing_remembers_a_queue_that_is_deleted(sleeps, monkeypatch):
    monkeypatch.setattr(queue_declarations, "MANY_DELETED", 3)
    with SimulatedHost(1, SLEEPY, traced=False) as host:
        broker = host.open()
        for number, arguments in enumerate([{}, {"x-expires": 50_000}, {"x-max-priority": 1}]):
            queue = broker.declare_queue(f"gone-{number}", arguments=arguments)
            broker.bind(queue, "amq.topic", "a.*")
            broker.publish("amq.topic", "a.b", b"x" * 500).result()
            queue.publish(b"small", persistent=False)
            queue.get().nack()
            queue.get(no_ack=True)
            queue.get(no_ack=True)
            if sleeps:
                host.sleep(1)
                assert (queue.name in broker.inside.vhost.asleep) is ("x-expires" not in arguments)
            queue.delete()
        del queue
        host.sleep(100)  # timers of what is gone come to an end
        gc.collect()
        stores = [host.sim.whereis(name)._actor_weakref() for name in STORES]
        assert [each for each in texts_in([broker, host.sim, stores]) if "gone-" in each] == []
        broker.close()


@pytest.mark.parametrize("body", [b"small", b"large" * 100])
def test_a_queue_that_cannot_be_restarted_is_deleted_unless_it_must_be_empty(body):
    with SimulatedHost(1, SMALL) as host:
        broker = host.open()
        queue, other = broker.declare_queue("q"), broker.declare_queue("other")
        for each in (queue, queue, other):
            each.publish(body).result()
        host.disk.reads_fail = True
        host.sim.kill(host.sim.whereis(queue_name("q")))
        host.sleep(0.1)
        with pytest.raises(warrenmq.PreconditionFailed, match="may not be empty") as refused:
            queue.delete(if_empty=True)
        assert refused.value.reply_text == "queue 'q' in vhost '/' not empty"
        host.disk.reads_fail = False
        host.sleep(2)
        assert len(queue) == 2
        host.disk.reads_fail = True
        host.sim.kill(host.sim.whereis(queue_name("q")))
        host.sleep(0.1)
        assert queue.delete() == 0
        host.disk.reads_fail = False
        store = broker.stats().stores[0]
        assert (store.messages, store.references) == ((1, 1) if len(body) > 100 else (0, 0))
        assert [each.name for each in broker.queues()] == ["other"]
        assert len(host.disk.listdir(broker.inside.vhost.directory.queues)) == 1
        assert take_all(other) == [body]
        broker.close()
        host.check_trace()


@pytest.mark.parametrize("body", [b"small", b"large" * 100])
def test_a_queue_that_was_deleted_without_its_process_is_missing_nothing_when_it_is_declared_again(body):
    with SimulatedHost(1, SMALL) as host:
        broker = host.open()
        queue = broker.declare_queue("q")
        queue.publish_many([body, body]).result()
        host.disk.reads_fail = True
        host.sim.kill(host.sim.whereis(queue_name("q")))
        host.sleep(0.1)
        assert queue.delete() == 0
        host.disk.reads_fail = False
        broker.declare_queue("q").publish(body).result()
        broker.close()
        assert take_all(host.open().queue("q")) == [body]
        host.broker.close()
        host.check_trace()
        trace = open_memory(host.sink.files())
        folding = Folding(trace.catalog.runs)
        for run, row in rows_in_order(trace):
            folding.step(run, row)
            if row.event == Ev.QUEUE_DELETED:
                assert not [key for key in folding.tables[ENTRY] if key.startswith("q/")]
        assert "QueueDeletion" not in {kind for _, kind, *_ in folding.tables[ACTOR].values()}


def test_the_messages_of_a_delayed_exchange_are_not_missed_when_a_kill_cuts_its_deletion_off():
    """The log has the deletion before the queue in which they wait hears of it."""
    with SimulatedHost(1, SMALL) as host:
        broker = with_a_delayed_message(host)
        with host.crash_at(1, power_cut=False, counts=lambda op: op == "datasync") as outage:
            broker.delete_exchange("x")
        assert outage.came
        for _ in range(2):
            with_a_delayed_message(host).close()
        host.check_trace()


def with_a_delayed_message(host):
    broker = host.open()
    broker.declare_exchange("x", "x-delayed-message", arguments={"x-delayed-type": "fanout"})
    broker.declare_queue("q")
    broker.bind("q", "x")
    broker.publish("x", "", b"m", headers={"x-delay": 1_000_000}).result()
    return broker


def test_a_queue_that_falls_asleep_as_it_is_deleted_is_looked_into(monkeypatch):
    """Its process ends between the look whether it sleeps and the request."""
    with SimulatedHost(1, SLEEPY) as host:
        broker = host.open()
        queue = broker.declare_queue("q")
        queue.publish(b"x").result()
        asleep = broker.inside.vhost.asleep
        asked = queue_declarations.QueueDeclarations._ask_to_delete

        def late(declarations, name, request):
            process = declarations._process
            call = process.call

            def sleeps_first(*request, **options):
                process.call = call
                host.wait_until(lambda: name in asleep)
                return call(*request, **options)

            process.call = sleeps_first
            return asked(declarations, name, request)

        monkeypatch.setattr(queue_declarations.QueueDeclarations, "_ask_to_delete", late)
        with pytest.raises(warrenmq.PreconditionFailed, match="it has 1 ready messages"):
            queue.delete(if_empty=True)
        assert queue.delete() == 1
        broker.close()


def test_a_queue_that_is_forgotten_does_not_come_back(monkeypatch):
    """The power goes at each operation of its deletion, and behind it."""
    monkeypatch.setattr(queue_declarations, "MANY_DELETED", 1)
    came, operation = True, 0
    while came:
        operation += 1
        with SimulatedHost(operation, SMALL, traced=False) as host:
            broker = host.open()
            queue = broker.declare_queue("q", arguments={"x-max-priority": 1})
            queue.publish(b"x").result()
            is_deleted = False
            with host.crash_at(operation, power_cut=True) as outage:
                queue.delete()
                is_deleted = True
                assert broker.inside.vhost.definitions.gone == {}
            if not (came := outage.came):
                host.crash(power_cut=True)
            broker = host.open()
            there = {queue.name for queue in broker.queues()}
            assert there <= (set() if is_deleted else {"q"}), operation
            assert [take_all(broker.queue(name)) for name in there] == [[b"x"]] * len(there)
            broker.close()
