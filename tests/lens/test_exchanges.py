"""Exchanges, bindings and the way of each publish, as the fold shows them, are those that the broker has."""

import pytest

from tests.support.simulated import SimulatedHost
from warrenmq.lens.fold import Fold
from warrenmq.lens.saved import packed, page
from warrenmq.replay.export.selection import rows_in_order
from warrenmq.trace import events as e
from warrenmq.trace.events import Ev
from warrenmq.trace.reader import open_memory


@pytest.fixture(scope="module")
def trace():
    host = SimulatedHost(5)
    with host.open() as broker:
        broker.declare_exchange("orders", "topic")
        copies = broker.declare_exchange("copies", "fanout")
        broker.declare_exchange("gone", "direct")
        one, two, left = (broker.declare_queue(name) for name in ("one", "two", "left"))
        broker.bind(one, "orders", "order.#")
        broker.bind(two, "copies")
        broker.bind(left, "copies")
        broker.bind(copies, "orders", "*.paid")
        broker.bind(two, "gone", "k")
        broker.bind(one, "copies", "twice")
        broker.unbind(one, "copies", "twice")
        broker.publish("orders", "order.paid", b"a").result()
        broker.publish("orders", "order.sent", b"b").result()
        one.publish(b"c").result()
        broker.publish("gone", "nobody", b"d").result()
        broker.delete_exchange("gone")
        left.delete()
    with host.open():
        pass
    yield open_memory(host.sink.files())
    host.close()


KEPT = {
    ("orders", "one", "order.#", "queue"),
    ("orders", "copies", "*.paid", "exchange"),
    ("copies", "two", "", "queue"),
}


def _own(tables):
    return {name: kind for name, kind in tables["exchange"].items() if not name.startswith("amq.")}


def test_what_is_declared_bound_unbound_and_deleted(trace):
    fold = Fold(trace)
    assert _own(fold.at(fold.rows)) == {"orders": "topic", "copies": "fanout"}
    assert set(fold.at(fold.rows)["binding"].values()) == KEPT


def test_an_end_forgets_them_and_a_start_finds_the_durable_ones(trace):
    runs = [run for run, _ in rows_in_order(trace)]
    fold, second = Fold(trace), runs.index(1) + 1
    assert not fold.at(second)["exchange"]
    assert not fold.at(second)["binding"]
    assert set(fold.at(second - 1)["binding"].values()) == KEPT


def test_a_publish_goes_through_its_exchange_to_the_queues_that_were_chosen(trace):
    fold, way = Fold(trace), {}
    for number, ((_, row), step) in enumerate(zip(rows_in_order(trace), fold.steps(), strict=True), 1):
        if row.event == Ev.SEND and step.move is not None and len(step.move) > 2:
            tables, receiver = fold.at(number), e.Send.of(row).receiver
            client = next(each for each, route in tables["route"].items() if route[2] == step.message)
            assert tables["chosen"][f"{client}/{receiver}"] == step.message
            way.setdefault(step.message, []).append(
                (step.move[1], tables["route"][client][1], tables["actor"][receiver][0])
            )
        if row.event == Ev.UNROUTED:
            assert step.move is not None
            assert step.move[1] == "exchange/gone"
            assert ("gone", "nobody", 0) in fold.at(number)["route"].values()
    first, second, third = (sorted(ways) for _, ways in sorted(way.items()))
    assert first == [("exchange/orders", "order.paid", queue) for queue in ("left", "one", "two")]
    assert second == [("exchange/orders", "order.sent", "one")]
    assert third == [("exchange/", "", "one")]


def test_the_page_lights_the_way_of_the_message(trace, watched, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(page(packed(trace, "ways"), "ways"), encoding="utf-8")
    steps = list(Fold(trace).steps())
    rows = [n for n, step in enumerate(steps, 1) if step.move and step.move[1:2] == ("exchange/orders",)]
    shown = watched.open(path)
    lit = []
    for row in rows:
        shown.evaluate("(row) => lens.go(row, false)", row)
        assert shown.locator(".exchange.foc .name").all_inner_texts() == ["orders"]
        assert shown.locator(".way .trail").count() == 1
        lit.append((shown.inner_text(".exchange.foc .with"), shown.locator(".exchanges + .fan .foc").count()))
    assert lit == [*[("key order.paid", n) for n in range(4)], ("key order.sent", 0), ("key order.sent", 1)]
