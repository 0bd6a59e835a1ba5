"""Bodies are read from memory while they are young, and by the queue itself afterwards."""

SEED = 6
LIMITS = {"queue_ram_bytes": 0}


def scenario(machine):
    broker = machine.open()
    orders = broker.declare_queue("orders")
    machine.mark("a queue that keeps no bodies")
    for n in range(3):
        orders.publish(bytes([65 + n]) * 6_000).result()
    machine.mark("three are written")
    for _ in range(3):
        orders.get(1.0).ack()
    machine.sleep(0.5)
    machine.mark("read while young")
    confirms = [orders.publish(bytes([66 + n]) * 9_000) for n in range(9)]
    for confirm in confirms:
        confirm.result()
    machine.sleep(0.5)
    machine.mark("another file is current")
    for _ in range(3):
        orders.get(1.0).ack()
    machine.sleep(0.5)
    machine.mark("read when old")
    return broker
