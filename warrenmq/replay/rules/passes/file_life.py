"""One file of a store, as its rows tell it: what S3 to S8 and E1 are about.

    end      where the next record begins      APPEND moves it, GC_DONE and TRUNCATE set it, a new file (ROLL) has 0
    live     records with references           APPEND, GC_MOVE, REF_RECOVERED, a write that revives: in
                                               the last reference goes, the file is combined away: out
    written  handed to the kernel              FILE_WRITE
    safe     synced                            FILE_SYNC
    locked   at the collector                  LOCK, UNLOCK

=====================================================================  ====
FILE_STATE says another valid_total_size than live adds up to          S3
FILE_STATE says another file_size than where the last record ends      E1
a file is deleted while records in it are live                         S3
TRUNCATE to less than its live records take                            S3
GC_DONE, and what was moved is not what was valid at GC_START          S3
COMPACT_DONE, and its moves are not what it copied                     S5
APPEND or FILE_WRITE while locked, GC_MOVE or COMPACT_MOVE while not   S4
LOCK while locked, UNLOCK while not                                    S4
LOCK or FILE_DELETE of the current file                                S4
APPEND not at the end, GC_MOVE not where the last one ended            S5
COMPACT_MOVE before the end of the last one, or onto its own old place S5
ROLL below the limit, APPEND beyond it or after the ROLL               S6
ROLL of a file that was left, APPEND to one that was not opened        S6
ROLL for or after a large message that is not alone in its file        S6
ROLL because of garbage, and half of the file or more is live          S6
FILE_WRITE that is not all that was appended since the last one        S7
FILE_WRITE "buffer full" of no more than the buffer                    S7
FILE_WRITE "roll over" of a file below the limit                       S7
FILE_SYNC of more than was written, or with a wrong count              S7
TRUNCATE to another size than COMPACT_DONE named                       S8
READ after a TRUNCATE by one who began before its threshold            S8
=====================================================================  ====

A store tells every file that it found (FILE_STATE), so a file whose end nothing told is no file: unless rows are missing,
which makes what is found indeterminate.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from warrenmq.trace.events import ROLL_FOR_LARGE, ROLL_GARBAGE, ROLL_LARGE, Ev, Trigger

_APPEND = int(Ev.APPEND)
_LAST_GONE = frozenset({int(Ev.STORE_REMOVE), int(Ev.REF_DROPPED)})

Broken = list[tuple[str, str]]
"""(rule, text) of what one row breaks."""


@dataclass(slots=True)
class File:
    """The walk through one file's rows."""

    number: int
    limit: int
    buffer: int
    end: int = -1
    written: int = -1
    safe: int = -1
    moved: int = -1
    """Where the collector's next record goes; -1 = not told."""
    due: int = -1
    """Bytes that the combine which goes on has to move here."""
    copied: int = -1
    """Bytes that the compaction which goes on has copied; -1 = none goes on."""
    cut: int = -1
    """What the last compaction made of the file."""
    locked: bool = False
    opened: bool = False
    """By this incarnation."""
    appended: bool = False
    """By this incarnation: a file that was full when it was recovered is left after the first record."""
    left: bool = False
    large: bool = False
    """It was opened for a large message."""
    threshold: int = 0
    """Of the last TRUNCATE: a reader with this mark or an older one has left."""
    sizes: dict[int, int] = field(default_factory=dict)
    """Every record, message -> bytes."""
    live: dict[int, int] = field(default_factory=dict)
    valid: int = 0
    """Sum of `live`."""
    gone: bool = False
    """Deleted, or combined away."""

    @property
    def size(self) -> int:
        """Of the file; -1 when nothing says that it is there."""
        return -1 if self.gone else max(self.end, self.moved if self.end < 0 else -1)

    def take(self, word: int, first: bool, msg: int, pseq: int, b: int, c: int) -> Broken:
        """One row; what it breaks.  `first`: of two files in the row, this is the first."""
        event = word >> 8
        if event == _APPEND:
            return self._append(msg, b, c)
        if event in _LAST_GONE:
            self.valid -= self.live.pop(msg, 0)
            return []
        match event:
            case Ev.FILE_WRITE:
                return self._write(word & 0xFF, b, c)
            case Ev.FILE_SYNC:
                return self._sync(b, c)
            case Ev.READ:
                return self._read(pseq)
            case Ev.ROLL:
                return self._begin(word & 0xFF) if first else self._leave(word & 0xFF, c)
            case Ev.STORE_WRITE:
                self._add(msg, self.sizes.get(msg, 0))
            case Ev.REF_RECOVERED:
                self._add(msg, c)
            case Ev.LOCK | Ev.UNLOCK:
                return self._lock(locked=event == Ev.LOCK)
            case Ev.GC_START:
                self.moved, self.due = -1, c if first else -1
            case Ev.COMPACT_START:
                self.moved, self.copied = -1, 0
            case Ev.COMPACT_DONE:
                return self._compacted(b, c)
            case Ev.COMPACT_MOVE:
                return self._compact(pseq, b, c)
            case Ev.TRUNCATE:
                return self._truncate(pseq, b)
            case Ev.GC_MOVE:
                return self._move(msg, b, c)
            case Ev.GC_DONE:
                return self._combined(first=first)
            case Ev.FILE_DELETE:
                return self._delete()
            case Ev.FILE_STATE:
                return self._state(b, c)
        return []

    @property
    def current(self) -> bool:
        """Known to be the one that records are appended to: nobody tells which one it is after recovery."""
        return (self.opened or self.appended) and not self.left

    def _append(self, msg: int, offset: int, size: int) -> Broken:
        broken: Broken = []
        if self.locked:
            broken.append(("S4", "a record was appended while the file was locked"))
        if self.left:
            broken.append(("S6", "a record was appended after the roll-over"))
        if self.large and self.appended:
            broken.append(("S6", "a second record was appended to a large message's own file"))
        if self.end < 0:
            broken.append(("S6", "a record was appended to a file that was not opened"))
        if self.end >= 0 and offset != self.end:
            broken.append(("S5", f"a record begins at {offset}, the last one ended at {self.end}"))
        elif self.appended and 0 < self.limit <= offset:
            broken.append(("S6", f"a record was appended at {offset}, the limit is {self.limit}"))
        if self.written < 0:
            self.written = self.safe = offset
        self.end = offset + size
        self.appended = True
        self._add(msg, size)
        return broken

    def _lock(self, *, locked: bool) -> Broken:
        was, self.locked = self.locked, locked
        broken: Broken = []
        if was is locked:
            broken.append(("S4", f"it was {'locked' if locked else 'unlocked'}, and was already"))
        if locked and self.current:
            broken.append(("S4", "the current file was locked"))
        return broken

    def _delete(self) -> Broken:
        broken: Broken = []
        if self.current:
            broken.append(("S4", "the current file was deleted"))
        if self.valid:
            broken.append(("S3", f"deleted with {len(self.live)} live records of {self.valid} bytes"))
        self.gone = True
        return broken

    def _add(self, msg: int, size: int) -> None:
        self.valid += size - self.live.get(msg, 0)
        self.sizes[msg] = self.live[msg] = size

    def _write(self, trigger: int, offset: int, size: int) -> Broken:
        broken: Broken = []
        if self.locked:
            broken.append(("S4", "the buffer was written while the file was locked"))
        if (self.written >= 0 and offset != self.written) or (self.end >= 0 and offset + size != self.end):
            text = f"{size} bytes were written at {offset}, but {self.end - self.written} were appended since {self.written}"
            broken.append(("S7", text))
        if trigger == Trigger.BUFFER_FULL and 0 < self.buffer >= size:
            broken.append(("S7", f"buffer full with {size} bytes, it holds {self.buffer}"))
        if trigger == Trigger.ROLL_OVER and offset + size < self.limit:
            broken.append(("S7", f"roll-over at {offset + size}, the limit is {self.limit}"))
        self.written = offset + size
        return broken

    def _sync(self, safe: int, since: int) -> Broken:
        broken: Broken = []
        if self.written >= 0 and safe > self.written:
            broken.append(("S7", f"{safe} bytes were called safe, {self.written} were written"))
        elif self.safe >= 0 and safe - self.safe != since:
            broken.append(("S7", f"a sync of {since} bytes moved the safe end from {self.safe} to {safe}"))
        self.safe = safe
        return broken

    def _begin(self, why: int) -> Broken:
        self.end = self.written = self.safe = 0
        self.opened = True
        self.large = why == ROLL_FOR_LARGE
        return []

    def _leave(self, why: int, size: int) -> Broken:
        if self.left:
            return [("S6", "left a second time")]
        self.left = True
        match why:
            case _ if why == ROLL_FOR_LARGE:
                pass  # the next file's machine sees what comes
            case _ if why == ROLL_LARGE:
                if len(self.sizes) > 1:
                    return [
                        ("S6", f"left as a large message's own file, with {len(self.sizes)} records in it")
                    ]
            case _ if why == ROLL_GARBAGE:
                if self.valid * 2 >= size:
                    return [("S6", f"left because of garbage, with {self.valid} live of {size} bytes")]
            case _:
                if size < self.limit:
                    return [("S6", f"left with {size} bytes, the limit is {self.limit}")]
        if self.end not in {-1, size}:
            return [("S6", f"left with {size} bytes, but its records end at {self.end}")]
        return []

    def _move(self, msg: int, offset: int, size: int) -> Broken:
        broken: Broken = []
        if not self.locked:
            broken.append(("S4", "the collector moved a record into it while it was not locked"))
        if self.moved not in {-1, offset}:
            broken.append(("S5", f"a record was moved to {offset}, the one before ended at {self.moved}"))
        self.moved = offset + size
        self._add(msg, size)
        return broken

    def _compact(self, source: int, target: int, size: int) -> Broken:
        broken: Broken = []
        if not self.locked:
            broken.append(("S4", "the collector moved a record within it while it was not locked"))
        if target < self.moved or target + size > source:
            text = f"a record of {size} bytes was moved from {source} to {target}, the one before ended at {self.moved}"
            broken.append(("S5", text))
        self.moved = target + size
        self.copied += size
        return broken

    def _compacted(self, size: int, copied: int) -> Broken:
        moved, self.copied, self.cut = self.copied, -1, size
        if moved < 0:
            return [("S5", "a compaction ended that had not begun")]
        return [("S5", f"a compaction copied {copied} bytes, its moves {moved}")] if moved != copied else []

    def _truncate(self, threshold: int, size: int) -> Broken:
        self.end = self.written = self.safe = size
        self.threshold = threshold
        broken: Broken = []
        if size != self.cut:
            broken.append(("S8", f"cut to {size} bytes, the compaction before made {self.cut} of it"))
        if size < self.valid:
            broken.append(("S3", f"cut to {size} bytes, its {len(self.live)} live records have {self.valid}"))
        return broken

    def _read(self, mark: int) -> Broken:
        if mark <= self.threshold:
            return [("S8", f"reader {mark} was still there when all up to {self.threshold} were waited for")]
        return []

    def _combined(self, *, first: bool) -> Broken:
        broken: Broken = []
        if first and self.due != max(self.moved, 0):
            broken.append(("S3", f"{max(self.moved, 0)} bytes were moved, {self.due} were to be"))
        self.due = -1
        if not first:  # its records are in the other file now
            self.live.clear()
            self.valid = 0
            self.gone = True
        self.sizes = dict(self.live)
        self.end = self.written = self.safe = -1
        return broken

    def _state(self, valid: int, size: int) -> Broken:
        if self.end < 0:
            self.end = self.written = self.safe = size
        broken: Broken = []
        if size != self.end:
            broken.append(("E1", f"file_size is {size}, it said; its rows make {self.end}"))
            self.end = size
        if valid != self.valid:
            text = f"valid_total_size is {valid}, its {len(self.live)} live records have {self.valid} bytes"
            broken.append(("S3", text))
        return broken
