"""One publish that is waited for, and twenty that are not."""

SEED = 11


def scenario(machine):
    broker = machine.open()
    orders = broker.declare_queue("orders")
    machine.mark("nothing to confirm")
    orders.publish(b"A" * 300).result()
    machine.sleep(0.1)
    machine.mark("one was waited for")
    confirms = [orders.publish(bytes([66 + n]) * 300) for n in range(20)]
    machine.mark("twenty in the mailbox")
    for confirm in confirms:
        confirm.result()
    machine.sleep(0.1)
    machine.mark("twenty are confirmed")
    orders.publish(b"Z" * 300, persistent=False).result()
    machine.mark("a transient one")
    return broker
