"""Queue arguments are read, or refused in RabbitMQ's words."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warrenmq.errors import PreconditionFailed
from warrenmq.message.typed_headers import TypedHeaders
from warrenmq.queue.arguments import ARGUMENTS_OF_OTHER_TYPES, MAX_EXPIRY, QueueArguments, type_name, type_of


def of(**arguments: Any) -> QueueArguments:
    return QueueArguments.of(
        {"x-" + name.replace("_", "-"): value for name, value in arguments.items()}, "q", "/"
    )


def test_each_argument_has_its_field() -> None:
    given_ = {"message_ttl": 0, "expires": 1, "max_length": 0, "max_length_bytes": 7, "overflow": "reject-publish-dlx",
              "dead_letter_exchange": "", "dead_letter_routing_key": "k", "max_priority": 255,
              "single_active_consumer": True, "queue_mode": "lazy", "queue_version": 2, "queue_type": "classic"}  # fmt: skip
    assert of(**given_) == QueueArguments(**given_)  # type: ignore[arg-type]


def test_without_arguments_a_queue_has_no_features() -> None:
    assert of() == QueueArguments()
    assert (
        QueueArguments.of({"x-unknown": 1, "other": "x", "x-queue-master-locator": "min-masters"}, "q", "/")
        == of()
    )


WRONG = [
    ({"expires": 0}, "{value_zero,0}"),
    ({"expires": -1}, "{value_negative,-1}"),
    ({"expires": MAX_EXPIRY + 1}, "{value_too_large,315360000001}"),
    ({"expires": "60"}, '"expected integer, got longstr"'),
    ({"message_ttl": -1}, "{value_negative,-1}"),
    ({"message_ttl": MAX_EXPIRY + 1}, "{value_too_large,315360000001}"),
    ({"message_ttl": 1.5}, '"expected integer, got double"'),
    ({"message_ttl": True}, '"expected integer, got bool"'),
    ({"dead_letter_exchange": 1}, "{unacceptable_type,signedint}"),
    ({"dead_letter_routing_key": "k"}, "routing_key_but_no_dlx_defined"),
    ({"dead_letter_exchange": "x", "dead_letter_routing_key": 1}, "{unacceptable_type,signedint}"),
    ({"max_length": -1}, "{value_negative,-1}"),
    ({"max_length": "1"}, '"expected integer, got longstr"'),
    ({"max_length_bytes": -3}, "{value_negative,-3}"),
    ({"max_priority": 256}, "{max_value_exceeded,256}"),
    ({"max_priority": -1}, "{value_negative,-1}"),
    ({"max_priority": None}, '"expected integer, got void"'),
    ({"overflow": "drop-tail"}, "invalid_overflow"),
    ({"overflow": 1}, "{unacceptable_type,signedint}"),
    ({"queue_mode": "eager"}, "\"unsupported queue mode 'eager'\""),
    ({"queue_version": 3}, "\"unsupported queue version '3'\""),
    ({"queue_version": "2"}, '"expected integer, got longstr"'),
    ({"single_active_consumer": "true"}, "{unacceptable_type,longstr}"),
    ({"queue_type": "lazy"}, "\"unsupported queue type 'lazy'\""),
    ({"queue_type": 1}, "{unacceptable_type,signedint}"),
]


@pytest.mark.parametrize(("arguments", "problem"), WRONG)
def test_wrong_arguments_are_refused_in_rabbitmqs_words(arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(PreconditionFailed) as refused:
        of(**arguments)
    name = "x-" + list(arguments)[-1].replace("_", "-")
    assert refused.value.reply_text == f"invalid arg '{name}' for queue 'q' in vhost '/': {problem}"
    assert repr(name) in str(refused.value)


@pytest.mark.parametrize("name", sorted(ARGUMENTS_OF_OTHER_TYPES))
def test_arguments_of_other_types_of_queues_are_refused(name: str) -> None:
    with pytest.raises(PreconditionFailed) as refused:
        QueueArguments.of({name: 1}, "q", "v")
    assert (
        refused.value.reply_text
        == f"invalid arg '{name}' for queue 'q' in vhost 'v' of queue type rabbit_classic_queue"
    )


@pytest.mark.parametrize("kind", ["quorum", "stream"])
def test_other_types_of_queues_are_refused_before_their_arguments(kind: str) -> None:
    with pytest.raises(PreconditionFailed, match="classic queues only") as refused:
        of(queue_type=kind, max_age="1h")
    assert f"queue type '{kind}'" in refused.value.reply_text


def test_the_error_names_the_first_wrong_argument_in_rabbitmqs_order() -> None:
    with pytest.raises(PreconditionFailed) as refused:
        of(overflow=1, max_length=-1, expires=0)
    assert "x-expires" in refused.value.reply_text


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**63), st.floats(), st.text(), st.binary(), st.decimals(),
    st.lists(st.integers(), max_size=2), st.dictionaries(st.text(), st.integers(), max_size=2),
)  # fmt: skip
NAMES = st.sampled_from(
    ["x-" + name.replace("_", "-") for name in QueueArguments.__dataclass_fields__] + ["x-else"]
)


@given(st.dictionaries(NAMES, VALUES))
def test_any_arguments_are_read_or_refused_with_a_reason(arguments: dict[str, Any]) -> None:
    try:
        read = QueueArguments.of(arguments, "q", "/")
    except PreconditionFailed as why:
        refused = why
    else:
        refused = None
    if refused is not None:
        assert refused.reply_text
    else:
        assert read.message_ttl is None or 0 <= read.message_ttl <= MAX_EXPIRY
        assert read.max_priority is None or 0 <= read.max_priority <= 255
        assert read.dead_letter_routing_key is None or read.dead_letter_exchange is not None


def test_types_have_rabbitmqs_names() -> None:
    values = [
        True,
        1,
        1 << 31,
        "a",
        1.0,
        b"a",
        bytearray(b"a"),
        {},
        [],
        datetime(2020, 1, 1, tzinfo=UTC),
        Decimal(1),
        None,
    ]
    names = [
        "bool", "signedint", "long", "longstr", "double", "binary", "binary", "table", "array", "timestamp",
        "decimal", "void",
    ]  # fmt: skip
    assert [type_name(value) for value in values] == names


@pytest.mark.parametrize(
    ("letter", "name"),
    [
        ("b", "byte"),
        ("s", "short"),
        ("u", "unsignedshort"),
        ("I", "signedint"),
        ("l", "long"),
        ("f", "float"),
    ],
)
def test_an_argument_that_came_with_a_type_is_refused_by_it(letter: str, name: str) -> None:
    arguments = TypedHeaders([["x-overflow", letter, 2.0 if letter == "f" else 2]])
    with pytest.raises(PreconditionFailed) as refused:
        QueueArguments.of(arguments, "q", "/")
    assert (
        refused.value.reply_text
        == f"invalid arg 'x-overflow' for queue 'q' in vhost '/': {{unacceptable_type,{name}}}"
    )
    assert type_of(arguments, "x-overflow") == name
    assert type_of({"n": 1}, "n") == "signedint"
