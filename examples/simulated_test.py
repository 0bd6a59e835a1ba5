"""An application's own tests, on a simulated machine (docs/testing.md).

    pytest examples/simulated_test.py

The application moves orders from one queue to another, and every confirmed order has to arrive.  The tests kill the
process at each disk operation, cut the power, and let a minute pass in no time.
"""

from __future__ import annotations

import pytest

from warrenmq import Broker
from warrenmq.testing import SimulatedMachine

ORDERS = [b"order %d" % number for number in range(3)]


# -- the application: it knows nothing of the simulation


def take_orders(broker: Broker, orders: list[bytes]) -> list[bytes]:
    """Publish orders; returns those that are confirmed."""
    queue = broker.declare_queue("orders")
    queue.publish_many(orders).result()
    return orders


def ship_all(broker: Broker) -> list[bytes]:
    """Move everything from "orders" to "shipped"; an order is acked when its shipment is confirmed."""
    orders, shipped = broker.declare_queue("orders"), broker.declare_queue("shipped")
    while (order := orders.get()) is not None:
        shipped.publish(order.body).result()
        order.ack()
    found = list(iter(shipped.get, None))
    return [delivery.body for delivery in found]


# -- its tests


def test_orders_are_shipped_in_order() -> None:
    with SimulatedMachine() as machine, machine.open() as broker:
        take_orders(broker, ORDERS)
        assert ship_all(broker) == ORDERS


@pytest.mark.parametrize("power_cut", [False, True])
def test_a_confirmed_order_is_shipped_whatever_the_disk_was_doing_when_the_machine_went_down(
    power_cut: bool,
) -> None:
    operation = 0
    while True:
        operation += 1
        confirmed: list[bytes] = []
        with SimulatedMachine(seed=operation) as machine:
            with machine.crash_at(operation, power_cut=power_cut) as outage:
                broker = machine.open()
                confirmed += take_orders(broker, ORDERS)
                ship_all(broker)
            if not outage.came:
                break
            shipped = ship_all(machine.open())
            assert set(shipped) >= set(confirmed)
    assert operation > 20


def test_an_order_that_nobody_ships_within_a_minute_expires() -> None:
    with SimulatedMachine() as machine, machine.open() as broker:
        broker.declare_queue("orders", arguments={"x-message-ttl": 60_000})
        queue = broker.queue("orders")
        queue.publish(b"too late").result()
        machine.sleep(61)
        assert queue.get() is None
