"""Redeclarations that are accepted, and RabbitMQ 3.10.8's words for those that are not."""

from __future__ import annotations

from dataclasses import fields, replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warrenmq.actors.vhost.equivalence import (
    QUEUE_ARGUMENTS,
    check_alternate,
    check_exchange,
    check_queue,
    check_x_match,
)
from warrenmq.directory.definitions import QueueRecord
from warrenmq.errors import PreconditionFailed
from warrenmq.queue.arguments import QueueArguments
from warrenmq.routing import ExchangeSpec

QUEUE = "queue 'q' in vhost '/'"
EXCHANGE = "exchange 'x' in vhost '/'"
NONE = "none"


def test_every_argument_that_means_something_is_compared() -> None:
    meant = {f"x-{field.name.replace('_', '-')}" for field in fields(QueueArguments)}
    assert meant <= set(QUEUE_ARGUMENTS)


def refused(text: str) -> Any:
    return pytest.raises(PreconditionFailed, check=lambda error: error.reply_text == text)


@pytest.mark.parametrize(
    ("change", "received", "current"),
    [({"durable": False}, "'false'", "'true'"), ({"auto_delete": True}, "'true'", "'false'")],
)
def test_a_queue_with_other_properties_is_refused(
    change: dict[str, Any], received: str, current: str
) -> None:
    (name,) = change
    with refused(f"inequivalent arg '{name}' for {QUEUE}: received {received} but current is {current}"):
        check_queue(QUEUE, QueueRecord("q"), replace(QueueRecord("q"), **change))


@pytest.mark.parametrize(
    ("argument", "current", "received", "said"),
    [
        ("x-max-length", 10, 10, None),
        ("x-max-length", 10, 1 << 40, ("'1099511627776'", "'10'")),
        ("x-max-length", 10, 10.0, ("'10.0'", "'10'")),
        ("x-max-length", 10, "10", ("'10'", "'10'")),
        ("x-max-length", 1, True, ("'true'", "'1'")),
        ("x-max-length", 10, None, ("none", "'10'")),
        ("x-max-length", 10, NONE, ("none", "the value '10' of type 'signedint'")),
        ("x-expires", NONE, 1 << 31, ("the value '2147483648' of type 'long'", "none")),
        ("x-dead-letter-exchange", NONE, "dlx", ("the value 'dlx' of type 'longstr'", "none")),
        ("x-single-active-consumer", NONE, True, ("the value 'true' of type 'bool'", "none")),
        ("x-message-ttl", NONE, Decimal("1.5"), ("the value '1.5' of type 'decimal'", "none")),
        ("x-overflow", "drop-head", "reject-publish", ("'reject-publish'", "'drop-head'")),
        ("x-queue-type", NONE, "classic", None),
        ("x-queue-type", "classic", NONE, None),
        ("x-queue-type", NONE, "quorum", ("the value 'quorum' of type 'longstr'", "none")),
        ("x-unknown", 1, 2, None),
        ("x-unknown", NONE, {"a": [1]}, None),
    ],
)
def test_arguments_that_mean_something_are_compared(
    argument: str, current: Any, received: Any, said: tuple[str, str] | None
) -> None:
    records = [
        QueueRecord("q", arguments={} if value == NONE else {argument: value})
        for value in (current, received)
    ]
    if said is None:
        check_queue(QUEUE, *records)
    else:
        with refused(
            f"inequivalent arg '{argument}' for {QUEUE}: received {said[0]} but current is {said[1]}"
        ):
            check_queue(QUEUE, *records)


@pytest.mark.parametrize(
    ("field", "value", "received", "current"),
    [
        ("type", "fanout", "'fanout'", "'direct'"),
        ("durable", False, "'false'", "'true'"),
        ("auto_delete", True, "'true'", "'false'"),
        ("internal", True, "'true'", "'false'"),
        ("arguments", {"alternate-exchange": "y"}, "the value 'y' of type 'longstr'", "none"),
    ],
)
def test_an_exchange_with_other_properties_is_refused(
    field: str, value: Any, received: str, current: str
) -> None:
    known = ExchangeSpec("x", "direct")
    name = "alternate-exchange" if field == "arguments" else field
    with refused(f"inequivalent arg '{name}' for {EXCHANGE}: received {received} but current is {current}"):
        check_exchange(EXCHANGE, known, replace(known, **{field: value}))


def test_other_arguments_of_an_exchange_may_differ() -> None:
    check_exchange(EXCHANGE, ExchangeSpec("x", "direct"), ExchangeSpec("x", "direct", arguments={"mine": 1}))


values = st.sampled_from([None, True, False, 0, 1, 1.0, "", "1", "classic"])
tables = st.dictionaries(st.sampled_from([*QUEUE_ARGUMENTS[:3], "x-queue-type", "x-mine"]), values)


@given(tables)
def test_an_unchanged_redeclaration_succeeds(arguments: dict[str, Any]) -> None:
    check_queue(
        QUEUE, QueueRecord("q", arguments=arguments), QueueRecord("q", arguments={**arguments, "x-more": 1})
    )


@given(tables, tables)
def test_a_refusal_goes_both_ways_and_names_what_differs(
    mine: dict[str, Any], theirs: dict[str, Any]
) -> None:
    answers = []
    for current, received in ((mine, theirs), (theirs, mine)):
        try:
            check_queue(QUEUE, QueueRecord("q", arguments=current), QueueRecord("q", arguments=received))
            answers.append(None)
        except PreconditionFailed as error:
            answers.append(error.reply_text.split("'")[1])
    assert answers[0] == answers[1]
    if answers[0] is not None:
        assert repr(mine.get(answers[0], NONE)) != repr(theirs.get(answers[0], NONE))


@pytest.mark.parametrize(
    ("mode", "text"),
    [
        ("all", None),
        ("any", None),
        ("all-with-x", None),
        ("any-with-x", None),
        ("some", 'Invalid x-match field value <<"some">>; expected all, any, all-with-x, or any-with-x'),
        (1, "Invalid x-match field type signedint (value 1); expected longstr"),
        (True, "Invalid x-match field type bool (value true); expected longstr"),
    ],
)
def test_x_match_is_one_of_four(mode: Any, text: str | None) -> None:
    check_x_match({})
    if text is None:
        check_x_match({"x-match": mode})
    else:
        with refused(text):
            check_x_match({"x-match": mode})


def test_an_alternate_exchange_is_a_name() -> None:
    check_alternate(EXCHANGE, {})
    check_alternate(EXCHANGE, {"alternate-exchange": "y"})
    with refused(f"invalid type 'signedint' for arg 'alternate-exchange' in {EXCHANGE}"):
        check_alternate(EXCHANGE, {"alternate-exchange": 1})
