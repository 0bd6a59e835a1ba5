"""A queue that may keep little in memory lets go of it, and reads ahead when it is consumed."""

SEED = 9
PROFILE = "classic"
LIMITS = {"queue_ram_bytes": 30_000}


def scenario(machine):
    broker = machine.open()
    orders = broker.declare_queue("orders")
    machine.mark("all in memory")
    for n in range(3):
        orders.publish(bytes([65 + n]) * 6_000).result()
    machine.mark("three in memory")
    for n in range(40):
        orders.publish(bytes([68 + n]) * 6_000).result()
    machine.sleep(6.0)
    machine.mark("more than may be in memory")
    for _ in range(43):
        orders.get(1.0).ack()
    machine.sleep(1.0)
    machine.mark("consumed")
    return broker
