"""The power goes while the collector writes: nothing that was confirmed is lost."""

SEED = 3
PROFILE = "classic"


def rdq_files(machine):
    return {path: data for path, data in machine.disk.contents().items() if ".rdq" in path}


def scenario(machine):
    broker = machine.open()
    orders = broker.declare_queue("orders")
    for confirm in [orders.publish(bytes([65 + n]) * 9_000) for n in range(22)]:
        confirm.result()
    held = [orders.get(1.0) for _ in range(22)]
    machine.mark("three full files")
    full = rdq_files(machine)
    for n, delivery in enumerate(held):
        if n % 4:
            delivery.ack()
    # a new file beside the old ones, or copies inside of one: as the profile has it
    while rdq_files(machine) == full:
        machine.sim.turn()
    machine.mark("the collector is writing")
    machine.crash(power_cut=True)
    machine.mark("dark")
    broker = machine.open()
    machine.mark("open again")
    queue = broker.queue("orders")
    while (delivery := queue.get()) is not None:
        delivery.ack()
    machine.sleep(1.0)
    machine.mark("consumed")
    return broker
