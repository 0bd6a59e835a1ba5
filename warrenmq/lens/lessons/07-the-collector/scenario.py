"""Two files that are mostly garbage become one; then the same broker in the way of later versions."""

from dataclasses import replace

SEED = 3
PROFILE = "classic"


def mostly_acked(machine, broker, name):
    queue = broker.queue(name)
    for confirm in [queue.publish(bytes([65 + n]) * 9_000) for n in range(22)]:
        confirm.result()
    machine.mark(f"{name}: three files")
    for n, delivery in enumerate([queue.get(1.0) for _ in range(22)]):
        if n % 4:
            delivery.ack()
    machine.mark(f"{name}: sixteen acked")


def scenario(machine):
    broker = machine.open()
    broker.declare_queue("orders")
    mostly_acked(machine, broker, "orders")
    machine.sleep(40.0)
    machine.mark("combined")
    broker.close()
    machine.settings = replace(machine.settings, msg_store_gc="compact")
    broker = machine.open()
    broker.declare_queue("audit")
    machine.mark("later versions")
    mostly_acked(machine, broker, "audit")
    machine.sleep(40.0)
    machine.mark("compacted")
    return broker
