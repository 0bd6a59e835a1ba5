"""One file of a store, as its rows tell it: the state that S3 to S8 and E1 decide on.

    end      where the next record begins      APPEND moves it, GC_DONE and TRUNCATE set it, a new file (ROLL) has 0
    live     records with references           APPEND, GC_MOVE, REF_RECOVERED, a write that revives: in
                                               the last reference goes, the file is combined away: out
    written  handed to the kernel              FILE_WRITE
    safe     synced                            FILE_SYNC
    locked   at the collector                  LOCK, UNLOCK

The decisions are the rules' own (`judge`): for each event a check, which is asked before the row changes the state:

    def cut_below_its_records(file: File, mark: int, size: int) -> str: ...      what is wrong, or ""
    RULE = Rule(..., machines=(Files,), judge={Ev.TRUNCATE: cut_below_its_records})

A check is given the file and what the row says, as the method of `File` for this event takes it.

A store tells every file that it found (FILE_STATE), so a file without a recorded size counts as missing: unless rows are missing,
which makes what is found indeterminate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from warrenmq.trace.events import ROLL_FOR_LARGE, Ev

_LAST_GONE = frozenset({int(Ev.STORE_REMOVE), int(Ev.REF_DROPPED)})

Check = Callable[..., str]
"""(file, what the row says ...) -> what is wrong, or nothing."""
Checks = dict[int, list[tuple[str, Check]]]
"""Event -> (rule, its check)."""
Broken = list[tuple[str, str]]
"""(rule, text) of what one row breaks."""


def checks_of(judges: Mapping[str, Mapping[int, Check]]) -> Checks:
    """The checks of these rules, by event."""
    found: Checks = {}
    for rule, by_event in judges.items():
        for event, check in by_event.items():
            found.setdefault(int(event), []).append((rule, check))
    return found


@dataclass(slots=True)
class File:
    """The walk through one file's rows."""

    limit: int
    buffer: int
    checks: Checks
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

    @property
    def current(self) -> bool:
        """Known to be the one that records are appended to: no row tells which one it is after recovery."""
        return (self.opened or self.appended) and not self.left

    def take(self, word: int, first: bool, msg: int, pseq: int, b: int, c: int) -> Broken:
        """One row; what it breaks.  `first`: of two files in the row, this is the first."""
        event, flag = word >> 8, word & 0xFF
        if event in _LAST_GONE:
            self.valid -= self.live.pop(msg, 0)
            return []
        said: tuple[int, ...]
        then: Callable[..., None] | None
        match event:
            case Ev.APPEND:
                said, then = (msg, b, c), self.append
            case Ev.FILE_WRITE:
                said, then = (flag, b, c), self.write
            case Ev.FILE_SYNC:
                said, then = (b, c), self.sync
            case Ev.READ:
                said, then = (pseq,), None
            case Ev.ROLL:
                said, then = (first, flag, c), self.roll
            case Ev.STORE_WRITE:
                said, then = (msg, self.sizes.get(msg, 0)), self.add
            case Ev.REF_RECOVERED:
                said, then = (msg, c), self.add
            case Ev.LOCK | Ev.UNLOCK:
                said, then = (event == Ev.LOCK,), self.lock
            case Ev.GC_START:
                said, then = (first, c), self.begin_combine
            case Ev.GC_MOVE:
                said, then = (msg, b, c), self.move
            case Ev.GC_DONE:
                said, then = (first,), self.end_combine
            case Ev.COMPACT_START:
                said, then = (), self.begin_compaction
            case Ev.COMPACT_MOVE:
                said, then = (pseq, b, c), self.copy
            case Ev.COMPACT_DONE:
                said, then = (b, c), self.end_compaction
            case Ev.TRUNCATE:
                said, then = (pseq, b), self.truncate
            case Ev.FILE_DELETE:
                said, then = (), self.delete
            case Ev.FILE_STATE:
                self.know_size(c)
                said, then = (b, c), self.state
            case _:
                return []
        broken = [
            (rule, wrong) for rule, check in self.checks.get(event, ()) if (wrong := check(self, *said))
        ]
        if then is not None:
            then(*said)
        return broken

    # what each event changes

    def append(self, msg: int, offset: int, size: int) -> None:
        if self.written < 0:
            self.written = self.safe = offset
        self.end = offset + size
        self.appended = True
        self.add(msg, size)

    def add(self, msg: int, size: int) -> None:
        """The record is referred to."""
        self.valid += size - self.live.get(msg, 0)
        self.sizes[msg] = self.live[msg] = size

    def write(self, _trigger: int, offset: int, size: int) -> None:
        self.written = offset + size

    def sync(self, safe: int, _since: int) -> None:
        self.safe = safe

    def roll(self, first: bool, why: int, _size: int) -> None:
        """The first of the two files is opened, the second one is left."""
        if first:
            self.end = self.written = self.safe = 0
            self.opened = True
            self.large = why == ROLL_FOR_LARGE
        else:
            self.left = True

    def lock(self, locked: bool) -> None:
        self.locked = locked

    def begin_combine(self, first: bool, valid: int) -> None:
        self.moved, self.due = -1, valid if first else -1

    def move(self, msg: int, offset: int, size: int) -> None:
        self.moved = offset + size
        self.add(msg, size)

    def end_combine(self, first: bool) -> None:
        self.due = -1
        if not first:  # its records are in the other file now
            self.live.clear()
            self.valid = 0
            self.gone = True
        self.sizes = dict(self.live)
        self.end = self.written = self.safe = -1

    def begin_compaction(self) -> None:
        self.moved, self.copied = -1, 0

    def copy(self, _source: int, target: int, size: int) -> None:
        self.moved = target + size
        self.copied += size

    def end_compaction(self, size: int, _copied: int) -> None:
        self.copied, self.cut = -1, size

    def truncate(self, mark: int, size: int) -> None:
        self.end = self.written = self.safe = size
        self.threshold = mark

    def delete(self) -> None:
        self.gone = True

    def know_size(self, size: int) -> None:
        """Of a file whose size no row has told yet, FILE_STATE is believed."""
        if self.end < 0:
            self.end = self.written = self.safe = size

    def state(self, _valid: int, size: int) -> None:
        self.end = size
