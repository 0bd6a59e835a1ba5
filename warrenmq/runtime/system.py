"""Protocols between an actor's own parts (inbox, life) and the Runtime that they live in.

`Runtime` (base.py) is the only System and `ActorLife` (life.py) the only Living; base.py imports these parts, so they
know it by these protocols.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Protocol

from pykka import ActorRef

from warrenmq.runtime.seams import Channel, Lock
from warrenmq.trace.recorder import Recorder


class Living(Protocol):
    """One living actor, in the books of its runtime."""

    label: str
    parent: ActorRef[Any] | None
    incarnation: int
    over: bool

    def killed(self) -> None: ...

    def close_trace(self, reason: Any) -> None: ...


class System(Protocol):
    """A Runtime, seen from inside an actor."""

    recorder: Recorder | None
    tick: Callable[[], int]

    def launch(self, ref: ActorRef[Any], label: str, loop: Callable[[], None]) -> None: ...

    def channel(self) -> Channel: ...

    def mail(self) -> Channel: ...

    def lock(self) -> Lock: ...

    def monotonic_ns(self) -> int: ...

    def caught(self, error: BaseException) -> None: ...

    def register(self, name: Hashable, ref: ActorRef[Any]) -> None: ...

    def enlist(self, ref: ActorRef[Any], life: Living) -> None: ...

    def label(self, name: Hashable | None, actor: type) -> str: ...

    def incarnation(self, label: str) -> int: ...

    def kind(self, message: Any) -> int: ...
