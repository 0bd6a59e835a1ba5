"""Orders that are paid and shipped exactly once, by three durable actors in a process that is killed again and again.

    python examples/order_workflow.py [DIRECTORY]

The shop takes orders, the till charges customers, the stock ships. Each has a queue and a state on the disk. This program
starts them in a process of their own, kills that with SIGKILL in the middle of its work, starts it again in the same
directory, and so on; at the end it asks all three and compares. Payments fail at times, and are tried again.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from typing import Any, ClassVar

import warrenmq
from warrenmq.supervisors import ChildSpec, Supervisor

ORDERS = 15
KILLS = 4
IN_STOCK = 12


@dataclass
class Order:
    """A customer orders."""

    number: int
    price: int


@dataclass
class Charge:
    """To the till."""

    number: int
    price: int


@dataclass
class Refund:
    """To the till."""

    number: int


@dataclass
class Ship:
    """To the stock."""

    number: int


@dataclass
class News:
    """To the shop."""

    number: int
    what: str


@dataclass
class Report:
    """To any of them: say what you know."""


@dataclass
class Orders:
    """The state of the shop: the stage of each order."""

    stands: dict[int, str] = field(default_factory=dict)
    prices: dict[int, int] = field(default_factory=dict)


class Shop(warrenmq.DurableActor):
    """Knows how each order stands."""

    messages = (Order, News, Report)
    state_type = Orders

    def initial_state(self) -> Orders:
        return Orders()

    def on_receive(self, message: Any) -> Any:
        orders = self.state
        match message:
            case Order(number, price):
                orders.stands[number], orders.prices[number] = "placed", price
                Till.ref(self.broker).tell(Charge(number, price))
            case News(number, "paid"):
                orders.stands[number] = "paid"
                Stock.ref(self.broker).tell(Ship(number))
            case News(number, "sold out"):
                orders.stands[number] = "sold out"
                Till.ref(self.broker).tell(Refund(number))
            case News(number, what):
                orders.stands[number] = what
            case Report():
                return {"stands": orders.stands, "prices": orders.prices}
        say(f"shop {message}")
        return None


class Till(warrenmq.DurableActor):
    """Charges and refunds."""

    messages = (Charge, Refund, Report)
    retries: ClassVar = {"max_attempts": 50, "backoff": 0.02}

    def initial_state(self) -> dict[str, Any]:
        return {"charged": {}, "refunded": {}, "money": 0}

    def on_receive(self, message: Any) -> Any:
        till, shop = self.state, Shop.ref(self.broker)
        match message:
            case Charge(number, price):
                till["money"] += price
                till["charged"][number] = till["charged"].get(number, 0) + 1
                shop.tell(News(number, "paid"))
                if random.random() < 0.2:
                    raise ConnectionError("the bank does not answer")  # nothing of the above has happened
            case Refund(number):
                till["refunded"][number] = till["refunded"].get(number, 0) + 1
                shop.tell(News(number, "refunded"))
            case Report():
                return till
        say(f"till {message}")
        return None


class Stock(warrenmq.DurableActor):
    """Ships as long as there is something."""

    messages = (Ship, Report)

    def initial_state(self) -> dict[str, Any]:
        return {"left": IN_STOCK, "shipped": {}}

    def on_receive(self, message: Any) -> Any:
        stock, shop = self.state, Shop.ref(self.broker)
        match message:
            case Ship(number) if stock["left"]:
                stock["left"] -= 1
                stock["shipped"][number] = stock["shipped"].get(number, 0) + 1
                shop.tell(News(number, "shipped"))
            case Ship(number):
                shop.tell(News(number, "sold out"))
            case Report():
                return stock
        say(f"stock {message}")
        return None


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def work(directory: str) -> None:
    """The process that is killed: runs the actors until every order has come to its end."""
    with warrenmq.open(directory) as broker:
        shop = Shop.ref(broker)
        for number in range(ORDERS):  # each start says the same again: a message with the same id counts once
            shop.tell(Order(number, price=10 + number), message_id=f"order {number}")
        children = [ChildSpec(each.__name__, each, args=(broker,)) for each in (Shop, Till, Stock)]
        app = Supervisor.start_link(
            strategy="one_for_one", intensity=3, period=10.0, children=children, runtime=broker.runtime
        )
        while True:
            stands = shop.ask(Report())["stands"]
            if len(stands) == ORDERS and set(stands.values()) <= {"shipped", "refunded"}:
                break
            broker.runtime.event().wait(0.05)
        say("done")
        broker.runtime.stop_actor(app)


def check(directory: str) -> None:
    """Ask the three what they know; it has to agree."""
    with warrenmq.open(directory) as broker:
        actors = [broker.runtime.start(each, broker) for each in (Shop, Till, Stock)]
        shop, till, stock = (each.ref(broker).ask(Report()) for each in (Shop, Till, Stock))
        for actor in actors:
            broker.runtime.stop_actor(actor)
    assert till["charged"] == dict.fromkeys(range(ORDERS), 1), till
    assert till["money"] == sum(shop["prices"].values()), till
    assert stock["left"] == 0, stock
    assert set(stock["shipped"].values()) == {1}, stock
    assert len(stock["shipped"]) == IN_STOCK, stock
    assert till["refunded"].keys() == set(range(ORDERS)) - stock["shipped"].keys(), till
    assert set(till["refunded"].values()) == {1}, till
    print(
        f"{ORDERS} orders: each was charged once, {IN_STOCK} shipped once, {ORDERS - IN_STOCK} refunded once"
    )


def main(directory: str) -> None:
    command = [sys.executable, __file__, "--work", directory]
    chance = random.Random()
    for life in range(KILLS + 1):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            last = life == KILLS
            for lines, line in enumerate(process.stdout, 1):
                if line == "done\n":
                    last = True
                elif not last and lines >= chance.randrange(4, 16):
                    process.kill()
                    print(f"killed after {lines} lines, the last was: {line.rstrip()}")
                    break
        if last:
            assert process.returncode == 0, process.returncode
            break
    check(directory)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        work(sys.argv[2])
    elif len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(folder)
