"""From exchange, routing keys and headers to queues: every type, exchanges bound to exchanges, alternates, deletions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warrenmq.errors import AccessRefused, NotFound
from warrenmq.routing import PREDECLARED, Binding, Destination, ExchangeSpec, Router
from warrenmq.routing import TYPES as DECLARABLE
from warrenmq.routing import router as router_module
from warrenmq.routing.delayed import X_DELAYED_MESSAGE
from warrenmq.routing.headers import HeadersMatch, comparable
from warrenmq.routing.topic import TopicTrie
from warrenmq.trace.words import ExchangeType

QUEUES = ("q1", "q2", "q3")
TYPES = ("direct", "fanout", "topic", "headers")
keys = st.sampled_from(["", "a", "b", "a.b", "*", "#", "a.#"])
headers = st.dictionaries(st.sampled_from(["a", "b"]), st.integers(0, 1), max_size=2)


def router(*exchanges: ExchangeSpec) -> Router:
    made = Router()
    for name in QUEUES:
        made.add_queue(name)
    for spec in exchanges:
        made.add_exchange(spec)
    return made


def to_exchange(name: str, source: str, key: str = "") -> Binding:
    return Binding(name, source, key, destination_type="exchange")


def alternate(name: str) -> dict[str, str]:
    return {"alternate-exchange": name}


def test_every_type_is_compared_here_and_has_a_word_in_the_trace() -> None:
    assert {*TYPES, X_DELAYED_MESSAGE} == {*DECLARABLE}
    assert {name.upper().replace("-", "_") for name in DECLARABLE} == set(ExchangeType.__members__)


def test_the_default_exchange_routes_to_the_queues_that_the_keys_name() -> None:
    made = router()
    assert made.route("", "q2") == ("q2",)
    assert made.route("", "nobody") == ()
    assert made.route("", "q2", None, ("q1", "nobody", "q2")) == ("q2", "q1")


def test_an_unknown_exchange_is_refused_by_name() -> None:
    made = Router("the host")
    for more_keys in ((), ("b",)):
        with pytest.raises(NotFound, match="'nowhere'") as refused:
            made.route("nowhere", "a", None, more_keys)
        assert refused.value.reply_text == "no exchange 'nowhere' in vhost 'the host'"


def test_predeclared_exchanges_are_those_of_rabbitmq() -> None:
    assert {spec.name: (spec.type, spec.durable, spec.internal) for spec in PREDECLARED} == {
        "amq.direct": ("direct", True, False),
        "amq.fanout": ("fanout", True, False),
        "amq.topic": ("topic", True, False),
        "amq.headers": ("headers", True, False),
        "amq.match": ("headers", True, False),
        "amq.rabbitmq.trace": ("topic", True, True),
    }
    assert list(Router().exchanges) == [spec.name for spec in PREDECLARED]


def test_a_publish_to_an_internal_or_missing_exchange_is_refused() -> None:
    made = router(ExchangeSpec("inner", "fanout", internal=True))
    made.check_publish("")
    made.check_publish("amq.direct")
    with pytest.raises(AccessRefused) as refused:
        made.check_publish("inner")
    assert refused.value.reply_text == "cannot publish to internal exchange 'inner' in vhost '/'"
    with pytest.raises(NotFound):
        made.check_publish("nowhere")
    made.bind(Binding("q1", "inner"))
    assert made.route("inner", "a") == ("q1",), "other exchanges and dead letters come here"


@pytest.mark.parametrize(
    ("type", "binding", "reached"),
    [
        ("direct", Binding("q1", "x", "a"), True),
        ("direct", Binding("q1", "x", "b"), False),
        ("fanout", Binding("q1", "x", "b"), True),
        ("topic", Binding("q1", "x", "#.a"), True),
        ("topic", Binding("q1", "x", "a.*"), False),
        ("headers", Binding("q1", "x", "b", {"n": 1.0}), True),
        ("headers", Binding("q1", "x", "a", {"n": 2}), False),
    ],
)
def test_each_type_matches_by_its_rule_and_is_followed_by_its_alternate(
    type: str, binding: Binding, reached: bool
) -> None:
    for arguments, otherwise in (({}, ()), (alternate("y"), ("q2",)), (alternate("not there"), ())):
        made = router(ExchangeSpec("x", type, arguments=arguments), ExchangeSpec("y", "fanout"))
        made.bind(Binding("q2", "y"))
        made.bind(binding)
        assert made.route("x", "a", {"n": 1}) == (("q1",) if reached else otherwise)
        made.unbind(binding)
        assert made.route("x", "a", {"n": 1}) == otherwise


def test_an_alternate_exchange_may_have_one_and_the_default_exchange_cannot_be_one() -> None:
    made = router(
        ExchangeSpec("x", "direct", arguments=alternate("y")),
        ExchangeSpec("y", "topic", arguments=alternate("z")),
        ExchangeSpec("z", "fanout"),
        ExchangeSpec("to default", "direct", arguments=alternate("")),
    )
    assert made.route("x", "q1") == ()
    made.bind(Binding("q3", "z"))
    assert made.route("x", "q1") == ("q3",)
    assert made.route("to default", "q1") == ()


def test_an_alternate_is_for_messages_of_which_no_key_matches() -> None:
    made = router(ExchangeSpec("x", "direct", arguments=alternate("y")), ExchangeSpec("y", "fanout"))
    made.bind(Binding("q1", "x", "a"))
    made.bind(Binding("q2", "y"))
    assert made.route("x", "b", None, ("a",)) == ("q1",)
    assert made.route("x", "b", None, ("c",)) == ("q2",)


def test_an_exchange_that_leads_to_an_exchange_without_queues_needs_no_alternate() -> None:
    made = router(
        ExchangeSpec("x", "fanout", arguments=alternate("y")),
        ExchangeSpec("y", "fanout"),
        ExchangeSpec("z", "fanout"),
    )
    made.bind(Binding("q1", "y"))
    made.bind(to_exchange("z", "x"))
    assert made.route("x", "a") == ()


def test_a_cycle_of_exchanges_gives_each_queue_one_copy() -> None:
    made = router(ExchangeSpec("x", "fanout"), ExchangeSpec("y", "topic"))
    for binding in (
        to_exchange("y", "x"),
        to_exchange("x", "y", "#"),
        Binding("q1", "x"),
        Binding("q1", "y", "#"),
    ):
        made.bind(binding)
    assert made.route("x", "a") == made.route("y", "a") == ("q1",)


def test_bindings_are_the_same_by_value_and_type_of_their_arguments() -> None:
    made = router(ExchangeSpec("x", "direct"))
    different: list[dict[str, Any]] = [
        {},
        {"n": 1},
        {"n": 1.0},
        {"n": True},
        {"n": [1]},
        {"n": {"m": 1}},
        {"n": None},
    ]
    for arguments in different:
        assert made.bind(Binding("q1", "x", "a", arguments))
    assert not made.bind(Binding("q1", "x", "a", {"n": [1]}))
    assert made.bind(to_exchange("q1", "x", "a"))
    for arguments in different:
        assert made.route("x", "a") == ("q1",)
        assert made.unbind(Binding("q1", "x", "a", arguments))
    assert made.route("x", "a") == ()


def test_the_order_of_arguments_counts_for_nothing() -> None:
    assert Binding("q", "x", "", {"a": 1, "b": 2}) == Binding("q", "x", "", {"b": 2, "a": 1})


def test_removing_a_queue_or_an_exchange_takes_its_bindings_along() -> None:
    made = router(ExchangeSpec("x", "direct"), ExchangeSpec("y", "fanout"))
    for binding in (
        Binding("q1", "x", "a"),
        Binding("q2", "x", "a"),
        to_exchange("y", "x", "a"),
        Binding("q3", "y"),
    ):
        made.bind(binding)
    made.remove_queue("q1")
    assert made.route("x", "a") == ("q2", "q3")
    assert made.route("", "q1") == ()
    made.remove_exchange("y")
    assert made.route("x", "a") == ("q2",)
    assert made.bindings_to(Destination("queue", "q3")) == ()
    made.remove_exchange("x")
    with pytest.raises(NotFound):
        made.route("x", "a")
    assert not made._by_destination


def test_auto_delete_exchanges_go_in_a_row() -> None:
    made = router(
        *(ExchangeSpec(name, "fanout", auto_delete=name != "stays") for name in ("a", "b", "c", "stays"))
    )
    last = Binding("q1", "c")
    for binding in (to_exchange("b", "a"), to_exchange("c", "b"), last, to_exchange("b", "stays")):
        made.bind(binding)
    assert made.left_unused([last]) == ["c", "b", "a"]
    made.bind(Binding("q2", "b"))
    assert made.left_unused([last]) == ["c"]
    assert made.left_unused([]) == []


def test_a_cycle_of_auto_delete_exchanges_keeps_itself() -> None:
    made = router(
        ExchangeSpec("a", "fanout", auto_delete=True), ExchangeSpec("b", "fanout", auto_delete=True)
    )
    last = Binding("q1", "a")
    for binding in (to_exchange("b", "a"), to_exchange("a", "b"), last):
        made.bind(binding)
    assert made.left_unused([last]) == []


def test_results_that_are_kept_are_few_and_never_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router_module, "ROUTES_KEPT", 4)
    made = router(ExchangeSpec("x", "topic"))
    made.bind(Binding("q1", "x", "a.*"))
    for number in range(20):
        assert made.route("x", f"a.{number}") == ("q1",)
        assert len(made._kept) <= 4
    made.bind(Binding("q2", "x", "#"))
    assert set(made.route("x", "a.19")) == {"q1", "q2"}


# -- random tables against a search through all bindings

EXCHANGES = ("x1", "x2", "x3", "x4")
specs = st.builds(
    ExchangeSpec,
    st.just(""),
    st.sampled_from(TYPES),
    auto_delete=st.booleans(),
    arguments=st.sampled_from([{}, {}, *map(alternate, EXCHANGES)]),
)
bindings = st.one_of(
    st.builds(Binding, st.sampled_from(QUEUES), st.sampled_from(EXCHANGES), keys, headers),
    st.builds(
        Binding, st.sampled_from(EXCHANGES), st.sampled_from(EXCHANGES), keys, headers, st.just("exchange")
    ),
)


def fits(kind: str, binding: Binding, message_keys: tuple[str, ...], message_headers: dict[str, int]) -> bool:
    match kind:
        case "direct":
            return binding.routing_key in message_keys
        case "topic":
            trie = TopicTrie()
            trie.add(binding.routing_key, binding.to)
            return any(trie.match(key) for key in message_keys)
        case "headers":
            return HeadersMatch(binding.arguments)(comparable(message_headers))
    return True


def reached(exchanges: dict[str, ExchangeSpec], bound: list[Binding], start: str, message_keys: tuple[str, ...],
            message_headers: dict[str, int]) -> set[str]:  # fmt: skip
    found = {Destination("exchange", start)}
    while True:
        more = set()
        for name in [each.name for each in found if each.type == "exchange" and each.name in exchanges]:
            spec = exchanges[name]
            hits = {
                each.to
                for each in bound
                if each.source == name and fits(spec.type, each, message_keys, message_headers)
            }
            more |= hits or ({Destination("exchange", spec.alternate)} if spec.alternate else set())
        if more <= found:
            return {each.name for each in found if each.type == "queue"}
        found |= more


@given(
    st.lists(specs, min_size=4, max_size=4),
    st.lists(st.tuples(st.booleans(), bindings), max_size=25),
    st.data(),
)
def test_routes_equal_a_search_through_all_bindings(
    declared: list[ExchangeSpec], changes: list[tuple[bool, Binding]], data: st.DataObject
) -> None:
    exchanges = {
        name: ExchangeSpec(name, spec.type, auto_delete=spec.auto_delete, arguments=spec.arguments)
        for name, spec in zip(EXCHANGES, declared, strict=True)
    }
    made = router(*exchanges.values())
    model: list[Binding] = []
    for add, binding in changes:
        assert (made.bind if add else made.unbind)(binding) is ((binding in model) is not add)
        if add and binding not in model:
            model.append(binding)
        elif not add and binding in model:
            model.remove(binding)
        check(made, exchanges, model, data)
    gone = data.draw(st.sampled_from(EXCHANGES))
    made.remove_exchange(gone)
    del exchanges[gone]
    model = [each for each in model if each.source != gone and each.to != ("exchange", gone)]
    check(made, exchanges, model, data)
    made.remove_queue("q1")
    model = [each for each in model if each.to != ("queue", "q1")]
    check(made, exchanges, model, data)
    assert [each for name in exchanges for each in made.bindings_of(name)] == [
        each for name in exchanges for each in model if each.source == name
    ]


def check(
    made: Router, exchanges: dict[str, ExchangeSpec], model: list[Binding], data: st.DataObject
) -> None:
    start = data.draw(st.sampled_from(sorted(exchanges)))
    message_keys = tuple(data.draw(st.lists(keys, min_size=1, max_size=2, unique=True)))
    message_headers = data.draw(headers)
    got = made.route(start, message_keys[0], message_headers, message_keys[1:])
    assert len(set(got)) == len(got), "a queue gets one copy, however many ways lead to it"
    assert set(got) == reached(exchanges, model, start, message_keys, message_headers)
