"""A store's files without flying counters, or with another garbage collection threshold.

The store's rows of writes, removes and recovery are replayed with two decisions made anew:

    | decision                      | with flying counters                   | without                               |
    | ----------------------------- | -------------------------------------- | ------------------------------------- |
    | a write whose remove is on    | ignored (in the trace)                 | a record, or one reference more       |
    | its way                       |                                        |                                       |
    | that remove                   | ignored (in the trace)                 | one reference less, or garbage        |

    garbage is collected while    all files are larger than two files may be, and more than THRESHOLD of that is garbage
    and every 15 seconds          compact: each file of which more than THRESHOLD is garbage; combine: the file with the most
                                  garbage, until no more than THRESHOLD of all is

The first is replayed exactly: whether a record is written depends only on the order of the operations.  How large a
cancelled message was is not in the trace; the mean of those that were written stands for it.  Garbage collection is a
model: it takes no time here, moves what does not lie in its place, and begins when the rule says so.  The page compares the
model of the present settings with the record, which shows how good the model is.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise

from warrenmq.trace.events import (
    Append,
    Decision,
    Ev,
    FileState,
    RefDropped,
    RefRecovered,
    StoreRemove,
    StoreWrite,
)
from warrenmq.trace.schema import Row

GARBAGE_FRACTION = 0.5
"""The threshold that every run has."""
CHECK_INTERVAL = 15_000_000_000
RECORDS = frozenset(
    {Ev.STORE_WRITE, Ev.APPEND, Ev.STORE_REMOVE, Ev.REF_RECOVERED, Ev.REF_DROPPED, Ev.FILE_STATE}
)
"""The rows that are walked."""
DEFAULT_LIMIT = 16_777_216


@dataclass(slots=True)
class StoreWork:
    """The work of a store, recorded or estimated."""

    writes: int = 0
    """Records that were appended."""
    bytes: int = 0
    gc_runs: int = 0
    gc_bytes: int = 0
    """Copied."""
    deleted: int = 0
    """Files that were empty."""
    largest: int = 0
    """The greatest size of all files together, bytes."""
    most_garbage: int = 0

    def add(self, other: StoreWork) -> None:
        self.writes += other.writes
        self.bytes += other.bytes
        self.gc_runs += other.gc_runs
        self.gc_bytes += other.gc_bytes
        self.deleted += other.deleted
        self.largest = max(self.largest, other.largest)
        self.most_garbage = max(self.most_garbage, other.most_garbage)


@dataclass(slots=True)
class _File:
    size: int = 0
    live: dict[int, tuple[int, int]] = field(default_factory=dict)
    """message -> (offset, bytes), rising offsets."""
    dead: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Records without references, which a write may bring back."""
    valid: int = 0

    @property
    def garbage(self) -> int:
        return self.size - self.valid


class StoreModel:
    """One store, from its recovery to its end."""

    def __init__(self, limit: int, threshold: float, mean_size: int, *, in_place: bool, flying: bool) -> None:
        self.work = StoreWork()
        self._limit = limit or DEFAULT_LIMIT
        self._in_place = in_place
        self._threshold = threshold
        self._flying = flying
        self._mean_size = mean_size
        self._files: dict[int, _File] = {0: _File()}
        self._current = 0
        self._place: dict[int, int] = {}
        """message -> file of its record"""
        self._refs: Counter[int] = Counter()
        self._graves: dict[int, int] = {}
        """message -> file of its record without references"""
        self._size = self._valid = 0
        self._looked = 0

    def take(self, row: Row) -> None:
        """Handle the next row."""
        self._look(row.t)
        match row.event:
            case Ev.REF_RECOVERED:
                self._recover(RefRecovered.of(row))
            case Ev.STORE_WRITE:
                self._write(StoreWrite.of(row))
            case Ev.APPEND:
                append = Append.of(row)
                self._append(append.message, append.size)
            case Ev.STORE_REMOVE:
                self._remove(StoreRemove.of(row))
            case Ev.REF_DROPPED:
                self._less(RefDropped.of(row).message)
            case Ev.FILE_STATE if not self.work.writes:  # at recovery
                state = FileState.of(row)
                if state.file in self._files:
                    self._grow(self._files[state.file], state.file_size)
        self.work.largest = max(self.work.largest, self._size)
        self.work.most_garbage = max(self.work.most_garbage, self._size - self._valid)

    def _recover(self, found: RefRecovered[int]) -> None:
        self._refs[found.message] = found.references
        file = self._files.setdefault(found.file, _File())
        self._current = max(self._current, found.file)
        self._put(found.file, found.message, found.offset, found.size)
        self._grow(file, found.offset + found.size)

    def _grow(self, file: _File, size: int) -> None:
        self._size += max(size - file.size, 0)
        file.size = max(file.size, size)

    def _write(self, write: StoreWrite[int]) -> None:
        flew = write.decision == Decision.IGNORE and write.flying <= 0
        if write.decision == Decision.IGNORE and not (flew and not self._flying):
            return
        msg = write.message
        self._refs[msg] += 1
        if msg in self._place or write.decision == Decision.WRITE:
            return  # one reference more, or an APPEND row follows
        if msg in self._graves:
            number = self._graves.pop(msg)
            self._put(number, msg, *self._files[number].dead.pop(msg))
        else:
            self._append(msg, self._mean_size)

    def _append(self, msg: int, size: int) -> None:
        if msg in self._place:
            return  # without flying counters it was written before
        file = self._files[self._current]
        self._put(self._current, msg, file.size, size)
        file.size += size
        self._size += size
        self.work.writes += 1
        self.work.bytes += size
        if file.size >= self._limit:
            self._roll()

    def _roll(self) -> None:
        self._current += 1
        self._files[self._current] = _File()
        self._collect()

    def _put(self, number: int, msg: int, offset: int, size: int) -> None:
        file = self._files[number]
        file.live[msg] = (offset, size)
        file.valid += size
        self._valid += size
        self._place[msg] = number

    def _remove(self, remove: StoreRemove[int]) -> None:
        flew = remove.decision == Decision.IGNORE and remove.flying >= 0
        if remove.decision == Decision.IGNORE and not (flew and not self._flying):
            return
        self._less(remove.message)

    def _less(self, msg: int) -> None:
        if self._refs[msg] <= 0:
            return
        self._refs[msg] -= 1
        if not self._refs[msg]:
            del self._refs[msg]
            number = self._place.pop(msg, None)
            if number is not None:
                file = self._files[number]
                place = file.live.pop(msg)
                file.dead[msg] = place
                self._graves[msg] = number
                file.valid -= place[1]
                self._valid -= place[1]
                self._delete_if_empty(number)
                self._collect()

    def _delete_if_empty(self, number: int) -> None:
        if number != self._current and not self._files[number].valid:
            file = self._files.pop(number)
            self._bury(file)
            self._size -= file.size
            self.work.deleted += 1

    def _bury(self, file: _File) -> None:
        """Forget a file's dead records: no write can revive them."""
        for msg in file.dead:
            del self._graves[msg]
        file.dead.clear()

    # garbage collection

    def _look(self, t: int) -> None:
        """Run the timed garbage collection due by now."""
        if t - self._looked < CHECK_INTERVAL:
            return
        self._looked = t
        if self._in_place:
            for number in [
                n for n, file in self._files.items() if self._is_garbage(file) and n != self._current
            ]:
                self._rewrite([number])
        else:
            while self._too_much() and (worst := self._worst()) is not None:
                self._rewrite([worst])

    def _too_much(self) -> bool:
        return self._size - self._valid > self._threshold * self._size

    def _collect(self) -> None:
        while self._size > 2 * self._limit and self._too_much():
            worst = self._worst() if self._in_place else None
            chosen = [worst] if worst is not None else [] if self._in_place else self._pair()
            if not chosen:
                return
            self._rewrite(chosen)

    def _is_garbage(self, file: _File) -> bool:
        return bool(file.valid) and file.garbage > self._threshold * file.size

    def _worst(self) -> int | None:
        found = [
            (file.garbage, -n)
            for n, file in self._files.items()
            if n != self._current and self._is_garbage(file)
        ]
        return -max(found)[1] if found else None

    def _pair(self) -> list[int]:
        """The eldest neighbours whose living data fits into one file."""
        numbers = [n for n in sorted(self._files) if n != self._current]
        for left, right in pairwise(numbers):
            one, two = self._files[left].valid, self._files[right].valid
            if one and two and one + two <= self._limit:
                return [left, right]
        return []

    def _rewrite(self, numbers: list[int]) -> None:
        """One file of one or two: in place, what lies behind the new end moves; else all is copied."""
        valid = sum(self._files[number].valid for number in numbers)
        to = self._files[numbers[0]]
        if self._in_place:
            self.work.gc_bytes += sum(size for offset, size in to.live.values() if offset + size > valid)
        else:
            self.work.gc_bytes += valid
        self.work.gc_runs += 1
        live = [(msg, size) for number in numbers for msg, (_, size) in self._files[number].live.items()]
        self._size -= sum(self._files[number].size for number in numbers) - valid
        for number in numbers:
            self._bury(self._files[number])
        for number in numbers[1:]:
            del self._files[number]
        end = 0
        to.live.clear()
        for msg, size in live:
            to.live[msg] = (end, size)
            self._place[msg] = numbers[0]
            end += size
        to.size = to.valid = valid
