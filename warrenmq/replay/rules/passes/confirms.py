"""Machine of confirms (C1, the queue's side, and C3): PUBLISH, then the sync that covers it, then CONFIRM.

Key: (run, queue actor).  In the queue's own order of rows:

==================  ==================================================  ========
message             its CONFIRM                                         verdict
==================  ==================================================  ========
embedded            durable, a QI_SYNC after the PUBLISH                fine
in the store        durable, the same and an ON_DISK written            fine
in the store        durable, ON_DISK ignored (a remove overtook it)     fine
any other order     durable                                             C1
not persistent      transient                                           fine
persistent          transient                                           C1
not published       any                                                 C1
embedded            none before QUEUE_CLOSED                            C3
in the store        none before QUEUE_CLOSED, though ON_DISK came       C3
wants a confirm     none before the second QI_SYNC after the last of    C4
                    what it waits for
==================  ==================================================  ========

A stop does not wait for the store's sync: of a body that no store reported, and of those that were published together with it, the
publisher hears by the end of the process.

Sequence ids rise, so "synced" is one number: everything published below it was; in a queue with priorities those of one
priority do, which have a window each.  A piece folds into the window that
it leaves open, and the confirms and ON_DISK rows that belong to messages from before it; to fold the next piece in
is to play those against the window and append the new one.

Array form: Precheck of confirms (confirms.py, the queue's side of C1, and C3): a PUBLISH that wants a confirm, and what must lie between.

By the numbers of a queue's rows, where `p < x < c` means that there is an x between PUBLISH and CONFIRM:

    CONFIRM                 message                fine when
    nack                    any                    p < c
    transient               not persistent         p < c
    durable                 embedded               p < QI_SYNC < c
    durable                 in the store           p < its one ON_DISK < c, and if that is no IGNORED, p < QI_SYNC < c

Of a unit there are left: the publishes and the confirms that have not met (or met, and it was not fine yet), the ON_DISK rows of
messages that are not confirmed, and the first and the last sync.  That is enough: between rows of two units lies a sync
if one of them has one after the first or before the second, or one between them has any.

A sequence id or a body in the store that comes a second time is for the machine: sequence ids must rise, in each unit and
from unit to unit, and no open message may be among those that were answered.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

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
from warrenmq.replay.drive.machines import EXERCISED, Finding, Key, Machine, Outcome
from warrenmq.replay.drive.precheck import OpenRows, Precheck
from warrenmq.replay.drive.trace_context import TraceContext, Who
from warrenmq.trace.catalog import Chunk
from warrenmq.trace.events import (
    CONFIRM_DURABLE,
    CONFIRM_NACK,
    CONFIRM_TRANSIENT,
    IGNORED,
    IN_STORE,
    PERSISTENT,
    PRIORITY_SHIFT,
    WANTS_CONFIRM,
    WRITTEN,
    Ev,
)
from warrenmq.trace.index import Row

_PUBLISH, _CONFIRM, _ON_DISK, _QI_SYNC = int(Ev.PUBLISH), int(Ev.CONFIRM), int(Ev.ON_DISK), int(Ev.QI_SYNC)

_CONTINUES = 1 << 8
"""Beside the flags of a PUBLISH that is no receive: some bodies of the publish before it lie elsewhere, and these are the rest."""

OVERDUE = 2
"""A confirm that waits for nothing is given with the sync, or the ON_DISK, that it waited for last; when so many syncs have followed,
it is overdue."""
_REASON = 2
"""Bits of a reason; above them stands how many syncs there had been."""

Judge = Callable[[Who, "Windows", TraceContext, Outcome], None]
"""What a rule about confirms that never came (`judge`) does: (the queue, its windows at the end, the context, where to note findings)."""
Block = list[int]
"""[lo, hi, message of lo, flags of PUBLISH, syncs before it, its seq]; an answered block has lo == hi."""

Confirm = tuple[int, int, int, int, int, int]
"""(lo, hi, message of lo, flag, seq, t)."""

Early = tuple[Confirm, int, dict[int, int]]
"""A confirm of older messages, how many syncs of its piece came before it, and what the store had said of them."""


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
    """How many there were: with the first, whatever was published before this window is synced."""
    on_disk: dict[int, int] = field(default_factory=dict)
    """Messages in the store: what `told` makes of WRITTEN or IGNORED, 0 while the store has said nothing."""
    heard: dict[int, int] = field(default_factory=dict)
    """What the store said of messages older than this window, since the last of `early`."""
    early: list[Early] = field(default_factory=list)
    problems: list[tuple[str, int, int, int]] = field(default_factory=list)
    """(text, sequence id, seq, t)"""

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

    def confirm(self, lo: int, hi: int, msg: int, flag: int, seq: int, t: int) -> None:
        """Answer [lo, hi); what is older than this window is left for the window before."""
        if self.start < 0 or lo < self.start:
            older = hi if self.start < 0 else min(hi, self.start)
            self.early.append(((lo, older, msg, flag, seq, t), self.syncs, self.heard))
            self.heard = {}
            if older == hi:
                return
            lo, msg = older, msg + older - lo
        blocks = self.blocks
        i = self.head
        if i < len(blocks) and not blocks[i][0] <= lo < blocks[i][1]:
            i = max(i, bisect_right(blocks, lo, i, key=_low) - 1)
        while lo < hi:
            if i >= len(blocks) or not blocks[i][0] <= lo < blocks[i][1]:
                self.problems.append((f"confirmed {lo}, which is not waiting for a confirm", lo, seq, t))
                return
            block = blocks[i]
            end = min(hi, block[1])
            if end - lo == 1 and self._is_fine(block, lo, flag):
                block[0] = lo = end
                i += 1
                continue
            self._answer(block, lo, end, flag, seq, t)
            if lo > block[0]:
                rest = [end, block[1], block[2] + end - block[0], *block[3:]]
                block[1] = lo
                if rest[0] < rest[1]:
                    blocks.insert(i + 1, rest)
            else:
                block[2] += end - block[0]
                block[0] = end
            lo = end
            i += 1
        while self.head < len(blocks) and blocks[self.head][0] == blocks[self.head][1]:
            self.head += 1
        if self.head > 1000:
            del blocks[: self.head]
            self.head = 0

    def _is_fine(self, block: Block, lo: int, flag: int) -> bool:
        """A block of one message, whose confirm comes as it should: by far the commonest."""
        if block[1] - block[0] != 1 or flag != CONFIRM_DURABLE or lo >= self.synced:
            return False
        if block[3] & IN_STORE:
            if _reason(self.on_disk.get(block[2], 0)) != WRITTEN:
                return False
            del self.on_disk[block[2]]
        return True

    def _answer(self, block: Block, lo: int, hi: int, flag: int, seq: int, t: int) -> None:
        if flag == CONFIRM_NACK:
            return
        if flag == CONFIRM_TRANSIENT:
            if block[3] & PERSISTENT:
                self.problems.append((f"confirmed {lo}, a persistent message, without a sync", lo, seq, t))
            return
        if not block[3] & IN_STORE:
            if hi > self.synced:
                early = max(lo, self.synced)
                self.problems.append((f"confirmed {early} before the index was synced", early, seq, t))
            return
        msg = block[2] + lo - block[0]
        for id_ in range(lo, hi):
            reason = _reason(self.on_disk.pop(msg, 0))
            if not reason:
                self.problems.append(
                    (f"confirmed {id_} before the store said that its body is safe", id_, seq, t)
                )
            elif reason != IGNORED and id_ >= self.synced:
                self.problems.append((f"confirmed {id_} before the index was synced", id_, seq, t))
            msg += 1

    def owed(self) -> Iterator[list[Block]]:
        """Blocks that want a confirm, and lack nothing but that, if the index has been synced.

        What was published together is confirmed together, when all its bodies are safe.
        """
        together: list[Block] = []
        for block in [*self.blocks[self.head :], [0, 0, 0, 0, 0, 0]]:
            if not block[3] & _CONTINUES:
                if together and all(map(self._is_safe, together)):
                    yield together
                together = []
            together.append(block)

    def overdue(self) -> Iterator[Block]:
        """Of these the first of each that has waited for OVERDUE syncs more than it had to."""
        for together in self.owed():
            told = [
                self.on_disk[msg + place] >> _REASON
                for lo, hi, msg, flags, _, _ in together
                if flags & IN_STORE
                for place in range(hi - lo)
            ]
            if self.syncs - max([together[-1][4] + 1, *told]) >= OVERDUE and together[0][0] < together[0][1]:
                yield together[0]

    def _is_safe(self, block: Block) -> bool:
        lo, hi, msg, flags, *_ = block
        return not flags & IN_STORE or all(map(self.on_disk.get, range(msg, msg + hi - lo)))

    def extend(self, later: Window) -> None:
        """Fold the window of the next piece in."""
        before = self.syncs
        for confirm, syncs, said in later.early:
            if syncs:
                self.synced = self.next
            self._take_in(said, before)
            self.confirm(*confirm)
        if later.syncs:
            self.synced = self.next
        if later.start >= 0:
            if self.start < 0:
                self.start = later.start
            self.next = later.next
            self.synced = max(self.synced, later.synced)
            self.blocks += [[*block[:4], block[4] + before, block[5]] for block in later.blocks[later.head :]]
        self._take_in(later.heard, before)
        self.on_disk |= {
            msg: reason and reason + (before << _REASON) for msg, reason in later.on_disk.items()
        }
        self.problems += later.problems
        self.syncs += later.syncs

    def _take_in(self, heard: dict[int, int], before: int) -> None:
        for msg, reason in heard.items():
            if msg in self.on_disk:
                self.on_disk[msg] = reason + (before << _REASON)


def _low(block: Block) -> int:
    return block[0]


def _reason(told: int) -> int:
    """WRITTEN or IGNORED of what the store said, 0 if it has not."""
    return told & (1 << _REASON) - 1


class Windows:
    """The windows of a queue's priorities; of a queue without any, one window."""

    def __init__(self, start: int = -1) -> None:
        """`start` = 0 for the first piece: there is nothing older."""
        self._start = start
        self._syncs = 0
        self.last_sync_t = 0
        self._heard: dict[int, int] = {}
        """What the store said of messages older than this: nobody knows of which priority."""
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
        """The store told of a body; it knows no priorities."""
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

    def extend(self, later: Windows) -> None:
        """Fold those of the next piece in."""
        before = self._syncs
        untouched = Window(syncs=later._syncs, heard=later._heard)
        for priority in sorted({*self.windows, *later.windows}):
            self.of(priority << PRIORITY_SHIFT).extend(later.windows.get(priority, untouched))
        self.wanted += later.wanted
        self._syncs += later._syncs
        self.last_sync_t = later.last_sync_t or self.last_sync_t
        self._heard |= {msg: reason + (before << _REASON) for msg, reason in later._heard.items()}


class Confirms(Machine):
    """See the module."""

    name: ClassVar[str] = "confirms"
    events: ClassVar[frozenset[int]] = frozenset(
        {Ev.PUBLISH, Ev.QI_SYNC, Ev.ON_DISK, Ev.CONFIRM, Ev.QUEUE_CLOSED}
    )

    def summarise(self, piece: Chunk, rows: list[Row]) -> Iterator[tuple[Key, Windows]]:
        windows = Windows()
        for t, seq, msg, _, pseq, lo, n, _, who in rows:
            event = who >> 8 & 0xFF
            if event == _PUBLISH:
                windows.wanted += n if who & WANTS_CONFIRM else 0
                windows.of(lo).publish(lo, lo + n, msg, who & 0xFF if pseq else who & 0xFF | _CONTINUES, seq)
            elif event == _ON_DISK:
                windows.hear(msg, who & 0xFF)
            elif event == _CONFIRM:
                windows.of(lo).confirm(lo, lo + n, msg, who & 0xFF, seq, t)
            elif event == _QI_SYNC:
                windows.sync(t)
        yield (piece.run, piece.actor), windows

    def start(self, key: Key) -> Windows:
        return Windows(start=0)

    def absorb(self, state: Windows, summary: Windows) -> None:
        state.extend(summary)

    def finish(self, key: Key, state: Windows, context: TraceContext) -> Outcome:
        who = int(key[0]), int(key[1])
        subject = f"queue {context.name(who)}"
        windows = state.windows.values()
        outcome = Outcome(
            [
                Finding("C1", subject, text, ((*who, seq),), t, (who,), (id_,))
                for window in windows
                for text, id_, seq, t in window.problems
            ]
        )
        for judge in self.judges.values():
            judge(who, state, context, outcome)
        return outcome


_LONGEST = 1 << 20
"""Messages in one row that are looked at one by one."""


@dataclass(frozen=True, slots=True)
class Open:
    """What is open of one queue."""

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

    def packed(self) -> OpenRows:
        return (
            self.published.reshape(-1), self.confirmed.reshape(-1), self.on_disk.reshape(-1), self.syncs, self.answered,
            self.spans.reshape(-1), np.array([self.wanted], np.int64),
        )  # fmt: skip


class ConfirmsPrecheck(Precheck):
    """See the module."""

    machine: ClassVar[type[Machine]] = Confirms

    def open_rows(self, unit: Unit) -> Iterator[tuple[Key, OpenRows]]:
        rows = unit.of(Confirms.events)
        for actor, where in groups(rows.actor):
            found = _open_of(rows.between(where.start, where.stop))
            yield (unit.run, actor), () if found is None else found.packed()

    def concerned(self, rows: Rows, keys: Collection[Key], run: int) -> Bools:
        found: Bools = np.isin(rows.actor, [int(key[1]) for key in keys if key[0] == run])
        return found

    def prove(
        self, key: Key, open_rows: Sequence[OpenRows], facts: Sequence[Any], context: TraceContext
    ) -> Outcome | None:
        published, confirmed, on_disk = (
            np.concatenate([each[part].reshape(-1, width) for each in open_rows])
            for part, width in ((0, 4), (1, 3), (2, 3))
        )
        syncs, answered, spans = (np.concatenate([each[part] for each in open_rows]) for part in (3, 4, 5))
        if not _rise(spans.reshape(-1, 4)):
            return None
        published = published[np.argsort(published[:, 0], kind="stable")]
        left = _match(Open(published, confirmed, on_disk, np.sort(syncs), answered, spans))
        if left is None or len(left.confirmed) or np.isin(published[:, 1], answered).any():
            return None
        who = int(key[0]), int(key[1])
        if len(left.published) and context.actor_summary(who).closed is not None and np.any(_owed(left)):
            return None
        if (
            len(left.published)
            and len(left.syncs)
            and np.any(_owed(left) & (left.published[:, 3] < left.syncs[-1]))
        ):
            return None  # C4
        outcome = Outcome()
        if context.actor_summary(who).closed is not None:
            outcome.figures[EXERCISED, "C3"] = sum(int(each[6][0]) for each in open_rows)
        return outcome


def _owed(left: Open) -> Bools:
    """Which open publishes lack nothing but their confirm, or what was published together with them does."""
    found: Bools = (left.published[:, 2] & IN_STORE == 0) | np.isin(left.published[:, 1], left.on_disk[:, 0])
    return found


def _rise(spans: Ints) -> bool:
    """True if each priority's sequence ids rise from unit to unit."""
    spans = spans[np.lexsort((spans[:, 1], spans[:, 0]))]
    return bool(np.all((spans[1:, 0] != spans[:-1, 0]) | (spans[1:, 2] > spans[:-1, 3])))


def _spans(ids: Ints, seqs: Ints) -> Ints | None:
    """Of sequence ids in the order of their rows; None if those of a priority do not rise."""
    priority = ids >> PRIORITY_SHIFT
    order = np.argsort(priority, kind="stable")
    ids, seqs, priority = ids[order], seqs[order], priority[order]
    if np.any((np.diff(ids) <= 0) & (np.diff(priority) == 0)):
        return None
    starts = group_starts(priority)
    ends = np.append(starts, len(ids))[1:] - 1
    return np.stack((priority[starts], seqs[starts], ids[starts], ids[ends]), axis=1)


def _open_of(rows: Rows) -> Open | None:
    """The rows of one queue in a unit; None if there is something that is never fine."""
    event = rows.event
    if np.any(rows.b[(event == Ev.PUBLISH) | (event == Ev.CONFIRM)] > _LONGEST):
        return None
    publish, confirm = rows.where(event == Ev.PUBLISH), rows.where(event == Ev.CONFIRM)
    heard = rows.where(event == Ev.ON_DISK)
    row, ids = expand(publish.a, publish.b)
    messages = publish.msg[row] + ids - publish.a[row]
    published = np.stack((ids, messages, publish.flag[row], publish.seq[row]), axis=1)
    spans = _spans(ids, publish.seq[row])
    if spans is None:
        return None
    published = published[np.argsort(ids, kind="stable")]
    row, ids = expand(confirm.a, confirm.b)
    confirmed = np.stack((ids, confirm.flag[row], confirm.seq[row]), axis=1)
    on_disk = np.stack((heard.msg, heard.flag, heard.seq), axis=1)
    nothing = np.zeros(0, np.int64)
    left = _match(Open(published, confirmed, on_disk, rows.seq[event == Ev.QI_SYNC], nothing, spans))
    if left is None:
        return None
    wanted = int(np.maximum(publish.b[publish.flag & WANTS_CONFIRM != 0], 0).sum())
    return replace(left, syncs=left.syncs[[0, -1]] if len(left.syncs) else left.syncs, wanted=wanted)


def _match(rows: Open) -> Open | None:
    """Take away what is fine; None if ids, or bodies that the store was given, are there twice."""
    published, confirmed, on_disk = rows.published, rows.confirmed, rows.on_disk
    wants = published[:, 2] & WANTS_CONFIRM != 0
    bodies = np.sort(published[published[:, 2] & IN_STORE != 0, 1])
    if any(np.any(doubles(each)) for each in (published[:, 0], np.sort(confirmed[:, 0]), bodies)):
        return None
    at, known = look_up(published[:, 0], confirmed[:, 0])
    if len(published):
        met = published[at]
        told, tells = _heard_of(published, on_disk)
        fine = known & wants[at] & _is_fine(met, confirmed, on_disk, told[at], rows.syncs)
    else:
        fine, tells = known, np.zeros(len(on_disk), np.bool_)
    answered = ~wants
    answered[at[fine]] = True
    settled = np.zeros(len(on_disk), np.bool_)
    if len(published):
        owners, _ = _owner(published, on_disk)
        settled = tells & answered[owners]
    over = published[answered & (published[:, 2] & IN_STORE != 0), 1]
    return Open(published[~answered], confirmed[~fine], on_disk[~settled], rows.syncs, over, rows.spans)


def _owner(published: Ints, on_disk: Ints) -> tuple[Ints, Bools]:
    """For each ON_DISK row the place of the message that it speaks of, and whether there is one."""
    order = np.argsort(published[:, 1], kind="stable")
    at, known = look_up(published[order, 1], on_disk[:, 0])
    owners: Ints = order[at] if len(order) else at
    return owners, known


def _heard_of(published: Ints, on_disk: Ints) -> tuple[Ints, Bools]:
    """For each message the place of its one ON_DISK row (-1: none or several), and which rows speak of a message."""
    owners, known = _owner(published, on_disk)
    places = np.flatnonzero(known)
    told = np.full(len(published), -1, np.int64)
    told[owners[places]] = places
    several = np.bincount(owners[places], minlength=len(published)) > 1
    told[several] = -1
    return told, known


def _is_fine(met: Ints, confirmed: Ints, on_disk: Ints, told: Ints, syncs: Ints) -> Bools:
    """Publish by publish, with its confirm."""
    _, _, flags, begins = met.T
    _, kind, ends = confirmed.T
    synced = np.searchsorted(syncs, begins) < np.searchsorted(syncs, ends)
    in_store = flags & IN_STORE != 0
    said = told >= 0
    if len(on_disk):
        reason, heard = on_disk[told, 1], on_disk[told, 2]
        said &= (begins < heard) & (heard < ends)
        stored = said & ((reason == IGNORED) | ((reason == WRITTEN) & synced))
    else:
        stored = said
    fine: Bools = (begins < ends) & np.select(
        [kind == CONFIRM_NACK, kind == CONFIRM_TRANSIENT, kind == CONFIRM_DURABLE],
        [np.ones(len(met), np.bool_), flags & PERSISTENT == 0, np.where(in_store, stored, synced)],
        default=False,
    )
    return fine
