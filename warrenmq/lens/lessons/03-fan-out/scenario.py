"""One message, three queues, one record."""

SEED = 5


def scenario(machine):
    broker = machine.open()
    broker.declare_exchange("mail", "fanout")
    queues = [broker.declare_queue(name) for name in ("orders", "audit", "search")]
    for queue in queues:
        broker.bind(queue, "mail")
    machine.mark("bound")
    broker.publish("mail", "", b"A" * 6_000).result()
    machine.mark("three queues have it")
    for queue in queues[:2]:
        queue.get(1.0).ack()
    machine.sleep(0.5)
    machine.mark("two have acked")
    queues[2].get(1.0).ack()
    machine.sleep(0.5)
    machine.mark("all have acked")
    return broker
