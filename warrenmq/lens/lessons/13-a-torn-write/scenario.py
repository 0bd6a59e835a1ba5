"""The power goes while messages are on their way to the disk."""

SEED = 1


def scenario(machine):
    broker = machine.open()
    orders = broker.declare_queue("orders")
    for n in range(3):
        orders.publish(bytes([65 + n]) * 6_000).result()
    machine.mark("three are confirmed")
    with machine.crash_at(4, power_cut=True):
        confirms = [orders.publish(bytes([68 + n]) * 6_000) for n in range(6)]
        for confirm in confirms:
            confirm.result()
    machine.mark("the lights go out")
    broker = machine.open()
    machine.mark("what the disk has")
    queue = broker.queue("orders")
    while (delivery := queue.get()) is not None:
        delivery.ack()
    machine.sleep(0.5)
    machine.mark("consumed")
    return broker
