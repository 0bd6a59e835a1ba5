"""One owner for a data directory: the operating system's lock on a file that also names the owner.

The kernel gives a lock back when its owner ends, by SIGKILL too, so there is nothing stale to judge.  It belongs to
the open file, not to the process, so a second broker in this process is refused as well; and a forked child, which shares the
open file, closes it, or it would keep the lock beyond the end of its parent.

Like disk.py this is a seam: it asks the operating system for the lock, the process, the host and the time.
"""

from __future__ import annotations

import fcntl
import os
import platform
import time

from warrenmq import forks
from warrenmq.errors import DirectoryInUse, PreconditionFailed

FILE_NAME = "warrenmq.owner"
_LINES = 3
_SHARES = "shared"
"""The fourth line of an owner that serves other processes over the directory's socket."""


class _Lock:
    """The open file that a lock belongs to."""

    _fd = -1

    def after_fork(self) -> None:
        """See forks.py."""
        self.release()

    def release(self) -> None:
        """Release the directory; may be called twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class OwnerLock(_Lock):
    """The lock on a directory, held until `release` or the end of the process."""

    def __init__(self, directory: str, *, shares: bool = False) -> None:
        """Take it, or raise DirectoryInUse with what its owner wrote.

        `shares`: other processes will be served over the directory's socket, once what it holds is recovered.
        """
        path = os.path.join(directory, FILE_NAME)
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        forks.register(self)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            in_use = _in_use(directory, os.pread(self._fd, 4096, 0))
            self.release()
            if isinstance(error, BlockingIOError):
                raise in_use from None
            raise
        record = _record(os.getpid(), platform.node(), time.strftime("%Y-%m-%d %H:%M:%S %z"), shares=shares)
        try:
            # in this order, as others read it at any time
            os.pwrite(self._fd, record, 0)
            os.ftruncate(self._fd, len(record))
        except BaseException:
            self.release()
            raise


class ReaderLock(_Lock):
    """Keeps owners out of a directory that is being read, and writes nothing into it; several readers may have it."""

    def __init__(self, directory: str) -> None:
        """Take it, or raise DirectoryInUse; where no broker of ours ever was there is nothing to take."""
        try:
            self._fd = os.open(os.path.join(directory, FILE_NAME), os.O_RDONLY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            return
        forks.register(self)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            in_use = _in_use(directory, os.pread(self._fd, 4096, 0))
            self.release()
            raise in_use from None


class FolderLock(_Lock):
    """Keeps verbs that change a directory apart, and from those that read it, where no owner of ours ever was: a lock on the
    folder itself, which leaves nothing in it.
    """

    def __init__(self, directory: str, *, changes: bool) -> None:
        """Take it, or raise PreconditionFailed while another verb has it."""
        self._fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        forks.register(self)
        try:
            fcntl.flock(self._fd, (fcntl.LOCK_EX if changes else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except OSError as why:
            self.release()
            if not isinstance(why, BlockingIOError):
                return  # a network file system locks no folders
            msg = f"{directory} is being read or changed by another command; wait until that has ended."
            raise PreconditionFailed(msg) from None


def owner_of(directory: str) -> DirectoryInUse | None:
    """The error that opening the directory would raise, which names its owner; None if it has none or the owner is unknown.

    The lock is tried for a moment only where the last owner may still run, so that an owner that starts meanwhile is not
    refused because another process looked.
    """
    try:
        with open(os.path.join(directory, FILE_NAME), "rb") as file:
            last = _in_use(directory, file.read(4096))
        if (
            last.host != platform.node()
            or os.path.exists(f"/proc/{last.pid}")
            or not os.path.exists("/proc/self")
        ):
            ReaderLock(directory).release()
    except DirectoryInUse as owner:
        return owner
    except OSError:
        return None
    return None


def _record(pid: int, host: str, started: str, *, shares: bool) -> bytes:
    return "".join(f"{line}\n" for line in (pid, host, started, *[_SHARES] * shares)).encode()


def _in_use(directory: str, record: bytes) -> DirectoryInUse:
    """The error that names the owner; one that has the lock, but has not written its record yet, is unknown (process 0)."""
    lines = record.decode(errors="replace").splitlines()
    if len(lines) < _LINES or not lines[0].isdigit():
        return DirectoryInUse(directory, 0, "an unknown host", "a moment ago")
    return DirectoryInUse(directory, int(lines[0]), lines[1], lines[2], shared=_SHARES in lines[_LINES:])
