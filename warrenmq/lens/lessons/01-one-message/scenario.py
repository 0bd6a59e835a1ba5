"""One large message: published, stored, confirmed, delivered, acked."""

SEED = 2


def scenario(machine):
    broker = machine.open()
    orders = broker.declare_queue("orders")
    machine.mark("a queue is there")
    confirm = orders.publish(b"A" * 6_000)
    machine.mark("published")
    confirm.result()
    machine.mark("confirmed")
    delivery = orders.get()
    machine.mark("delivered")
    delivery.ack()
    machine.sleep(1.0)
    machine.mark("forgotten")
    return broker
