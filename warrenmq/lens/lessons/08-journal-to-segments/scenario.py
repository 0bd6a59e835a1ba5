"""The queue index of both eras: a journal that flushes into segments, and .qi files with their .qs store."""

from dataclasses import replace

SEED = 8
PROFILE = "classic"
LIMITS = {"queue_index_max_journal_entries": 24}


def scenario(machine):
    broker = machine.open()
    orders = broker.declare_queue("orders")
    machine.mark("an empty journal")
    for n in range(10):
        orders.publish(bytes([65 + n]) * 200).result()
    machine.mark("ten records")
    for n in range(40):
        orders.publish(bytes([75 + n]) * 200).result()
    machine.sleep(0.5)
    machine.mark("flushed")
    for _ in range(40):
        orders.get(1.0).ack()
    machine.sleep(1.0)
    machine.mark("a segment is done")
    broker.close()
    machine.settings = replace(machine.settings, queue_version=2)
    broker = machine.open()
    machine.mark("version 2")
    for n in range(10):
        broker.queue("orders").publish(bytes([65 + n]) * 200).result()
    machine.sleep(0.5)
    machine.mark("two files to sync")
    return broker
