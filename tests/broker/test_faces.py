"""The faces of the broker compared: asyncio has all that the synchronous one has, with the same arguments and types."""

import inspect

import pytest

import warrenmq
from warrenmq import aio
from warrenmq.broker.consumer import Consumer
from warrenmq.broker.transaction import Transaction
from warrenmq.shared.broker import SharedBroker

INTERNAL = {"after_fork", "ahead", "cancel_soon", "handed_out", "lapse", "local"}
"""For this package's own modules, as their docstrings say."""
NAMES = {
    "str | Exchange": "str | Named", "str | QueueHandle | Exchange | None": "str | Named | None",
    "QueueHandle": "Queue", "list[QueueHandle]": "list[Queue]",
}  # fmt: skip
"""Annotations of the synchronous face -> those of asyncio's, where the same thing has another class."""
AWAITED = {"publish": "None", "publish_many": "None"}
"""The answer of an awaited publish on asyncio's face, in place of a Confirm."""
PAIRS = [
    (warrenmq.Broker, aio.Broker), (warrenmq.QueueHandle, aio.Queue), (warrenmq.Exchange, aio.Exchange),
    (Consumer, aio.Consumer), (Transaction, aio.Transaction),
]  # fmt: skip


def arguments(method):
    return [
        (each.name, each.kind, each.default, NAMES.get(each.annotation, each.annotation))
        for each in list(inspect.signature(method).parameters.values())[1:]
    ]


@pytest.mark.parametrize(("here", "there"), PAIRS, ids=[here.__name__ for here, _ in PAIRS])
def test_asyncio_has_all_that_the_synchronous_face_has(here, there):
    names = {name for name in dir(here) if not name.startswith("_")} - INTERNAL
    assert names <= set(dir(there))
    for name in names:
        one, other = getattr(here, name), getattr(there, name)
        if callable(one):
            assert arguments(one) == arguments(other), name
            told = inspect.signature(one).return_annotation
            expected = AWAITED.get(name, NAMES.get(told, told))
            assert inspect.signature(other).return_annotation == expected, name
            assert "Any" not in str(inspect.signature(other)).replace("Mapping[str, Any]", ""), name


def test_a_shared_broker_has_the_calls_of_one_that_is_not():
    for name in (name for name in dir(warrenmq.Broker) if not name.startswith("_")):
        here, there = getattr(warrenmq.Broker, name), getattr(SharedBroker, name)
        assert type(here) is type(there), name
        if callable(here):
            assert inspect.signature(here) == inspect.signature(there), name
