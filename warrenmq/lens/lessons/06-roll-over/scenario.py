"""Twenty large messages fill two files and begin a third."""

SEED = 7


def scenario(machine):
    broker = machine.open()
    orders = broker.declare_queue("orders")
    machine.mark("one empty file")
    for n in range(7):
        orders.publish(bytes([65 + n]) * 9_000).result()
    machine.mark("nearly full")
    for n in range(9):
        orders.publish(bytes([75 + n]) * 9_000).result()
    machine.mark("rolled over")
    for _ in range(4):
        orders.get(1.0).ack()
    machine.sleep(0.5)
    machine.mark("garbage in the first file")
    for _ in range(4):
        orders.get(1.0).ack()
    machine.sleep(20.0)
    machine.mark("an empty file is deleted")
    return broker
