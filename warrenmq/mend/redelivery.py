"""Mark moved messages as redelivered where they had been delivered before the move.

A queue leaves with its terms up to which sequence id its messages may have been delivered (directory/recovery_terms.py),
which is all that it can say: in front of a message that was, every other one counts as delivered, too.
"""

from __future__ import annotations

from warrenmq.directory.recovery_terms import FILE_NAME, parse, paths_to_sync, save_terms
from warrenmq.seams.disk import Disk


def mark(disk: Disk, folder: str, below: int) -> bool:
    """Mark the messages of a stopped queue below this sequence id as redelivered; False where it left no terms."""
    path = f"{folder}/{FILE_NAME}"
    terms = parse(disk.read(path)) if disk.exists(path) else None
    if terms is None:
        return False
    save_terms(disk, folder, terms._replace(next_deliver_seq_id=max(below, terms.next_deliver_seq_id)))
    disk.sync_many(paths_to_sync(disk, [folder]))
    return True
