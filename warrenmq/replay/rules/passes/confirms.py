"""Pass of confirms, for C1 (the queue's side), C3 and C4: PUBLISH, what lies between, CONFIRM.

Key: (run, queue actor), in the queue's own order of rows.  Sequence ids rise, so "synced" is one number:
everything published below it was; in a queue with priorities those of one priority do, which have a window
each.  A piece folds into the window that it leaves open, and the confirms and ON_DISK rows that belong to
messages from before it; to fold the next piece in is to play those against the window and append the new one.

Of a rule (`judge`):

    fine(flags of the PUBLISH, kind of the CONFIRM, whether a QI_SYNC lies between, the ON_DISK between or 0)
    decide(who, windows, context, outcome)     the windows have the confirms that were not fine, and the messages that have none
    proves(left, actor_summary)                the same of what is Open by arrays, when all confirms are fine

A stop does not wait for the store's sync: of a body that no store reported, and of those that were published
together with it, the publisher learns by the end of the process.

Array form: a PUBLISH that wants a confirm, and what must lie between, by the numbers of a queue's rows.  Of a
unit there are left: the publishes and the confirms that have not met (or met, and it was not fine yet), the
ON_DISK rows of messages that are not confirmed, and the first and the last sync.  That is enough: between
rows of two units lies a sync if one of them has one after the first or before the second, or one between them
has any.

A sequence id or a body in the store that comes a second time is for the machine: sequence ids must rise, in each unit and
from unit to unit, and no open message may be among those that were answered.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

from warrenmq.replay.drive.columns import (
    Bools,
    Ints,
    Rows,
    Unit,
    doubles,
    expand,
    group_starts,
    groups,
    look_up,
    np,
)
from warrenmq.replay.drive.machines import EXERCISED, Key, Machine, Outcome
from warrenmq.replay.drive.precheck import OpenRows, Precheck, joined
from warrenmq.replay.drive.trace_context import TraceContext
from warrenmq.replay.rules.rule import Answers, questions
from warrenmq.trace.catalog import Chunk, Run
from warrenmq.trace.events import (
    CONFIRM_DURABLE,
    IN_STORE,
    PRIORITY_SHIFT,
    WANTS_CONFIRM,
    Confirm,
    Ev,
    OnDisk,
    Publish,
)
from warrenmq.trace.index import Row

_PUBLISH, _CONFIRM, _ON_DISK, _QI_SYNC = int(Ev.PUBLISH), int(Ev.CONFIRM), int(Ev.ON_DISK), int(Ev.QI_SYNC)

_CONTINUES = 1 << 8
"""Beside the flags of a PUBLISH that is no receive: some bodies of the publish before it lie elsewhere, and
these are the rest.
"""

_REASON = 2
_REPORTS = (1 << _REASON) - 1
"""Bits of a report of the store; above them stands how many syncs there had been."""
_publish = Publish.getter("seq", "who", "message", "send", "first_seq_id", "count")
_confirm = Confirm.getter("t", "seq", "who", "message", "first_seq_id", "count")
_on_disk = OnDisk.getter("who", "message")

Block = list[int]
"""Publishes that wait together; an answered block has LO == HI.  A list, as millions are made."""
LO, HI, MSG, FLAGS, SYNCS, SEQ = range(6)
"""Of a Block: its sequence ids are LO to HI - 1; the message of LO; flags of the PUBLISH, how many syncs came
before it, its seq.
"""

Confirmed = tuple[int, int, int, int, int, int]
"""(lo, hi, message of lo, kind, seq, t)."""

Early = tuple[Confirmed, int, dict[int, int]]
"""A confirm of older messages, how many syncs of its piece came before it, and the reports of their bodies."""


class Odd(NamedTuple):
    """A confirm that is not as it should be."""

    id: int
    flags: int
    """The flags of the PUBLISH; -1 if the message did not wait for a confirm."""
    kind: int
    report: int
    """WRITTEN or IGNORED; 0 if the store had said nothing."""
    seq: int
    t: int


@dataclass(slots=True)
class Window:
    """Published and not yet confirmed, and what is known of it."""

    blocks: list[Block] = field(default_factory=list)
    head: int = 0
    """Blocks before this one are answered."""
    start: int = -1
    """The first id published here; -1 = none."""
    next: int = 0
    """One past the last id published here."""
    synced: int = 0
    """Everything below was published here before a sync."""
    syncs: int = 0
    """The number of syncs: with the first, all that was published before this window is synced."""
    on_disk: dict[int, int] = field(default_factory=dict)
    """Messages in the store: WRITTEN or IGNORED and the syncs before it, 0 while there is no report."""
    heard: dict[int, int] = field(default_factory=dict)
    """Reports of messages older than this window, since the last of `early`."""
    early: list[Early] = field(default_factory=list)
    odd: list[Odd] = field(default_factory=list)

    def publish(self, lo: int, hi: int, msg: int, flags: int, seq: int) -> None:
        if self.start < 0:
            self.start = lo
        self.next = hi
        if flags & WANTS_CONFIRM:
            self.blocks.append([lo, hi, msg, flags, self.syncs, seq])
            if not flags & IN_STORE:
                return
            if hi - lo == 1:
                self.on_disk[msg] = 0
            else:
                self.on_disk.update(dict.fromkeys(range(msg, msg + hi - lo), 0))

    def sync(self) -> None:
        self.synced = self.next
        self.syncs += 1

    def confirm(self, lo: int, hi: int, msg: int, kind: int, seq: int, t: int, fine: Answers) -> None:
        """Answer [lo, hi); what is older than this window is left for the window before."""
        if self.start < 0 or lo < self.start:
            older = hi if self.start < 0 else min(hi, self.start)
            self.early.append(((lo, older, msg, kind, seq, t), self.syncs, self.heard))
            self.heard = {}
            if older == hi:
                return
            lo = older
        blocks = self.blocks
        i = self.head
        if i < len(blocks) and not blocks[i][LO] <= lo < blocks[i][HI]:
            i = max(i, bisect_right(blocks, lo, i, key=_low) - 1)
        while lo < hi:
            if i >= len(blocks) or not blocks[i][LO] <= lo < blocks[i][HI]:
                self.odd.append(Odd(lo, -1, kind, 0, seq, t))
                while i < len(blocks) and blocks[i][LO] <= lo:
                    i += 1
                if i == len(blocks) or blocks[i][LO] >= hi:
                    break
                lo = blocks[i][LO]
            block = blocks[i]
            end = min(hi, block[HI])
            if block[HI] - block[LO] == 1 and self._is_fine(block, kind, fine):  # by far the commonest
                block[LO] = lo = end
                i += 1
                continue
            self._answer(block, lo, end, kind, seq, t, fine)
            if lo > block[LO]:
                if end < block[HI]:
                    blocks.insert(i + 1, [end, block[HI], block[MSG] + end - block[LO], *block[FLAGS:]])
                block[HI] = lo
            else:
                block[MSG] += end - lo
                block[LO] = end
            lo = end
            i += 1
        while self.head < len(blocks) and blocks[self.head][LO] == blocks[self.head][HI]:
            self.head += 1
        if self.head > 1000:
            del blocks[: self.head]
            self.head = 0

    def _is_fine(self, block: Block, kind: int, fine: Answers) -> bool:
        """A block of one message, in the store or not."""
        flags = block[FLAGS] & 0xFF
        report = self.on_disk.get(block[MSG], 0) & _REPORTS if flags & IN_STORE else 0
        if not fine[flags, kind, block[LO] < self.synced, report]:
            return False
        if report and kind == CONFIRM_DURABLE:
            del self.on_disk[block[MSG]]
        return True

    def _answer(self, block: Block, lo: int, hi: int, kind: int, seq: int, t: int, fine: Answers) -> None:
        """Decide about each message in the store; the others are decided together, by the first, and by the
        first that is not synced.
        """
        flags = block[FLAGS] & 0xFF
        reports = {lo: 0}
        if flags & IN_STORE and kind == CONFIRM_DURABLE:
            msg = block[MSG] - block[LO]
            reports = {id_: self.on_disk.pop(msg + id_, 0) & _REPORTS for id_ in range(lo, hi)}
        elif lo < self.synced < hi:
            reports[self.synced] = 0
        for id_, report in reports.items():
            if not fine[flags, kind, id_ < self.synced, report]:
                self.odd.append(Odd(id_, flags, kind, report, seq, t))
                if not flags & IN_STORE:
                    return

    def owed(self) -> Iterator[list[Block]]:
        """Blocks that want a confirm, and lack nothing but that, once the index has been synced.

        Messages that were published together are confirmed together, when all their bodies are safe.
        """
        together: list[Block] = []
        for block in [*self.blocks[self.head :], [0, 0, 0, 0, 0, 0]]:
            if not block[FLAGS] & _CONTINUES:
                if together and all(map(self._is_safe, together)):
                    yield together
                together = []
            together.append(block)

    def waited_until(self, together: list[Block]) -> int:
        """The number of syncs up to the last thing that these owed blocks waited for."""
        reports = (
            self.on_disk[msg + place] >> _REASON
            for lo, hi, msg, flags, _, _ in together
            if flags & IN_STORE
            for place in range(hi - lo)
        )
        return max([together[-1][SYNCS] + 1, *reports])

    def _is_safe(self, block: Block) -> bool:
        lo, hi, msg, flags, *_ = block
        return not flags & IN_STORE or all(map(self.on_disk.get, range(msg, msg + hi - lo)))

    def extend(self, later: Window, fine: Answers) -> None:
        """Fold the window of the next piece in."""
        before = self.syncs
        for confirm, syncs, said in later.early:
            if syncs:
                self.synced = self.next
            self._take_in(said, before)
            self.confirm(*confirm, fine)
        if later.syncs:
            self.synced = self.next
        if later.start >= 0:
            if self.start < 0:
                self.start = later.start
            self.next = later.next
            self.synced = max(self.synced, later.synced)
            self.blocks += [
                [*block[:SYNCS], block[SYNCS] + before, block[SEQ]] for block in later.blocks[later.head :]
            ]
        self._take_in(later.heard, before)
        self.on_disk |= {
            msg: reason and reason + (before << _REASON) for msg, reason in later.on_disk.items()
        }
        self.odd += later.odd
        self.syncs += later.syncs

    def _take_in(self, heard: dict[int, int], before: int) -> None:
        for msg, reason in heard.items():
            if msg in self.on_disk:
                self.on_disk[msg] = reason + (before << _REASON)


def _low(block: Block) -> int:
    return block[LO]


class Windows:
    """The windows of a queue's priorities; of a queue without any, one window."""

    __slots__ = ("_heard", "_start", "_syncs", "last_sync_t", "wanted", "windows")

    def __init__(self, start: int = -1) -> None:
        """`start` = 0 for the first piece: there is nothing older."""
        self._start = start
        self._syncs = 0
        self.last_sync_t = 0
        self._heard: dict[int, int] = {}
        """Reports of messages older than this, whatever their priority."""
        self.windows: dict[int, Window] = {}
        self.wanted = 0
        """Publishes that want a confirm."""

    def of(self, seq_id: int) -> Window:
        """The window that an id belongs to."""
        priority = seq_id >> PRIORITY_SHIFT
        window = self.windows.get(priority)
        if window is None:
            first = self._start if self._start < 0 else priority << PRIORITY_SHIFT
            window = Window(start=first, syncs=self._syncs, heard=dict(self._heard))
            self.windows[priority] = window
        return window

    def hear(self, msg: int, reason: int) -> None:
        """The store reported a body; it knows no priorities."""
        reason |= self._syncs << _REASON
        for window in self.windows.values():
            if msg in window.on_disk:
                window.on_disk[msg] = reason
                return
        self._heard[msg] = reason
        for window in self.windows.values():
            window.heard[msg] = reason

    def sync(self, t: int) -> None:
        """A sync is of all of them."""
        self._syncs += 1
        self.last_sync_t = t
        for window in self.windows.values():
            window.sync()

    def extend(self, later: Windows, fine: Answers) -> None:
        """Fold those of the next piece in."""
        before = self._syncs
        untouched = Window(syncs=later._syncs, heard=later._heard)
        for priority in sorted({*self.windows, *later.windows}):
            self.of(priority << PRIORITY_SHIFT).extend(later.windows.get(priority, untouched), fine)
        self.wanted += later.wanted
        self._syncs += later._syncs
        self.last_sync_t = later.last_sync_t or self.last_sync_t
        self._heard |= {msg: reason + (before << _REASON) for msg, reason in later._heard.items()}


class Confirms(Machine):
    """Brings publishes and confirms of a queue together."""

    name: ClassVar[str] = "confirms"
    events: ClassVar[frozenset[int]] = frozenset(
        {Ev.PUBLISH, Ev.QI_SYNC, Ev.ON_DISK, Ev.CONFIRM, Ev.QUEUE_CLOSED}
    )

    def __init__(self, runs: Sequence[Run], judges: Mapping[str, Any] | None = None) -> None:
        super().__init__(runs, judges)
        self._fine = Answers(self.judges)

    def summarise(self, piece: Chunk, rows: list[Row]) -> Iterator[tuple[Key, Windows]]:
        windows = Windows()
        for row in rows:
            event = row.who >> 8 & 0xFF
            if event == _PUBLISH:
                seq, who, msg, send, lo, n = _publish(row)
                flags = who & 0xFF
                windows.wanted += n if flags & WANTS_CONFIRM else 0
                windows.of(lo).publish(lo, lo + n, msg, flags if send else flags | _CONTINUES, seq)
            elif event == _ON_DISK:
                who, msg = _on_disk(row)
                windows.hear(msg, who & 0xFF)
            elif event == _CONFIRM:
                t, seq, who, msg, lo, n = _confirm(row)
                windows.of(lo).confirm(lo, lo + n, msg, who & 0xFF, seq, t, self._fine)
            elif event == _QI_SYNC:
                windows.sync(row.t)
        yield (piece.run, piece.actor), windows

    def start(self, key: Key) -> Windows:
        return Windows(start=0)

    def absorb(self, state: Windows, summary: Windows) -> None:
        state.extend(summary, self._fine)

    def finish(self, key: Key, state: Windows, context: TraceContext) -> Outcome:
        outcome = Outcome()
        for judge in self.judges.values():
            judge.decide((int(key[0]), int(key[1])), state, context, outcome)
        return outcome


_LONGEST = 1 << 20
"""Messages in one row that are looked at one by one."""


OWED_SQL = """
WITH published AS (
    SELECT p.run, p.actor, p.seq, p.first_seq_id + n AS id, p.message + n AS message, p.flags,
           sum(CASE WHEN p.send > 0 THEN 1 ELSE 0 END) OVER (PARTITION BY p.run, p.actor ORDER BY p.seq) AS together
    FROM publish_rows AS p JOIN numbers ON n < p.count),
waiting AS (
    SELECT p.run, p.actor, p.seq, p.id, p.together, p.flags,
           (SELECT max(o.seq) FROM on_disk_rows AS o
            WHERE o.run = p.run AND o.actor = p.actor AND o.message = p.message AND o.seq > p.seq) AS reported,
           (SELECT min(s.seq) FROM qi_sync_rows AS s WHERE s.run = p.run AND s.actor = p.actor AND s.seq > p.seq) AS synced
    FROM published AS p
    WHERE p.flags & 2 = 2 AND NOT EXISTS (
        SELECT 1 FROM confirm_rows AS c WHERE c.run = p.run AND c.actor = p.actor
                  AND c.first_seq_id <= p.id AND c.first_seq_id + c.count > p.id
                  AND c.seq > p.seq)),
owed AS (
    SELECT run, actor, together, min(seq) AS seq, max(synced) AS synced, max(coalesce(reported, 0)) AS reported, count(*) - count(synced) AS unsynced
    FROM waiting GROUP BY run, actor, together
    HAVING sum(CASE WHEN flags & 4 = 4 AND reported IS NULL THEN 1 ELSE 0 END) = 0)
"""
"""A table for the SQL of rules: publishes that were sent together and have no confirm, with the rows that they waited for."""


@dataclass(frozen=True, slots=True)
class Open:
    """The rows of one queue that are open."""

    published: Ints
    """(sequence id, message, flags, seq), by rising sequence ids."""
    confirmed: Ints
    """(sequence id, flag, seq)"""
    on_disk: Ints
    """(message, flag, seq)"""
    syncs: Ints
    """seqs, rising."""
    answered: Ints
    """Messages in the store that need nothing more."""
    spans: Ints
    """(priority, seq of the first PUBLISH, first sequence id, last)."""
    wanted: int = 0
    """Publishes that want a confirm."""

    def owed(self) -> Bools:
        """True for each of `published` that lacks nothing but its confirm, as does all that was published together with
        it.
        """
        found: Bools = (self.published[:, 2] & IN_STORE == 0) | np.isin(
            self.published[:, 1], self.on_disk[:, 0]
        )
        return found

    def packed(self) -> OpenRows:
        return (
            self.published.reshape(-1), self.confirmed.reshape(-1), self.on_disk.reshape(-1), self.syncs, self.answered,
            self.spans.reshape(-1), np.array([self.wanted], np.int64),
        )  # fmt: skip


class ConfirmsPrecheck(Precheck):
    """The array form of the pass; see the module."""

    machine: ClassVar[type[Machine]] = Confirms

    def open_rows(self, unit: Unit) -> Iterator[tuple[Key, OpenRows]]:
        rows = unit.of(Confirms.events)
        for actor, where in groups(rows.actor):
            found = self._open_of(rows.between(where.start, where.stop))
            yield (unit.run, actor), () if found is None else found.packed()

    def prove(
        self, key: Key, open_rows: Sequence[OpenRows], facts: Sequence[Any], context: TraceContext
    ) -> Outcome | None:
        published, confirmed, on_disk, syncs, answered, spans = joined(open_rows, 4, 3, 3, 1, 1, 4)
        if not _rise(spans):
            return None
        published = published[np.argsort(published[:, 0], kind="stable")]
        left = self._match(Open(published, confirmed, on_disk, np.sort(syncs[:, 0]), answered[:, 0], spans))
        if left is None or len(left.confirmed) or np.isin(published[:, 1], answered).any():
            return None
        mark = context.actor_summary((int(key[0]), int(key[1])))
        if len(left.published) and not all(judge.proves(left, mark) for judge in self.judges.values()):
            return None
        outcome = Outcome()
        if mark.closed is not None:
            outcome.figures[EXERCISED, "C3"] = sum(int(each[6][0]) for each in open_rows)
        return outcome

    def _open_of(self, rows: Rows) -> Open | None:
        """The rows of one queue in a unit; None if there is something that is never fine."""
        event = rows.event
        publish, confirm, heard = (rows.where(event == each) for each in (Ev.PUBLISH, Ev.CONFIRM, Ev.ON_DISK))
        publishes, confirms, reports = Publish.of(publish), Confirm.of(confirm), OnDisk.of(heard)
        if np.any(publishes.count > _LONGEST) or np.any(confirms.count > _LONGEST):
            return None
        row, ids = expand(publishes.first_seq_id, publishes.count)
        messages = publishes.message[row] + ids - publishes.first_seq_id[row]
        flags = publishes.flags
        published = np.stack((ids, messages, flags[row], publish.seq[row]), axis=1)
        spans = _spans(ids, publish.seq[row])
        if spans is None:
            return None
        published = published[np.argsort(ids, kind="stable")]
        row, ids = expand(confirms.first_seq_id, confirms.count)
        confirmed = np.stack((ids, confirms.kind[row], confirm.seq[row]), axis=1)
        on_disk = np.stack((reports.message, reports.report, heard.seq), axis=1)
        nothing = np.zeros(0, np.int64)
        left = self._match(Open(published, confirmed, on_disk, rows.seq[event == Ev.QI_SYNC], nothing, spans))
        if left is None:
            return None
        wanted = int(np.maximum(publishes.count[flags & WANTS_CONFIRM != 0], 0).sum())
        return replace(left, syncs=left.syncs[[0, -1]] if len(left.syncs) else left.syncs, wanted=wanted)

    def _match(self, rows: Open) -> Open | None:
        """Take away what is fine; None if ids, or bodies that the store was given, are there twice."""
        published, confirmed, on_disk = rows.published, rows.confirmed, rows.on_disk
        wants = published[:, 2] & WANTS_CONFIRM != 0
        bodies = np.sort(published[published[:, 2] & IN_STORE != 0, 1])
        if any(np.any(doubles(each)) for each in (published[:, 0], np.sort(confirmed[:, 0]), bodies)):
            return None
        if not len(published):
            return replace(rows, answered=published[:, 1])
        at, known = look_up(published[:, 0], confirmed[:, 0])
        told, owners, has_owner = _heard_of(published, on_disk)
        fine = known & wants[at] & self._is_fine(published[at], confirmed, on_disk, told[at], rows.syncs)
        answered = ~wants
        answered[at[fine]] = True
        settled = has_owner & answered[owners]
        over = published[answered & (published[:, 2] & IN_STORE != 0), 1]
        return Open(published[~answered], confirmed[~fine], on_disk[~settled], rows.syncs, over, rows.spans)

    def _is_fine(self, met: Ints, confirmed: Ints, on_disk: Ints, told: Ints, syncs: Ints) -> Bools:
        """Publish by publish, with its confirm."""
        _, _, flags, begins = met.T
        _, kind, ends = confirmed.T
        synced = np.searchsorted(syncs, begins) < np.searchsorted(syncs, ends)
        report = np.zeros(len(met), np.int64)
        if len(on_disk):
            heard = on_disk[told, 2]
            report = np.where((told >= 0) & (begins < heard) & (heard < ends), on_disk[told, 1], 0)
        fine: Bools = begins < ends
        for question in questions(self.judges):
            fine = fine & question(flags, kind, synced, report)
        return fine


def _rise(spans: Ints) -> bool:
    """True if each priority's sequence ids rise from unit to unit."""
    spans = spans[np.lexsort((spans[:, 1], spans[:, 0]))]
    return bool(np.all((spans[1:, 0] != spans[:-1, 0]) | (spans[1:, 2] > spans[:-1, 3])))


def _spans(ids: Ints, seqs: Ints) -> Ints | None:
    """The spans of sequence ids in the order of their rows; None if those of one priority do not rise."""
    priority = ids >> PRIORITY_SHIFT
    order = np.argsort(priority, kind="stable")
    ids, seqs, priority = ids[order], seqs[order], priority[order]
    if np.any((np.diff(ids) <= 0) & (np.diff(priority) == 0)):
        return None
    starts = group_starts(priority)
    ends = np.append(starts, len(ids))[1:] - 1
    return np.stack((priority[starts], seqs[starts], ids[starts], ids[ends]), axis=1)


def _heard_of(published: Ints, on_disk: Ints) -> tuple[Ints, Ints, Bools]:
    """The place of each message's one ON_DISK row (-1: none or several); of each such row the place of its
    message, and if it has one.
    """
    order = np.argsort(published[:, 1], kind="stable")
    at, known = look_up(published[order, 1], on_disk[:, 0])
    owners, places = order[at], np.flatnonzero(known)
    told = np.full(len(published), -1, np.int64)
    told[owners[places]] = places
    several = np.bincount(owners[places], minlength=len(published)) > 1
    told[several] = -1
    return told, owners, known
