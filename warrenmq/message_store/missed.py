"""Messages that queues refer to and no file has: where they may have been."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf


def lowest_of_missed(claims: Iterable[Iterable[bytes]], file_of: Callable[[bytes], int | None]) -> float:
    """The lowest number of a file that may have held a message which is missed; infinity if none is.

    `claims` are the messages of each queue in its order, `file_of` gives the file of one, or None if it is missed.  A queue's
    messages are appended in its order, and no collector changes the order of what is in different files, so a missed one
    was in no file before that of an older one of its queue.  A killed process leaves such messages, which it had not
    appended yet, and beside them, in older files, bytes of a compaction that was not finished.

    >>> lowest_of_missed([[b"a", b"b", b"c"], [b"d"]], {b"a": 3, b"b": 5, b"d": 1}.get)
    5
    """
    lowest = inf
    for msg_ids in claims:
        newest = -1
        for msg_id in msg_ids:
            if (file := file_of(msg_id)) is None:
                lowest = min(lowest, newest)
                break
            newest = max(newest, file)
    return lowest
