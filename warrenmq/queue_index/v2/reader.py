"""Read the entries of a .qi file, whatever its bytes are: what is live, what is damaged.

Recovery, `check`, `repair` and `recover` all read with this.  The formats are in qi.py and qs.py.  Entries
have fixed places and do not depend on each other, so damage never moves what is behind it.  The file's name
and the segment's size tell all that a header tells, so a damaged header loses nothing.

A segment's size is what most files of the folder agree on; a setting only counts for a new folder.

Source: rabbit_classic_queue_index_v2, docs/reference/classic-queue.md#index-files and #recovery-of-version-2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from warrenmq.directory.torn import Damage
from warrenmq.queue_index.v2 import qi, qs
from warrenmq.seams.disk import Readable

MAGIC = {qi.EXTENSION: qi.MAGIC, qs.EXTENSION: qs.MAGIC}
_IN_STORE = int(qi.Location.STORE)
_EXPIRY = range(24, qi.ENTRY_BYTES)
_LOCATION_KNOWN = {int(qi.Location.STORE): 20, int(qi.Location.QUEUE_STORE): 12}
"""Bytes of a torn entry that must be there to find its message."""


def segment_size(heads: Iterable[tuple[int, str, bytes]], default: int) -> int:
    """The number of messages a segment; `heads` are number, extension and first bytes of each file."""
    sizes: Counter[int] = Counter()
    for number, extension, head in heads:
        header = qi.unpack_header(MAGIC[extension], head)
        if isinstance(header, qi.Header) and header.first == number * (header.end - header.first):
            sizes[header.end - header.first] += 1
    return sizes.most_common(1)[0][0] if sizes else default


def header_problem(extension: str, head: bytes, number: int, entry_count: int) -> str | None:
    """The problem of a segment file's header; None if it is valid."""
    first, end = number * entry_count, (number + 1) * entry_count
    found = qi.unpack_header(MAGIC[extension], head)
    if isinstance(found, str):
        return found
    if found == (first, end):
        return None
    return f"its header says {found.first} to {found.end}, its name {first} to {end}"


def live_entries(
    data: bytes, number: int, entry_count: int
) -> tuple[list[tuple[int, qi.Entry]], list[Damage]]:
    """Position and entry of each live one of a .qi file, ascending, and what makes no sense."""
    damage: list[Damage] = []
    if data and (problem := header_problem(qi.EXTENSION, data, number, entry_count)) is not None:
        damage.append(Damage(0, min(len(data), qi.HEADER_BYTES), problem))
    end = qi.HEADER_BYTES + qi.ENTRY_BYTES * entry_count
    entries, more = qi.parse_entries(data[qi.HEADER_BYTES : end])
    if any(data[end:]):
        more.append(Damage(end, len(data) - end, "it goes on behind its last entry"))
    return entries, damage + more


class Summary(NamedTuple):
    """A .qi file as a start needs it, without an object for each entry."""

    live: int
    """The number of live entries."""
    first: int
    """Position of the first one, -1 without any."""
    last: int
    transient: list[int]
    """Positions of those that are not persistent."""
    in_store: list[tuple[int, bytes]]
    """Position and message id of the persistent ones whose bodies are in the message store."""
    expires: bool
    """True if some entry may have an expiry."""
    damage: list[Damage]


def summary(data: bytes, number: int, entry_count: int) -> Summary:
    """`live_entries` in short; a file without damage is read by its columns."""
    end = qi.HEADER_BYTES + qi.ENTRY_BYTES * entry_count
    rows = data[qi.HEADER_BYTES : end]
    header_is_right = header_problem(qi.EXTENSION, data, number, entry_count) is None
    if not header_is_right or any(data[end:]) or not qi.whole(rows):
        return summary_of(*live_entries(data, number, entry_count))
    status, flags, locations = (rows[column :: qi.ENTRY_BYTES] for column in (0, 1, 3))
    transient: list[int] = []
    in_store: list[tuple[int, bytes]] = []
    if status != flags:  # an entry without its first byte differs, too
        transient = [
            at for at, (live, persistent) in enumerate(zip(status, flags, strict=True)) if live > persistent
        ]
    if _IN_STORE in locations:
        starts = range(qi.MSG_ID_AT, len(rows), qi.ENTRY_BYTES)
        in_store = [
            (at, rows[start : start + qi.MSG_ID_BYTES])
            for at, (start, live, persistent, location) in enumerate(
                zip(starts, status, flags, locations, strict=True)
            )
            if live and persistent and location == _IN_STORE
        ]
    expires = any(rows[column :: qi.ENTRY_BYTES].strip(b"\0") for column in _EXPIRY)
    return Summary(
        status.count(qi.LIVE), status.find(qi.LIVE), status.rfind(qi.LIVE), transient, in_store, expires, []
    )


def summary_of(entries: list[tuple[int, qi.Entry]], damage: list[Damage]) -> Summary:
    """Summarise live entries that were read one by one."""
    return Summary(
        len(entries),
        entries[0][0] if entries else -1,
        entries[-1][0] if entries else -1,
        [at for at, entry in entries if not entry.persistent],
        [(at, entry.msg_id) for at, entry in entries if entry.persistent and entry.location == _IN_STORE],
        any(entry.expiry for _, entry in entries),
        damage,
    )


def torn_entry(data: bytes, bodies: Readable | None, entry_count: int) -> tuple[int, qi.Entry] | None:
    """The entry within which a .qi file ends, if its message can be found: the .qs file knows how long bodies are.

    A start drops it, as its file would have to be mended first.
    """
    position, size = divmod(len(data) - qi.HEADER_BYTES, qi.ENTRY_BYTES)
    torn = data[len(data) - size :]
    if size < 4 or position >= entry_count or size < _LOCATION_KNOWN.get(torn[3], qi.ENTRY_BYTES):
        return None
    torn = torn.ljust(qi.ENTRY_BYTES, b"\0")
    if torn[3] == qi.Location.QUEUE_STORE:
        offset = int.from_bytes(torn[4:12], "big")
        stored_size = bodies.pread(4, offset) if bodies is not None else b""
        torn = torn[:12] + stored_size.ljust(4, b"\0") + torn[16:]
    (found, _) = qi.parse_entries(torn, position)
    return found[0] if found else None
