"""The runtime's own messages between actors: calls, timers, Down, Exit (Erlang's `$gen_call`, `'DOWN'`, `'EXIT'`).

A cast travels bare, so that it costs nothing; only with tracing on is it wrapped in Traced.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pykka import ActorRef

from warrenmq.runtime.calls import From


@dataclass(slots=True)
class Info:
    """A message for `handle_info`."""

    message: Any


@dataclass(slots=True)
class Down:
    """A monitored actor died."""

    monitor: int
    ref: ActorRef[Any] | None
    """None: no actor had that name when the monitor was set; `reason` is then "noproc"."""
    reason: Any


@dataclass(slots=True)
class Exit:
    """An exit signal: a linked actor died; from the parent, or with no `ref`, the order to stop."""

    ref: ActorRef[Any] | None
    reason: Any


@dataclass(slots=True)
class Call:
    """A request whose sender waits."""

    request: Any
    sender: From


@dataclass(slots=True)
class ProxyRequest:
    """Pykka's own proxy messages (method call, attribute get or set); `sender` is None when no answer is expected."""

    message: Any
    sender: From | None


@dataclass(slots=True)
class Traced:
    """A message with its sender and the row of its SEND in the sender's trace."""

    message: Any
    peer: int
    pseq: int
    t: int


def unwrapped(message: Any) -> Any:
    """The cast, request or timer's message that a message of the runtime brings."""
    if type(message) is Traced:
        message = message.message
    if type(message) is Info:
        return message.message
    if type(message) is Call:
        return message.request
    return message
