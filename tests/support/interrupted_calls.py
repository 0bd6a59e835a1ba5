"""Calls that are interrupted in the middle, as a signal's handler interrupts them."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import warrenmq


class Interrupt(BaseException):
    """Raised in the middle of a call, as the handler of a signal raises KeyboardInterrupt."""


def interrupt(number: int, call: Callable[[], Any]) -> str:
    """Call, and raise Interrupt at the n-th entry of a function, one of the places at which Python calls the handlers of signals;
    returns where that was, "" if there are fewer.  Entries while the thread runs an actor, which holds signals back, do not count.
    """
    entries = 0
    at = ""

    def handler(_number: int, _frame: object) -> None: ...

    def trace(frame: FrameType, _event: str, _argument: object) -> None:
        nonlocal entries, at
        if signal.getsignal(signal.SIGUSR1) is not handler:
            return
        entries += 1
        if entries == number:
            at = f"{frame.f_code.co_filename}:{frame.f_lineno}"
            sys.settrace(None)
            raise Interrupt

    before = signal.signal(signal.SIGUSR1, handler)
    sys.settrace(trace)
    try:
        call()
    except (Interrupt, warrenmq.ResourceError):
        # the latter where threading.Thread.start makes a RuntimeError of it
        pass
    finally:
        sys.settrace(None)
        signal.signal(signal.SIGUSR1, before)
    return at


def signalled(number: int, call: Callable[[], object], handler: Callable[[], object]) -> bool:
    """Call, with a signal at the n-th place at which Python calls handlers: the entry of a function, the end of one in C.

    False if there are fewer.  A KeyboardInterrupt of the handler ends the call.
    """
    places = 0

    def profile(_frame: object, event: str, _argument: object) -> None:
        nonlocal places
        if event in ("call", "c_return"):
            places += 1
            if places == number:
                sys.setprofile(None)
                signal.raise_signal(signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, lambda *_: handler())
    sys.setprofile(profile)
    try:
        call()
    except KeyboardInterrupt:
        pass
    finally:
        sys.setprofile(None)
        signal.signal(signal.SIGUSR1, before)
    return places >= number
