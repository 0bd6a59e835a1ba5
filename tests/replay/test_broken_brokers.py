"""A broker that does something wrong is convicted by the rule about it; the same life of a right one is fine.

Each wrong is one method of the broker, replaced.  The replayed trace is of a simulated life with consumers that come and go
(some with deliveries on their way), acks with and without multiple, rejects, requeues, gets, a clean stop and a crash.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest

from tests.support.simulated import EVERY_KIND, SMALL, SimulatedHost
from warrenmq.actors.store.client import MsgStoreClient
from warrenmq.backing_queue.variable_queue import VariableQueue
from warrenmq.queue.channel_record import Consumer
from warrenmq.queue.output import QueueOutput
from warrenmq.queue.state import QueueState
from warrenmq.replay.drive.engine import replay_memory
from warrenmq.replay.drive.result import Result

BODIES = (b"small", b"L" * 700)
UNEXERCISED = {"C5", "X1", "Q2", "Q3", "Q7", "Q8", "R1", "R2", "S8", "S9", "W1"}
"""Events that this life of a broker does not bring about: limits, dead letters, crashes of processes, truncations, a minute
of silence, senders that are blocked.
"""


def life(host: SimulatedHost, *, kill: bool = False) -> Result:
    """Two runs, of which one may be killed, and what the replay says of them."""
    choose = random.Random(f"consuming {host.seed}")
    for run in range(2):
        broker = host.open()
        queue = broker.declare_queue("q")
        for _ in range(6):
            for _ in range(choose.randrange(3, 9)):
                queue.publish(choose.choice(BODIES))
            with queue.consume(prefetch=choose.choice((0, 3, 8))) as consumer:
                held = [each for _ in range(5) if (each := consumer.get(timeout=0.2)) is not None]
                for _ in range(3):
                    queue.publish(choose.choice(BODIES))
            choose.shuffle(held)
            for delivery in held:
                how = choose.randrange(5)
                if delivery.tag <= delivery._subscription.settled_up_to or delivery._settled:
                    continue
                if how < 2:
                    delivery.ack()
                elif how == 2:
                    delivery.ack(multiple=True)
                elif how == 3:
                    delivery.nack(multiple=choose.random() < 0.5)
            if (got := queue.get(0)) is not None and choose.random() < 0.7:
                got.reject(requeue=choose.random() < 0.3)
            host.sleep(0.5)
        if run == 0 and kill:
            host.crash(power_cut=choose.random() < 0.5)
        else:
            broker.close()
    assert host.sink is not None
    return replay_memory(host.sink.files())


def lived(seed: int, settings=SMALL, *, kill: bool = False) -> Result:
    with SimulatedHost(seed, settings) as host:
        return life(host, kill=kill)


@pytest.mark.parametrize("settings", EVERY_KIND)
def test_a_right_broker_is_fine_and_exercises_the_rules(settings):
    exercised = Counter[str]()
    for seed in range(2):
        found = lived(seed, settings, kill=seed % 2 == 0)
        assert found.verdict == "ok", found.violations
        for rule, n in found.figures["exercised"].items():
            exercised[rule] += n
    assert {rule for rule, n in exercised.items() if not n} <= UNEXERCISED


def _acks_another(original: Callable) -> Callable:
    def settle(self, tag, *, multiple):
        others = [each for each in self.unacked if each != tag]
        return original(self, others[-1] if others and not multiple else tag, multiple=multiple)

    return settle


def _acks_all_before(original: Callable) -> Callable:
    def settle(self, tag, *, multiple):
        del multiple
        return original(self, tag, multiple=True)

    return settle


def _acks_too_much(original: Callable) -> Callable:
    def settle(self, tag, *, multiple):
        return original(self, self.next_tag - 1 if multiple else tag, multiple=multiple)

    return settle


def _keeps_the_untaken(_original: Callable) -> Callable:
    def take_back(self, above):
        del self, above
        return []

    return take_back


def _stops_to_deliver(original: Callable) -> Callable:
    def deliver(self):
        if self._vq.ready % 2 == 0:
            original(self)

    return deliver


def _forgets_confirms(original: Callable) -> Callable:
    def confirm(self, complete):
        original(self, [each for each in complete if each[0] % 7])

    return confirm


def _flags_nothing(original: Callable) -> Callable:
    def recovered(self, low, count, next_seq_id, next_deliver_seq_id, lost, store_end):
        del next_deliver_seq_id
        original(self, low, count, next_seq_id, 0, lost, store_end)

    return recovered


def _reads_beside(original: Callable) -> Callable:
    def body(self, record, mark, msg_id, file, offset):
        return original(self, record, mark, msg_id, file, offset + 1)

    return body


WRONGS = [
    ("A1", Consumer, "settle", _acks_another, False),
    ("A1", Consumer, "settle", _acks_too_much, False),
    ("A2", Consumer, "settle", _acks_all_before, False),
    ("A3", Consumer, "take_back", _keeps_the_untaken, False),
    ("Q5", QueueOutput, "deliver", _stops_to_deliver, False),
    ("C4", QueueState, "_confirm", _forgets_confirms, True),
    ("Q4", VariableQueue, "recovered", _flags_nothing, True),
    ("Q4", VariableQueue, "recovered", _flags_nothing, False),
    ("D1", MsgStoreClient, "_body", _reads_beside, False),
]


@pytest.mark.parametrize(("rule", "where", "method", "wrong", "kill"), WRONGS)
def test_a_broker_that_does_wrong_is_convicted(monkeypatch, rule, where, method, wrong, kill):
    monkeypatch.setattr(where, method, wrong(getattr(where, method)))
    found = set()
    for seed in range(8):
        result = lived(seed, kill=kill)
        found |= {each.rule for each in result.violations}
        if rule in found:
            assert result.chains[min(n for n, each in enumerate(result.violations) if each.rule == rule)]
            return
    assert rule in found
