"""Threads: the runtime of production, one thread an actor."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from pykka import ActorRef, ActorRegistry

from warrenmq import forks
from warrenmq.errors import CallerError
from warrenmq.runtime.base import Runtime
from warrenmq.runtime.inbox import Inbox
from warrenmq.runtime.shortage import no_thread
from warrenmq.runtime.thread_event import ThreadEvent
from warrenmq.runtime.thread_start import start_thread


def _check_gil() -> None:
    """Raise CallerError if the interpreter has no GIL: what threads share here is safe only as long as one of
    them runs at a time.
    """
    is_enabled = getattr(sys, "_is_gil_enabled", None)  # since Python 3.13
    if is_enabled is not None and not is_enabled():
        raise CallerError(
            "warrenmq needs the GIL, which is off in this interpreter: start it with PYTHON_GIL=1 or python -X gil=1"
        )


class _Here(threading.local):
    ref: ActorRef[Any] | None = None
    """The actor of the calling thread."""


class Threads(Runtime):
    """Each actor has a daemon thread of its own; blocking blocks that thread."""

    def __init__(self) -> None:
        """CallerError on an interpreter without a GIL."""
        _check_gil()
        super().__init__()
        self._pid = os.getpid()
        forks.register(self)
        self._threads: set[threading.Thread] = set()
        self._here = _Here()
        self.monotonic_ns = time.monotonic_ns  # type: ignore[method-assign]  # 45 ns, a method around it 100
        self.channel = SimpleQueue  # type: ignore[method-assign]
        self.event = ThreadEvent  # type: ignore[method-assign]

    def after_fork(self) -> None:
        """See forks.py: the actors' threads are in the parent."""
        self.forked_from = self._pid
        self._threads.clear()

    def launch(self, ref: ActorRef[Any], label: str, loop: Callable[[], None]) -> None:
        def run() -> None:
            self._here.ref = ref
            try:
                loop()
            finally:
                self._threads.discard(thread)

        thread = threading.Thread(target=run, name=label, daemon=True)
        self._threads.add(thread)
        try:
            start_thread(thread)
        except (RuntimeError, MemoryError) as error:
            self._threads.discard(thread)
            ActorRegistry.unregister(ref)
            raise no_thread(error, label) from error

    def runs_here(self, ref: ActorRef[Any]) -> bool:
        return self._here.ref is ref

    def channel(self) -> SimpleQueue[Any]:
        return SimpleQueue()

    def event(self) -> ThreadEvent:
        return ThreadEvent()

    def lock(self) -> threading.Lock:
        return threading.Lock()

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()

    def wall_ns(self) -> int:
        return time.time_ns()

    def run_callback(self, callback: Callable[[Any], object], argument: Any) -> None:
        """Run an application's callback: what it raises, as an asyncio.CancelledError, which is no Exception, ends no actor.

        In the main thread, which runs no actor then, it may be of a signal's handler and is passed on.
        """
        try:
            callback(argument)
        except BaseException as error:
            if self.passes(error) or threading.current_thread() is threading.main_thread():
                raise

    def pause(self) -> None:
        time.sleep(0)

    def token_bytes(self, n: int) -> bytes:
        return os.urandom(n)

    def shutdown(self, timeout: float | None = 5.0) -> None:
        if self.forked_from is not None:
            return
        super().shutdown(timeout)
        for thread in list(self._threads):
            if thread is not threading.current_thread():
                thread.join(timeout)


class _Registry:
    """Pykka's table of all actors of the process, and its lock."""

    def after_fork(self) -> None:
        """Actors of ours are not in this process; another thread of the parent may have held the lock."""
        ActorRegistry._actor_refs_lock = threading.RLock()  # noqa: SLF001 - Pykka knows of no forks
        for ref in ActorRegistry.get_all():
            if isinstance(ref.actor_inbox, Inbox):
                ActorRegistry.unregister(ref)


_REGISTRY = _Registry()
forks.register(_REGISTRY)
