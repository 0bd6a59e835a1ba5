"""A message that is consumed before the store has looked at its write."""

SEED = 4


def served(machine, actor):
    while machine.sim.turn(actor):
        pass


def scenario(machine):
    broker = machine.open()
    orders = broker.declare_queue("orders")
    with orders.consume(prefetch=0, no_ack=True):
        machine.sleep(0.1)
        machine.mark("a consumer waits")
        orders.publish(b"A" * 9_000)
        served(machine, "queue:orders")
        machine.mark("both are on their way")
        machine.sleep(0.1)
        machine.mark("the store has looked")
    return broker
