"""`recover` into a target, a directory of ours or a running broker, that refuses declarations of the source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from warrenmq.directory.definitions import ExchangeRecord, QueueRecord
from warrenmq.errors import AccessRefused, NotFound, PreconditionFailed
from warrenmq.mend.definitions import Bound, Definitions, declare

ODD = {"x-odd": 1}


class Strict:
    """Takes no arguments, no name of the broker's own and no exchange of a type that it does not know."""

    def __init__(self) -> None:
        self.queues = ["there"]
        self.exchanges: list[str] = []
        self.bound: list[tuple[str, str]] = []
        self.looked: list[str] = []

    def queue(self, name: str) -> None:
        self.looked.append(name)
        if name not in self.queues:
            raise NotFound(name)

    def declare_queue(self, name: str, *, auto_delete: bool, arguments: Mapping[str, Any]) -> None:
        if name.startswith("amq."):
            raise AccessRefused(name)
        if arguments:
            raise PreconditionFailed("no arguments")
        self.queues.append(name)

    def declare_exchange(
        self, name: str, type: str, *, auto_delete: bool, internal: bool, arguments: Mapping[str, Any]
    ) -> None:
        if arguments or type != "direct":
            raise PreconditionFailed("no arguments, direct only")
        self.exchanges.append(name)

    def bind(
        self,
        destination: str,
        source: str,
        routing_key: str,
        arguments: Mapping[str, Any],
        *,
        destination_type: str,
    ) -> None:
        if routing_key == "bad":
            raise PreconditionFailed("bad")
        self.bound.append((destination, source))


def test_queues_find_a_place_whatever_the_target_says() -> None:
    target, notes = Strict(), []
    wanted = [
        QueueRecord("there", arguments=ODD),
        QueueRecord("new"),
        QueueRecord("odd", arguments=ODD),
        QueueRecord("amq.x", arguments=ODD),
    ]
    called = declare(target, Definitions({queue.name: queue for queue in wanted}), notes)
    assert called == {"there": "there", "new": "new", "odd": "odd", "amq.x": "recovered-amq.x"}
    assert target.queues == ["there", "new", "odd", "recovered-amq.x"]
    assert "new" not in target.looked  # a broker logs an error for each name that is not there
    assert [note.split(" (")[0] for note in notes] == [
        "queue 'odd' was declared without its arguments",
        "queue 'recovered-amq.x' was declared without its arguments",
    ]


def test_an_exchange_is_declared_without_its_arguments_or_its_bindings_are_left_out() -> None:
    target, notes = Strict(), []
    exchanges = [
        ExchangeRecord("plain", "direct"),
        ExchangeRecord("odd", "direct", arguments=ODD),
        ExchangeRecord("hash", "x-hash"),
    ]
    bindings = [
        Bound("plain", "q", "queue", "", {}), Bound("odd", "plain", "exchange", "", {}), Bound("hash", "q", "queue", "", {}),
        Bound("plain", "hash", "exchange", "", {}), Bound("plain", "q", "queue", "bad", {}),
    ]  # fmt: skip
    declare(target, Definitions({"q": QueueRecord("q")}, exchanges, bindings), notes)
    assert target.exchanges == ["plain", "odd"]
    assert target.bound == [("q", "plain"), ("plain", "odd")]
    assert [note.split(": ")[0] for note in notes] == [
        "exchange 'odd' was declared without its arguments (x-odd=1)",
        "exchange 'hash' (x-hash) was refused",
        "the binding of queue 'q' to 'plain' was refused",
        "2 bindings of exchanges that were refused were left out",
    ]
