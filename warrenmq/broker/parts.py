"""Protocols of a Broker's parts, implemented over its own actors (client.py) or over another process (shared/client.py)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from pykka import ActorRef

from warrenmq.actors.sending.confirms import Confirm
from warrenmq.broker.retry import RetryPolicy
from warrenmq.message.properties import Properties
from warrenmq.message.stored import StoredMessage
from warrenmq.node.alarms import Alarm, BlockedPublisher
from warrenmq.queue.collected import OpenAcks
from warrenmq.queue.messages import Consume, Get
from warrenmq.runtime import Channel, Runtime
from warrenmq.runtime.calls import From
from warrenmq.runtime.seams import Own
from warrenmq.settings import Settings
from warrenmq.trace.recorder import ActorTrace


class AlarmTable(Protocol):
    """The alarms that are set, for those who publish (node/alarms.py)."""

    @property
    def active(self) -> tuple[Alarm, ...]: ...
    def add_waiting(self, publisher: BlockedPublisher, wake: Callable[[], None]) -> int: ...
    def remove_waiting(self, ticket: int) -> None: ...


class OpenState(Protocol):
    """The open state of a broker (engine.py)."""

    consumers: dict[int, Channel]
    """Channels of running consumers, which get CLOSED at the end."""

    @property
    def is_open(self) -> bool: ...
    @property
    def trace_path(self) -> str | None: ...
    def check_open(self) -> None: ...


class Calls(Protocol):
    """Requests to a broker's processes (calls.py)."""

    def call_queue(self, queue: str, request: Any) -> tuple[Any, Any]: ...
    def ask_queue(self, queue: str, request: Any, box: Channel) -> tuple[From, ActorRef[Any]] | None: ...
    def call_actor(self, ref: Any, request: Any) -> Any: ...
    def call_named(self, name: str, request: Any) -> Any: ...
    def give_up(self, queue: str, request: Get | Consume) -> None: ...
    def minds_consumers(self, queue: str, timeout: float) -> bool: ...


class Transacted(Protocol):
    """A transaction, to the publishing side that it belongs to (publisher.py, Pending)."""

    @property
    def is_empty(self) -> bool: ...
    def publish(self, exchange: str, routing_key: str, bodies: list[bytes], properties: Properties | None,
                persistent: bool, mandatory: bool) -> Confirm: ...  # fmt: skip
    def publish_later(self, exchange: str, routing_key: str, bodies: list[bytes], properties: Properties | None,
                      persistent: bool, due: int) -> Confirm: ...  # fmt: skip
    def settle(self, ref: Any, message: Any) -> None: ...
    def on_roll_back(self, undo: Callable[[], object]) -> None: ...


class Publishes(Protocol):
    """One thread's publishing side (publisher.py)."""

    pending: Transacted | None

    def wait_for_turn(self, exchange: str, routing_key: str, timeout: float | None,
                      properties: Properties | None = None) -> None: ...  # fmt: skip
    def publish(self, exchange: str, routing_key: str, bodies: list[bytes], properties: Properties | None,
                persistent: bool, mandatory: bool) -> Confirm: ...  # fmt: skip
    def publish_one(self, exchange: str, routing_key: str, body: bytes, properties: Properties | None,
                    persistent: bool, mandatory: bool) -> Confirm: ...  # fmt: skip
    def publish_later(self, exchange: str, routing_key: str, bodies: list[bytes], properties: Properties | None,
                      persistent: bool, due: int) -> Confirm: ...  # fmt: skip
    def publish_copy(self, queues: tuple[str, ...], message: StoredMessage, properties: Properties | bytes, *,
                     persistent: bool, due: int = 0) -> Confirm: ...  # fmt: skip
    def queues_of(
        self, exchange: str, routing_key: str, headers: Mapping[str, Any] | None
    ) -> tuple[str, ...]: ...
    def would_block(self, exchange: str, routing_key: str, properties: Properties | None) -> bool: ...
    def check(self, exchange: str, routing_key: str, properties: Properties | None) -> None: ...
    def promise(self) -> Confirm: ...
    def cast(self, ref: Any, message: Any) -> None: ...


class BrokerClient(Protocol):
    """The application's side of a broker (client.py)."""

    next_consumer_id: Callable[[], int]
    retry_policies: dict[str, RetryPolicy]

    @property
    def engine(self) -> OpenState: ...
    @property
    def calls(self) -> Calls: ...
    @property
    def runtime(self) -> Runtime: ...
    @property
    def settings(self) -> Settings: ...
    def trace(self) -> ActorTrace | None: ...
    @property
    def publishing(self) -> Own[Publishes]: ...
    def ack_one(self, ref: Any, acks: OpenAcks, tag: int) -> Transacted | None: ...
    def settle(self, ref: Any, message: Any) -> Transacted | None: ...
    def cast(self, ref: Any, message: Any) -> None: ...
    @property
    def has_later(self) -> bool: ...
    def have_later(self) -> None: ...
    def on_end(self, ref: Any, notice: Callable[[Any], None]) -> Any: ...
    def forget(self, ref: Any, key: Any) -> None: ...
