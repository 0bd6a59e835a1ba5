"""Errors that mean that the system has run out of something, rather than that a program is wrong.

An actor that cannot start for want of a thread, memory or a file descriptor has not crashed: the request for it is
refused with ResourceError, and everything that runs already goes on.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from time import sleep

from warrenmq.errors import Blocked, ResourceError
from warrenmq.seams.disk_errors import is_short_of_descriptors, lack_of
from warrenmq.seams.memory import no_memory

_ERRNOS = frozenset({errno.ENOMEM, errno.EAGAIN})
_OF_THREADS = frozenset({"can't start new thread", "can't allocate lock"})
"""The RuntimeErrors of `threading` for want of memory, or of a thread."""
_UNTOLD = "without setting an exception"
"""In the SystemError of a call for whose frame CPython found no memory."""
_PATIENCE = 0.005
"""Seconds after which a thread goes on where it had no memory."""


def shortage(error: BaseException, what: str) -> ResourceError | None:
    """The refusal of `what` when an error says that the system is out of memory or file descriptors, else None.

    >>> shortage(MemoryError(), "queue:jobs")
    ResourceError("there is no memory for 'queue:jobs'; free some, or raise the limit of this process, and try again")
    >>> shortage(OSError(errno.EMFILE, "Too many open files"), "queue:jobs")
    ResourceError("the system refused 'queue:jobs' (Too many open files); close something, or raise that limit, and try again")
    >>> shortage(OSError(errno.ENOSPC, "No space left on device"), "queue:jobs")
    >>> shortage(RuntimeError("can't allocate lock"), "queue:jobs")
    ResourceError("there is no memory for 'queue:jobs'; free some, or raise the limit of this process, and try again")
    >>> shortage(SystemError("<function run> returned NULL without setting an exception"), "queue:jobs")
    ResourceError("there is no memory for 'queue:jobs'; free some, or raise the limit of this process, and try again")
    >>> shortage(KeyError(), "queue:jobs")
    """
    if isinstance(error, ResourceError):
        return error
    if isinstance(error, MemoryError) or _is_no_memory(error):
        return no_memory(repr(what))
    if isinstance(error, OSError) and (error.errno in _ERRNOS or is_short_of_descriptors(error)):
        return ResourceError(
            f"the system refused {what!r} ({error.strerror}); close something, or raise that limit, and try again"
        )
    return None


def _is_no_memory(error: BaseException) -> bool:
    """True for a want of memory by another name."""
    if isinstance(error, SystemError):
        return _UNTOLD in str(error)
    return isinstance(error, RuntimeError) and str(error) in _OF_THREADS


def may_pass(error: BaseException) -> bool:
    """True if what failed may succeed later as it is: the system is out of something, or the disk is full, as
    a broker may say of its own.

    >>> may_pass(OSError(errno.ENOSPC, "No space left on device")), may_pass(OSError(errno.EIO, "Input/output error"))
    (True, False)
    """
    if isinstance(error, Blocked):
        return True
    return shortage(error, "") is not None or (isinstance(error, OSError) and lack_of(error) is not None)


def no_thread(error: BaseException, what: str) -> ResourceError:
    """The refusal of `what` when a thread could not be started."""
    why = str(error) or type(error).__name__
    return ResourceError(
        f"no thread could be started for {what!r} ({why}); stop something, or raise the limit of threads or memory, and try again"
    )


def keep_on(step: Callable[[], bool]) -> None:
    """Call `step` as long as it returns True, and again after a pause where it finds no memory: for threads
    whose place nobody else takes.
    """
    again = False
    while True:
        try:
            if again:
                sleep(_PATIENCE)
            again = True
            if not step():
                return
            again = False
        except MemoryError:  # here is nothing that needs any
            continue
        except (RuntimeError, SystemError) as error:
            if not _is_no_memory(error):
                raise
