"""Delayed messages: the exchange type x-delayed-message, and the names of the queues that hold delayed messages.

    argument x-delayed-type    how the exchange routes when a message's time has come: direct, fanout, topic or headers
    header x-delay             milliseconds that a message waits; without it, or with 0 and less, it is routed at once

A message that waits lies in a queue of the broker's own, one for each such exchange and one for `publish(..., delay=)`.
Clients cannot declare, bind, consume or delete these, and no exchange routes to them by a key:

    amq.delayed.EXCHANGE    messages for EXCHANGE, whose bindings are looked at when their time has come
    amq.delayed             messages that an application published with a delay, for the exchange that they name

Source: rabbit_exchange_type_delayed_message and rabbit_delayed_message_utils of rabbitmq-delayed-message-exchange 3.10.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

X_DELAYED_MESSAGE = "x-delayed-message"
X_DELAYED_TYPE = "x-delayed-type"
X_DELAY = "x-delay"
X_DELAYED_TO = "x-delayed-to"
"""Header of a message in LATER that goes back to one queue, whatever exchange and keys it names; it is taken
off when it does.
"""
LONGEST_DELAY = 315_360_000_000
"""Milliseconds: ten years, as for a time to live."""
LATER = "amq.delayed"
_OF_EXCHANGE = LATER + "."


def store_of(exchange: str) -> str:
    """The name of the queue that holds a delayed exchange's messages."""
    return _OF_EXCHANGE + exchange


def is_store(queue: str) -> bool:
    """True if this queue holds delayed messages."""
    return queue == LATER or queue.startswith(_OF_EXCHANGE)


def exchange_of(store: str) -> str | None:
    """The exchange whose delayed messages this queue holds; None for those of `publish(..., delay=)`."""
    return store.removeprefix(_OF_EXCHANGE) if store.startswith(_OF_EXCHANGE) else None


def delay_of(headers: Mapping[str, Any] | None) -> int:
    """The delay of a message with these headers, in milliseconds; 0 = none.

    | x-delay              | waits                |
    | -------------------- | -------------------- |
    | missing, no number   | 0                    |
    | 5000                 | 5000                 |
    | "5000"               | 5000                 |
    | 1.9                  | 1                    |
    | 0, -5000             | 0: it has waited     |
    | more than ten years  | ten years            |

    The plugin routes a message at once whose delay is longer than 2^32 - 1 ms; here it waits.
    """
    value = None if headers is None else headers.get(X_DELAY)
    match value:
        case None | bool():
            return 0
        case int():
            delay = value
        case float() | Decimal():
            try:
                delay = int(value)
            except (ValueError, OverflowError):  # infinite, or not a number
                return 0
        case str():
            try:
                delay = int(value)
            except ValueError:
                return 0
        case _:
            return 0
    return min(max(0, delay), LONGEST_DELAY)
