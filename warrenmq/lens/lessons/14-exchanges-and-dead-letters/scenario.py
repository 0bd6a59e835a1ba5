"""A topic exchange, a time to live, and where messages go that lived too long."""

SEED = 14


def scenario(machine):
    broker = machine.open()
    broker.declare_exchange("events", "topic")
    broker.declare_exchange("dead", "fanout")
    arguments = {"x-message-ttl": 2_000, "x-dead-letter-exchange": "dead"}
    broker.bind(broker.declare_queue("paid", arguments=arguments), "events", "order.paid")
    broker.bind(broker.declare_queue("all"), "events", "order.#")
    broker.bind(broker.declare_queue("morgue"), "dead")
    machine.mark("bound")
    broker.publish("events", "order.paid", b"A" * 300).result()
    machine.mark("two bindings match")
    broker.publish("events", "order.sent.late", b"B" * 300).result()
    machine.mark("one binding matches")
    broker.publish("events", "invoice", b"C" * 300).result()
    machine.mark("no binding matches")
    machine.sleep(3.0)
    machine.mark("two seconds are over")
    return broker
