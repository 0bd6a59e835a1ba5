"""Requests to a supervisor, and functions for them (OTP's supervisor:start_child and so on).

The first argument is who calls: a Runtime, or the Server whose callback it is.  They wait as long as the children
take, and raise what went wrong at the supervisor, which lives on.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from pykka import ActorRef

from warrenmq.runtime import Name
from warrenmq.supervisors.child_spec import ChildSpec


class ChildInfo(NamedTuple):
    """One line of `which_children`."""

    id: Hashable
    ref: ActorRef[Any] | None
    """The child's actor; None while it does not run."""
    spec: ChildSpec


@dataclass(slots=True)
class StartChild:
    """Call: start a child, of a ChildSpec alone or of what adds to the template of a simple_one_for_one supervisor."""

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    name: Name | None = None


@dataclass(slots=True)
class StopChild:
    """Call: stop a child, if it runs."""

    id: Hashable
    by: ActorRef[Any] | None
    """The actor that asks and waits; None if it is no server."""


@dataclass(slots=True)
class RestartChild:
    """Call: start a child that was stopped."""

    id: Hashable


@dataclass(slots=True)
class DeleteChild:
    """Call: forget a child that was stopped."""

    id: Hashable


@dataclass(slots=True)
class WhichChildren:
    """Call: list the children; the reply is a list of ChildInfo."""


@dataclass(slots=True)
class TryAgain:
    """Message from the supervisor to itself: a restart has failed."""

    child: Any
    failed: Exception | None
    """The exception of its start, so that the next one counts as a restart; None if the system lacked a
    thread, memory or the like.
    """


class Caller(Protocol):
    """A Server or a Runtime: both can call."""

    def call(self, dest: ActorRef[Any] | Name, request: Any, timeout: float | None) -> Any: ...


def start_child(
    caller: Caller, supervisor: ActorRef[Any] | Name, *args: Any, name: Name | None = None, **kwargs: Any
) -> ActorRef[Any]:
    """Start a child: of the one ChildSpec given, or, of a simple_one_for_one supervisor, with more arguments."""
    ref: ActorRef[Any] = _ask(caller, supervisor, StartChild(args, kwargs, name))
    return ref


def stop_child(caller: Caller, supervisor: ActorRef[Any] | Name, id: Hashable) -> None:
    """Stop a child and keep its spec, unless it is temporary or of a simple_one_for_one supervisor."""
    _ask(caller, supervisor, StopChild(id, getattr(caller, "actor_ref", None)))


def restart_child(caller: Caller, supervisor: ActorRef[Any] | Name, id: Hashable) -> ActorRef[Any]:
    """Start a stopped child again."""
    ref: ActorRef[Any] = _ask(caller, supervisor, RestartChild(id))
    return ref


def delete_child(caller: Caller, supervisor: ActorRef[Any] | Name, id: Hashable) -> None:
    """Forget a stopped child."""
    _ask(caller, supervisor, DeleteChild(id))


def which_children(caller: Caller, supervisor: ActorRef[Any] | Name) -> list[ChildInfo]:
    """The children, in order of start."""
    found: list[ChildInfo] = _ask(caller, supervisor, WhichChildren())
    return found


def _ask(caller: Caller, supervisor: ActorRef[Any] | Name, request: Any) -> Any:
    value, error = caller.call(supervisor, request, None)
    if error is not None:
        raise error
    return value
