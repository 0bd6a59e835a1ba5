"""The state of one file of a store, from its rows, for S3 to S8 and E1.

    end      where the next record begins      APPEND moves it, GC_DONE and TRUNCATE set it, a new file (ROLL) has 0
    live     records with references           APPEND, GC_MOVE, REF_RECOVERED, a write that revives: in
                                               the last reference goes, the file is combined away: out
    written  handed to the kernel              FILE_WRITE
    safe     synced                            FILE_SYNC
    locked   at the collector                  LOCK, UNLOCK

The decisions are the rules' own (`judge`): for each event a check, which is asked before the row changes the state:

    def cut_below_its_records(file: File, mark: int, size: int) -> str: ...      what is wrong, or ""
    RULE = Rule(..., machines=(Files,), judge={Files: {Ev.TRUNCATE: cut_below_its_records}})

A check is called with the file and those columns of the row that the method of `File` for this event takes (STEPS).

FILE_STATE rows name every file that the store found, so a file without a recorded size counts as missing:
unless rows are missing, which makes findings indeterminate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from warrenmq.trace.events import (
    ROLL_FOR_LARGE,
    Append,
    CompactDone,
    CompactMove,
    Ev,
    FileState,
    FileSync,
    FileWrite,
    GcDone,
    GcMove,
    GcStart,
    Read,
    RefDropped,
    RefRecovered,
    Roll,
    StoreRemove,
    StoreWrite,
    Trigger,
    Truncate,
)
from warrenmq.trace.schema import COLUMNS, Getter, Nine, V

_WHO, _FILE_STATE, _APPEND = COLUMNS.index("who"), int(Ev.FILE_STATE), int(Ev.APPEND)

Check = Callable[..., str]
"""(file, columns of the row ...) -> what is wrong, or nothing."""
Checks = dict[int, list[tuple[str, Check]]]
"""Event -> (rule, its check)."""
Broken = list[tuple[str, str]]
"""(rule, text) of each check that a row breaks."""


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

    number: int
    limit: int
    buffer: int
    checks: Checks
    end: int = -1
    written: int = -1
    safe: int = -1
    moved: int = -1
    """The offset of the collector's next record; -1 = not known."""
    due: int = -1
    """Bytes that the combine which goes on has to move here."""
    copied: int = -1
    """Bytes that the compaction which goes on has copied; -1 = none goes on."""
    cut: int = -1
    """Bytes of the file after the last compaction."""
    locked: bool = False
    opened: bool = False
    """True if this incarnation opened the file."""
    appended: bool = False
    """True if this incarnation appended to it: a file that was full when it was recovered is left after the first record."""
    left: bool = False
    large: bool = False
    """True if it was opened for a large message."""
    rolling: bool = False
    """True if its last write was for a roll-over."""
    threshold: int = 0
    """The threshold of the last TRUNCATE: a reader with this mark or an older one has left."""
    sizes: dict[int, int] = field(default_factory=dict)
    """Every record, message -> bytes."""
    live: dict[int, int] = field(default_factory=dict)
    valid: int = 0
    """Sum of `live`."""
    gone: bool = False
    """Deleted, or combined away."""
    deleted: bool = False

    @property
    def size(self) -> int:
        """The size of the file; -1 if no row says that it exists."""
        return -1 if self.gone else max(self.end, self.moved if self.end < 0 else -1)

    @property
    def current(self) -> bool:
        """Known to be the one that records are appended to: after a recovery no row names it."""
        return (self.opened or self.appended) and not self.left

    def take(self, row: tuple[int, ...]) -> Broken:
        """Take the next row, with the columns of a Row; returns the checks that it breaks."""
        event = row[_WHO] >> 8 & 0xFF
        columns, change = STEPS[event]
        said = columns(row)
        if event == _FILE_STATE:
            self.know_size(*said)
        broken = self._broken_by(event, said) if event in self.checks else []
        change(self, *said)
        return broken

    def _broken_by(self, event: int, said: tuple[int, ...]) -> Broken:
        return [(rule, wrong) for rule, check in self.checks[event] if (wrong := check(self, *said))]

    def take_stretch(
        self, messages: Sequence[int], offsets: Sequence[int], sizes: Sequence[int], released: Iterable[int]
    ) -> bool:
        """Take rows that append new records, each at the end of the one before, and rows that release; False
        if one breaks a check.

        Within such a stretch nothing changes that a check of an append asks for, but where the next record begins, which
        rises: what the first and the last pass, all pass.
        """
        fine = True
        if messages:
            fine = self._appends_well(messages[0], offsets[0], sizes[0])
        if len(messages) > 1:
            between = dict(zip(messages[1:-1], sizes[1:-1], strict=True))
            self.sizes |= between
            self.live |= between
            self.valid += sum(between.values())
            self.end = offsets[-1]
            fine = fine and self._appends_well(messages[-1], offsets[-1], sizes[-1])
        for message in released:
            self.release(message)
        return fine

    def _appends_well(self, message: int, offset: int, size: int) -> bool:
        """Take an APPEND row; False if it breaks a check."""
        broken = _APPEND in self.checks and self._broken_by(_APPEND, (message, offset, size))
        self.append(message, offset, size)
        return not broken

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

    def revive(self, msg: int) -> None:
        """A record that is there is referred to again."""
        self.add(msg, self.sizes.get(msg, 0))

    def release(self, msg: int) -> None:
        """The last reference to a record is gone."""
        self.valid -= self.live.pop(msg, 0)

    def read(self, _mark: int) -> None:
        """A read changes nothing."""

    def write(self, trigger: int, offset: int, size: int) -> None:
        self.written = offset + size
        self.rolling = trigger == Trigger.ROLL_OVER

    def sync(self, safe: int, _since: int) -> None:
        self.safe = safe

    def roll(self, new_file: int, _old_file: int, why: int, _size: int) -> None:
        if new_file == self.number:
            self.end = self.written = self.safe = 0
            self.opened = True
            self.large = why == ROLL_FOR_LARGE
        else:
            self.left = True

    def lock(self) -> None:
        self.locked = True

    def unlock(self) -> None:
        self.locked = False

    def begin_combine(self, destination: int, valid: int) -> None:
        self.moved, self.due = -1, valid if destination == self.number else -1

    def move(self, msg: int, offset: int, size: int) -> None:
        self.moved = offset + size
        self.add(msg, size)

    def end_combine(self, destination: int) -> None:
        self.due = -1
        if destination != self.number:  # its records are in the other file now
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
        self.gone = self.deleted = True
        self.locked = False

    def know_size(self, _valid: int, size: int) -> None:
        """Take a file's size from FILE_STATE if no row has told it yet."""
        if self.end < 0:
            self.end = self.written = self.safe = size

    def state(self, _valid: int, size: int) -> None:
        self.end = size


def _no_columns(_row: Nine[V], /) -> tuple[V, ...]:
    return ()


STEPS: dict[int, tuple[Getter, Callable[..., None]]] = {
    Ev.APPEND: (Append.getter("message", "offset", "size"), File.append),
    Ev.FILE_WRITE: (FileWrite.getter("trigger", "offset", "size"), File.write),
    Ev.FILE_SYNC: (FileSync.getter("synced_to", "size"), File.sync),
    Ev.READ: (Read.getter("mark"), File.read),
    Ev.ROLL: (Roll.getter("new_file", "old_file", "reason", "old_size"), File.roll),
    Ev.STORE_WRITE: (StoreWrite.getter("message"), File.revive),
    Ev.STORE_REMOVE: (StoreRemove.getter("message"), File.release),
    Ev.REF_DROPPED: (RefDropped.getter("message"), File.release),
    Ev.REF_RECOVERED: (RefRecovered.getter("message", "size"), File.add),
    Ev.LOCK: (_no_columns, File.lock),
    Ev.UNLOCK: (_no_columns, File.unlock),
    Ev.GC_START: (GcStart.getter("destination", "valid_size"), File.begin_combine),
    Ev.GC_MOVE: (GcMove.getter("message", "offset", "size"), File.move),
    Ev.GC_DONE: (GcDone.getter("destination"), File.end_combine),
    Ev.COMPACT_START: (_no_columns, File.begin_compaction),
    Ev.COMPACT_MOVE: (CompactMove.getter("old_offset", "new_offset", "size"), File.copy),
    Ev.COMPACT_DONE: (CompactDone.getter("new_size", "copied"), File.end_compaction),
    Ev.TRUNCATE: (Truncate.getter("mark", "new_size"), File.truncate),
    Ev.FILE_DELETE: (_no_columns, File.delete),
    Ev.FILE_STATE: (FileState.getter("valid_total_size", "file_size"), File.state),
}
"""Event -> the columns of a row that matter to a file, and the method that takes them."""
