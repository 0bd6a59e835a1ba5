"""Errors of a disk: which of them pass when there is room again, and what a failed sync means.

A class of its own has what the code above treats in its own way; of all others it asks what was lacking.
"""

from __future__ import annotations

import errno


def is_full(error: OSError) -> bool:
    """True if there was no space, or a file would have become larger than it may: there may be room later,
    and nothing else is wrong.
    """
    return error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG} and not isinstance(error, SyncFailed)


def is_longest(error: OSError) -> bool:
    """True if a file would have become larger than the system lets files of this process be: nobody knows if
    that ever changes.
    """
    return error.errno == errno.EFBIG


def is_short_of_descriptors(error: OSError) -> bool:
    """True if no file could be opened because too many are open."""
    return error.errno in {errno.EMFILE, errno.ENFILE}


class NoRoomToSync(OSError):
    """A sync had no room for what it has to write along: nothing has failed that could not be tried again."""


class SyncFailed(OSError):
    """A sync of a file failed, whatever for: the system may have dropped what it should have saved, and the
    next sync does not tell.
    """


class FileDeleted(SyncFailed):
    """A file has no name any more, so what was written to it is lost with the last descriptor of it."""


class ReadFailed(OSError):
    """Bytes of a file could not be read for now; nothing was changed."""


def deleted(path: str) -> FileDeleted:
    """The error of a file that was deleted while it is open."""
    return FileDeleted(
        errno.ENOENT, "deleted while the broker had it open, with what was written to it", path
    )


FULL = "the disk is full"


def lack_of(error: OSError) -> str | None:
    """The want that made an operation fail for now, as words of a sentence; None for every other failure.

    >>> lack_of(OSError(errno.ENOSPC, "No space left on device"))
    'the disk is full'
    >>> lack_of(OSError(errno.EFBIG, "File too large"))
    'the system lets no file grow further (File too large)'
    >>> lack_of(OSError(errno.EIO, "Input/output error"))
    """
    if isinstance(error, ReadFailed):
        return f"a file cannot be read ({error.strerror})"
    if is_longest(error):
        return f"the system lets no file grow further ({error.strerror})"
    if is_full(error):
        return FULL
    return f"the system opens no file ({error.strerror})" if is_short_of_descriptors(error) else None
