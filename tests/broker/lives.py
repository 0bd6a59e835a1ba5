"""Two workloads for a simulated host, and the bytes of their traces.

As a program it prints the digest of the long one's trace, for a process with other hash seeds:

    python -m tests.broker.lives SEED
"""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Callable

from tests.support.simulated import SMALL, SimulatedHost
from warrenmq.actors.vhost.vhost import queue_name
from warrenmq.errors import Nacked
from warrenmq.settings import Settings


def short_life(host: SimulatedHost) -> None:
    """One queue, three messages, of which one goes to the store."""
    broker = host.open()
    queue = broker.declare_queue("q")
    confirms = [
        queue.publish(b"small"),
        queue.publish(b"L" * 500),
        queue.publish(b"transient", persistent=False),
    ]
    for confirm in confirms:
        confirm.result()
    queue.get().ack()
    broker.close()


def kill(host: SimulatedHost, victim: str) -> None:
    """End one actor, and wait until its name is registered again."""
    host.sim.kill(host.sim.whereis(victim))
    host.wait_until(lambda: host.sim.is_registered(victim) and host.sim.is_registered("vhost_process"))


def long_life(host: SimulatedHost) -> None:
    """Several queues, exchanges and consumers; kills of single actors; a power cut; two runs."""
    choose = random.Random(f"life {host.seed}")
    names = ["one", "two", "three", "four"]
    for run in range(2):
        broker = host.open()
        broker.declare_exchange("events", "direct")
        broker.declare_exchange("all", "fanout")
        for name in names:
            queue = broker.declare_queue(name)
            broker.bind(queue, "events", name[0])
            broker.bind(queue, "all")
        for number in range(60):
            exchange = choose.choice(("events", "all"))
            body = b"%d " % number + b"." * choose.choice((0, 30, 200, 1200))
            confirm = broker.publish(
                exchange, choose.choice(names)[0], body, persistent=choose.random() < 0.8
            )
            if choose.random() < 0.3:
                try:
                    confirm.result()
                except Nacked:
                    pass
            if number % 20 == 10:
                victim = choose.choice((*map(queue_name, names), "msg_store_persistent", "vhost_process"))
                kill(host, victim)
        for name in names:
            with broker.queue(name).consume(prefetch=5) as consumer:
                for _ in range(10):
                    if (delivery := consumer.get(timeout=0.1)) is not None:
                        choose.choice((delivery.ack, delivery.nack))()
        if run == 0:
            host.crash(power_cut=True)
        else:
            broker.close()


def trace_of(
    seed: int, life: Callable[[SimulatedHost], None], settings: Settings = SMALL
) -> dict[str, bytes]:
    """Every file that the trace of one life consists of."""
    with SimulatedHost(seed, settings) as host:
        life(host)
        assert host.sink is not None
        return host.sink.files()


def digest(files: dict[str, bytes]) -> str:
    """One line for all of it."""
    sha = hashlib.sha256()
    for name, content in files.items():
        sha.update(name.encode() + b"\0" + content)
    return sha.hexdigest()


if __name__ == "__main__":
    print(digest(trace_of(int(sys.argv[1]), long_life)))
