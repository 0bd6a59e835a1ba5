"""A queue dies, the store dies, the process dies; then a clean stop."""

SEED = 13


def scenario(machine):
    broker = machine.open()
    orders = broker.declare_queue("orders")
    for n in range(4):
        orders.publish(bytes([65 + n]) * 6_000).result()
    machine.mark("four are confirmed")
    machine.sim.kill(machine.sim.whereis("queue:orders"))
    machine.sleep(1.0)
    machine.mark("the queue is back")
    machine.sim.kill(machine.sim.whereis("msg_store_persistent"))
    machine.sleep(1.0)
    machine.mark("the stores are back")
    machine.crash(power_cut=False)
    machine.mark("the process is gone")
    broker = machine.open()
    machine.mark("open after a crash")
    broker.close()
    broker = machine.open()
    machine.mark("open after a clean stop")
    return broker
