"""From exchange and routing key to queues."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warrenmq.errors import NotFound
from warrenmq.routing import Binding, ExchangeSpec, Router

keys = st.sampled_from(["", "a", "b", "a.b"])
queues = st.sampled_from(["q1", "q2", "q3"])


def router() -> Router:
    made = Router()
    for name in ("q1", "q2", "q3"):
        made.add_queue(name)
    made.add_exchange(ExchangeSpec("d", "direct"))
    made.add_exchange(ExchangeSpec("f", "fanout"))
    return made


def test_the_default_exchange_routes_to_the_queue_that_the_key_names() -> None:
    assert router().route("", "q2") == ("q2",)
    assert router().route("", "nobody") == ()


def test_an_unknown_exchange_is_refused_by_name() -> None:
    with pytest.raises(NotFound, match="'nowhere'"):
        router().route("nowhere", "a")


@given(st.lists(st.tuples(st.booleans(), queues, st.sampled_from(["d", "f"]), keys), max_size=30), keys)
def test_routes_equal_a_search_through_all_bindings(changes: list[tuple[bool, str, str, str]], key: str) -> None:
    made = router()
    model: list[Binding] = []
    for add, queue, exchange, binding_key in changes:
        binding = Binding(queue, exchange, binding_key)
        assert (made.bind(binding) if add else made.unbind(binding)) is ((binding not in model) if add else binding in model)
        if add and binding not in model:
            model.append(binding)
        elif not add and binding in model:
            model.remove(binding)
    for exchange in ("d", "f"):
        wanted = {b.destination for b in model if b.source == exchange and (exchange == "f" or b.routing_key == key)}
        got = made.route(exchange, key)
        assert set(got) == wanted
        assert len(got) == len(wanted), "a queue gets one copy, however many bindings match"


def test_removing_a_queue_takes_its_bindings_along() -> None:
    made = router()
    made.bind(Binding("q1", "d", "a"))
    made.bind(Binding("q2", "d", "a"))
    assert made.remove_queue("q1") == [Binding("q1", "d", "a")]
    assert made.route("d", "a") == ("q2",)
    assert made.route("", "q1") == ()


def test_removing_an_exchange_returns_its_bindings() -> None:
    made = router()
    made.bind(Binding("q1", "f"))
    assert made.remove_exchange("f") == (Binding("q1", "f"),)
    with pytest.raises(NotFound):
        made.route("f", "")
