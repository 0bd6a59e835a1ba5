"""A publisher that is faster than the queue."""

SEED = 12
LIMITS = {"credit_flow_default_credit": (8, 4)}


def scenario(machine):
    broker = machine.open()
    orders = broker.declare_queue("orders")
    machine.mark("eight credits")
    for n in range(7):
        orders.publish(bytes([65 + n]) * 200)
    machine.mark("seven are spent")
    confirms = [orders.publish(bytes([72 + n]) * 200) for n in range(30)]
    for confirm in confirms:
        confirm.result()
    machine.mark("thirty more are through")
    return broker
