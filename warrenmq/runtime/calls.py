"""From: the address that a call is answered at (gen_server's `From`).

A reply may come at once, later, or from another actor; the first one counts.  It is a value (`reply`), an error to be
raised at the caller (`refuse`), or the end of the server before it answered (`fail`), which also says whether the server
was handling the request then: the server marks it with `begin`, and with `park` when it will answer later.
"""

from __future__ import annotations

from queue import Empty
from typing import Any

from pykka import Future, Timeout

from warrenmq.runtime.closable import Closable
from warrenmq.runtime.reasons import CallFailed
from warrenmq.runtime.seams import Channel
from warrenmq.trace.recorder import ActorTrace

NO_REPLY = object()
"""Returned by a `handle_call` that will answer later, with `sender.reply`."""


class From:
    """One call that waits for its answer."""

    __slots__ = ("_box", "_callee", "_handling", "_key", "_trace", "t")

    def __init__(self, callee: Closable, box: Channel, trace: ActorTrace | None) -> None:
        """`box` gets the answer; `trace` is the caller's."""
        self._box = box
        self._handling = False
        self._trace = trace
        self._callee = callee
        self.t = 0
        """The answering actor's clock at its reply; 0 when untraced."""
        self._key = callee.on_close(self.fail)

    def begin(self) -> None:
        """Note, as the server, that from here on the request may have an effect, and may be the cause of the
        server's death.
        """
        self._handling = True

    def park(self) -> None:
        """Note, as the server, that the request waits and has had no effect so far."""
        self._handling = False

    def reply(self, value: Any) -> None:
        """Answer; from any thread."""
        self._box.put((value, None))

    def refuse(self, error: Exception) -> None:
        """Answer with an error, which the call raises; the server lives on."""
        self._box.put((None, error))

    def fail(self, reason: Any) -> None:
        """Make the call raise CallFailed(reason)."""
        self._box.put((None, CallFailed(reason, handling=self._handling)))

    def wait(self, timeout: float | None) -> Any:
        """Wait, as the caller, for the answer: it, the server's refusal, CallFailed, or pykka.Timeout after
        `timeout` seconds.
        """
        try:
            value, error = self._box.get(timeout=timeout)
        except Empty:
            raise Timeout(f"no reply in {timeout} s") from None
        if error is not None:
            raise error
        return value

    def end(self) -> None:
        """Expect, as the caller, no answer any more."""
        self._callee.forget(self._key)
        if self._trace is not None:
            self._trace.observe(self.t)


class FutureFrom(From):
    """The address of a Pykka `ask`: its answer goes into a Pykka future, once."""

    __slots__ = ("_unanswered",)

    def __init__(self, future: Future[Any], callee: Closable) -> None:
        self.t = 0
        self._handling = False
        self._unanswered = [future]
        self._callee = callee
        self._key = 0
        self._key = callee.on_close(self.fail)  # may fail it at once

    def reply(self, value: Any) -> None:
        if (future := self._take()) is not None:
            future.set(value)

    def refuse(self, error: Exception) -> None:
        if (future := self._take()) is not None:
            future.set_exception((type(error), error, None))

    def fail(self, reason: Any) -> None:
        self.refuse(CallFailed(reason, handling=self._handling))

    def _take(self) -> Future[Any] | None:
        try:
            future = self._unanswered.pop()  # atomic: an answer and the callee's end may race
        except IndexError:
            return None
        self._callee.forget(self._key)
        return future
