"""Three bodies in three places: the persistent store, beside the index, and the transient store."""

SEED = 3
LIMITS = {"queue_ram_bytes": 20_000}


def scenario(machine):
    broker = machine.open()
    orders = broker.declare_queue("orders")
    machine.mark("empty")
    orders.publish(b"A" * 6_000).result()
    machine.sleep(0.1)
    machine.mark("a large one is stored")
    orders.publish(b"B" * 300).result()
    machine.sleep(0.1)
    machine.mark("a small one is stored")
    for _ in range(4):
        orders.publish(b"C" * 9_000, persistent=False).result()
    machine.sleep(0.1)
    machine.mark("transient ones need room")
    return broker
