"""From which rows the chain of each rule is made (causes.py).

A chain goes from causes to the evidence, at most LONGEST rows.  What each rule's chain is made of:

    T1 T2 T4     the rows themselves; a SEND with everything that says it received it
    C1           SEND, PUBLISH, QI_SYNC, and of a body in the store STORE_WRITE, APPEND, FILE_SYNC, STORE_CONFIRM, ON_DISK,
                 then the CONFIRM: what of these is not there, or comes too late, is named as missing
    C4           SEND, PUBLISH, QI_SYNC, the last of what the confirm waited for, and the CONFIRM that is missing
    A1 A2 A3     the life of the message up to the row that settled it, and that of its consumer
    D1           what stores said of the message
    C3           SEND, PUBLISH, what the store did with a body, and the CONFIRM that is missing; then the stop
    C2           the message's life in its queue, the end of the one incarnation and what the other one recovered
    Q4           the message's life over the restart
    Q5           the last consumer that was added, and the last delivery
    Q1 Q2        the life of the message, and what made the other one ready that should have gone first
    Q3           PUBLISH, EXPIRY, DROP
    S1 S2        what the store did with the message
    S3 to S8     the last rows that decided the state of the file
    S9           what last happened in the store
    E1           the recovery, or the last rows that decided the size of the file
    W1           the wait before, or that there was none
    R1 R2        the restarts before; the end of the one incarnation and the start of the next

Edges that are followed: from a receive to its SEND (peer, pseq), from a row to those of the same sequence id, message or
file, and the order of rows within an actor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from warrenmq.replay.drive.machines import Finding
from warrenmq.replay.explain.evidence import (
    STATE_ROWS,
    Known,
    Near,
    OfFile,
    OfId,
    OfMessage,
    Placed,
    Receives,
    RowAt,
)
from warrenmq.trace.catalog import Run
from warrenmq.trace.events import IN_STORE, Ev
from warrenmq.trace.index import Row

LONGEST = 10
"""Links of a chain."""


class Link(NamedTuple):
    """One link of a chain: a row, or one that is missing."""

    run: int
    row: Row | None
    missing: str = ""
    """The row that should be here: its event, and why."""


Chain = list[Link]


class Story:
    """One finding and where its rows come from."""

    def __init__(self, finding: Finding, runs: Sequence[Run], known: Known, evidence: list[Placed]) -> None:
        self.finding = finding
        self.runs = runs
        self.known = known
        self.evidence = evidence
        self.run, self.last = evidence[-1]
        """The last row of the evidence, which the rule is about."""

    @property
    def event(self) -> int:
        return self.last[8] >> 8 & 0xFF

    @property
    def actor(self) -> int:
        return self.last[8] >> 16

    @property
    def scope(self) -> str:
        return self.runs[self.run].scope

    @property
    def name(self) -> str:
        return self.runs[self.run].actor_name(self.actor)

    def is_before(self, placed: Placed) -> bool:
        """Earlier than the evidence."""
        return (placed[0], placed[1][0]) < (self.run, self.last[0])

    def of_id(self, id_: int) -> list[Placed]:
        """What this queue's earlier rows say of a sequence id."""
        return [
            placed for placed in self.known.rows(OfId(self.scope, self.name, id_)) if self.is_before(placed)
        ]

    def sent(self, placed: Placed) -> list[Link]:
        """The SEND of a receive."""
        run, row = placed
        if not row[3] or row[4] <= 0:
            return []
        send = self.known.row(RowAt(run, row[3], row[4]))
        return (
            [Link(run, None, f"SEND {row[4]} of {self.runs[run].actor_name(row[3])}")]
            if send is None
            else [Link(*send)]
        )

    def near(self, event: Ev, t: int, *, after: bool, actor: int = 0) -> Placed | None:
        """The next or last row of an actor and event, if it is before the evidence."""
        found = self.known.row(Near(self.run, actor or self.actor, int(event), t, after))
        return found if found is not None and self.is_before(found) else None


def _event(placed: Placed) -> int:
    return placed[1][8] >> 8 & 0xFF


def _links(rows: Iterable[Placed]) -> Chain:
    return [Link(*placed) for placed in rows]


def _nothing(_: Story) -> Chain:
    return []


def _mail(story: Story) -> Chain:
    """A SEND and all who received it."""
    if len(story.evidence) > 1:
        run, actor, seq = story.finding.rows[0]
        others = story.known.rows(Receives(run, actor, seq))
        return [*_links(story.evidence[:1]), *_links(placed for placed in others if story.is_before(placed))]
    return story.sent(story.evidence[0])


def _confirmed(story: Story) -> Chain:
    if story.event == Ev.CONFIRM:
        return _confirm_of_queue(story, story.finding.about[0])
    msg = story.last[2]
    if story.event == Ev.ON_DISK:
        return [
            *_in_store(story, msg, story.actor, ""),
            Link(story.run, None, "STORE_CONFIRM: no store reported this body"),
        ]
    why = "FILE_SYNC: between the APPEND and the STORE_CONFIRM no sync covers the record"
    return _in_store(story, msg, story.last[3], why)


def _confirm_of_queue(story: Story, id_: int) -> Chain:
    rows = [
        placed
        for placed in story.of_id(id_)
        if _event(placed) in {Ev.PUBLISH, Ev.CONFIRM} and placed[0] == story.run
    ]
    published = next((placed for placed in reversed(rows) if _event(placed) == Ev.PUBLISH), None)
    if published is None:
        return [Link(story.run, None, f"PUBLISH: nothing was published as {id_} in this life of the queue")]
    row = published[1]
    chain = [*story.sent(published), Link(*published)]
    synced = story.near(Ev.QI_SYNC, row[0], after=True)
    missing = "QI_SYNC: the index was not synced between the PUBLISH and the CONFIRM"
    chain.append(Link(*synced) if synced is not None else Link(story.run, None, missing))
    if row[8] & IN_STORE:
        msg = row[2] + id_ - row[5]
        why = "FILE_SYNC: no sync covers the record before the CONFIRM"
        chain += _in_store(story, msg, story.actor, why)
        told = [
            placed for placed in story.known.rows(OfMessage(story.scope, msg)) if _event(placed) == Ev.ON_DISK and story.is_before(placed)
            and placed[1][8] >> 16 == story.actor
        ]  # fmt: skip
        why = "ON_DISK: the queue was not told, before the CONFIRM, that the body is safe"
        chain += _links(told[-1:]) or [Link(story.run, None, why)]
    return [*chain, *_links(placed for placed in rows if _event(placed) == Ev.CONFIRM)]


def _owed(story: Story) -> Chain:
    """As of a confirm, up to the one that never came."""
    id_ = story.finding.about[0]
    return [
        *_confirm_of_queue(story, id_),
        Link(story.run, None, f"CONFIRM of {id_}: nothing was missing for it"),
    ]


def _in_store(story: Story, msg: int, client: int, why: str) -> Chain:
    """What a store did with a client's message, and the sync that covers it; `why` says what is wrong without one."""
    rows = [
        placed
        for placed in story.known.rows(OfMessage(story.scope, msg))
        if story.is_before(placed) and placed[0] == story.run
    ]
    write = next(
        (placed for placed in rows if _event(placed) == Ev.STORE_WRITE and placed[1][3] in {client, 0}), None
    )
    chain = _links(each for each in (write,) if each is not None)
    append = next((placed for placed in reversed(rows) if _event(placed) == Ev.APPEND), None)
    if append is None:
        return chain or [Link(story.run, None, "STORE_WRITE: no store handled a write of this message")]
    chain.append(Link(*append))
    row = append[1]
    synced = story.near(Ev.FILE_SYNC, row[0], after=True, actor=row[8] >> 16)
    if synced is not None and (synced[1][5], synced[1][6]) >= (row[5], row[6] + row[7]):
        chain.append(Link(*synced))
    elif why:
        chain.append(Link(story.run, None, why))
    return [
        *chain,
        *_links(
            [placed for placed in rows if _event(placed) == Ev.STORE_CONFIRM and placed[1][3] == client][-1:]
        ),
    ]


def _survived(story: Story) -> Chain:
    """A message from its publish over the end of a queue process to the next one's recovery."""
    id_ = story.finding.about[0]
    rows = [
        placed for placed in story.known.rows(OfId(story.scope, story.name, id_)) if story.is_before(placed)
    ]
    here = [placed for placed in rows if placed[0] == story.run and placed[1][8] >> 16 == story.actor]
    before = rows[: len(rows) - len(here)]
    chain = [link for placed in before[:1] if _event(placed) == Ev.PUBLISH for link in story.sent(placed)]
    told = [placed for placed in before if _event(placed) in {Ev.PUBLISH, Ev.CONFIRM, Ev.RECOVERED}]
    chain += _links(dict.fromkeys([*told[:2], *before[-4:]]))
    gone = [placed for placed in before if _event(placed) in {Ev.ACK, Ev.DROP, Ev.DELIVER}]
    if gone and here:
        run, row = gone[-1]
        synced = story.known.row(Near(run, row[8] >> 16, int(Ev.QI_SYNC), row[0], after=True))
        chain += _links([synced] if synced is not None else [])
    if before:
        run, row = before[-1]
        stop = story.known.row(Near(run, row[8] >> 16, int(Ev.ACTOR_STOP), row[0], after=True))
        chain += _links([stop] if stop is not None else [])
    missing = Link(story.run, None, f"RECOVERED of {id_}: it was confirmed, and neither acked nor dropped")
    return [*chain, *(_links(here) or [missing])]


def _in_queue(story: Story) -> Chain:
    """The lives of the message and of the one that should have gone first."""
    id_, *others = story.finding.about
    lives = (
        [story.of_id(id_)[-2:], *(story.of_id(each)[-3:] for each in others)]
        if others
        else [story.of_id(id_)[-6:]]
    )
    rows = sorted({placed for life in lives for placed in life}, key=lambda placed: (placed[0], placed[1][0]))
    sends = [link for placed in rows[:1] if _event(placed) == Ev.PUBLISH for link in story.sent(placed)]
    if not rows and not others:
        return [Link(story.run, None, f"PUBLISH or RECOVERED of {id_}: it is not in the queue")]
    return [*sends, *_links(rows)]


def _expired(story: Story) -> Chain:
    rows = [
        placed
        for placed in story.of_id(story.finding.about[0])
        if _event(placed) in {Ev.PUBLISH, Ev.EXPIRY, Ev.RECOVERED}
    ]
    sends = [link for placed in rows[:1] if _event(placed) == Ev.PUBLISH for link in story.sent(placed)]
    return [*sends, *_links(rows)]


_COUNTS = frozenset({Ev.STORE_WRITE, Ev.STORE_REMOVE, Ev.REF_RECOVERED, Ev.REF_DROPPED})


def _counted(story: Story) -> Chain:
    msg = story.finding.about[0]
    rows = [placed for placed in story.known.rows(OfMessage(story.scope, msg)) if story.is_before(placed)]
    counts = [
        placed
        for placed in rows
        if _event(placed) in _COUNTS and placed[1][8] >> 16 == story.actor and placed[0] == story.run
    ]
    published = [placed for placed in rows if _event(placed) == Ev.PUBLISH]
    return _links(sorted([*published[-2:], *counts[-6:]], key=lambda placed: (placed[0], placed[1][0])))


_MOVES = {Ev.GC_START, Ev.GC_MOVE, Ev.GC_DONE, Ev.COMPACT_START, Ev.COMPACT_MOVE, Ev.TRUNCATE}
_DECIDES: dict[str, frozenset[int]] = {
    "S3": frozenset(
        {
            Ev.FILE_STATE,
            Ev.APPEND,
            Ev.STORE_REMOVE,
            Ev.REF_DROPPED,
            Ev.REF_RECOVERED,
            Ev.GC_MOVE,
            Ev.GC_DONE,
            Ev.TRUNCATE,
        }
    ),
    "S4": frozenset({Ev.LOCK, Ev.UNLOCK}),
    "S5": frozenset({Ev.ROLL, Ev.APPEND, *_MOVES}),
    "S6": frozenset({Ev.ROLL, Ev.APPEND, Ev.FILE_WRITE, Ev.FILE_STATE}),
    "S7": frozenset({Ev.ROLL, Ev.APPEND, Ev.FILE_WRITE, Ev.FILE_SYNC}),
    "E1": frozenset({Ev.FILE_STATE, Ev.ROLL, Ev.APPEND, Ev.GC_DONE, Ev.TRUNCATE}),
    "S8": frozenset({Ev.COMPACT_START, Ev.COMPACT_DONE, Ev.TRUNCATE, Ev.UNLOCK}),
}


def _file(story: Story) -> Chain:
    finding = story.finding
    store, file = finding.about
    rows = [
        placed for placed in story.known.rows(OfFile(story.run, store, file, story.last[0]))
        if _event(placed) in _DECIDES[finding.rule] and story.is_before(placed)
    ]  # fmt: skip
    if finding.rule == "S4":
        missing = (
            []
            if story.event in {Ev.APPEND, Ev.FILE_WRITE}
            else [Link(story.run, None, f"LOCK of file {file}")]
        )
        return [*_links(rows[-1:]), *missing]
    if not rows:
        return [Link(story.run, None, f"any earlier row of file {file}")]
    opened = [placed for placed in rows if _event(placed) == Ev.ROLL][-1:]
    return _links(dict.fromkeys([*opened, *rows[-STATE_ROWS:]]))


def _ended(story: Story) -> Chain:
    """From the recovery to what was said at the end."""
    if story.finding.about:
        return _file(story)
    seen = [
        story.near(event, story.last[0], after=False) for event in (Ev.QUEUE_RECOVERED, Ev.STORE_RECOVERED)
    ]
    return _links(placed for placed in seen if placed is not None)


def _quiet(story: Story) -> Chain:
    """What last happened in the store, and that nobody collected."""
    seen = [
        story.near(event, story.last[0], after=False)
        for event in (Ev.APPEND, Ev.STORE_REMOVE, Ev.ROLL, Ev.UNLOCK)
    ]
    rows = sorted((placed for placed in seen if placed is not None), key=lambda placed: placed[1][0])
    return [*_links(rows), Link(story.run, None, "LOCK: no file went to the collector")]


def _restarts(story: Story) -> Chain:
    """The restarts before this one."""
    found: list[Placed] = []
    t = story.last[0]
    while len(found) < min(story.last[5], LONGEST // 2) - 1:
        earlier = story.near(Ev.RESTART, t, after=False)
        if earlier is None:
            break
        found.insert(0, earlier)
        t = earlier[1][0]
    exited = story.near(Ev.CHILD_EXIT, story.last[0], after=False)
    return _links([*found, *([exited] if exited is not None else [])])


def _incarnations(story: Story) -> Chain:
    """Why there was a successor: what the supervisor saw."""
    run, row = story.evidence[0]
    entry = story.runs[run].actors.get(row[8] >> 16)
    if entry is None or not entry.parent:
        return []
    seen = [
        story.known.row(Near(run, entry.parent, int(event), row[0], after=False))
        for event in (Ev.CHILD_EXIT, Ev.CHILD_START)
    ]
    return _links(placed for placed in seen if placed is not None)


def _waited(story: Story) -> Chain:
    """The wait that was over, if the actor went on a second time."""
    if len(story.evidence) > 1:
        return []
    begins = Ev.CREDIT_BLOCKED if story.event == Ev.CREDIT_UNBLOCKED else Ev.ALARM_BLOCKED
    seen = [story.near(event, story.last[0], after=False) for event in (begins, Ev(story.event))]
    return [
        *_links(placed for placed in seen if placed is not None),
        Link(story.run, None, f"{begins.name}: no wait had begun"),
    ]


def _overdue(story: Story) -> Chain:
    """The publish, the sync after it, the last word of the store, and no confirm."""
    id_ = story.finding.about[0]
    run, row = story.evidence[0]
    synced = story.known.row(Near(run, story.actor, int(Ev.QI_SYNC), row[0], after=True))
    told = [
        placed
        for placed in story.known.rows(OfMessage(story.scope, row[2] + id_ - row[5]))
        if _event(placed) == Ev.ON_DISK and placed[0] == run
    ]
    after = [placed for placed in [synced, *told[-1:]] if placed is not None]
    missing = Link(run, None, f"CONFIRM of {id_}: nothing was missing for it")
    return [
        *story.sent(story.evidence[0]),
        Link(run, row),
        *_links(sorted(after, key=lambda placed: placed[1][0])),
        missing,
    ]


def _settled(story: Story) -> Chain:
    """The last delivery of the message, what became of it, and what is known of its consumer."""
    id_ = story.finding.about[0]
    life = [
        placed
        for placed in story.known.rows(OfId(story.scope, story.name, id_))
        if placed[0] == story.run and placed[1][8] >> 16 == story.actor
    ]
    added = story.near(Ev.CONSUMER_ADDED, story.last[0], after=False)
    rows = [
        *([added] if added is not None else []),
        *[placed for placed in life if story.is_before(placed)][-4:],
    ]
    missing = []
    if story.event == Ev.CONSUMER_GONE:
        missing = [Link(story.run, None, f"REQUEUE of {id_}: its consumer is gone")]
    return [
        *_links(sorted(rows, key=lambda placed: placed[1][0])),
        *story.sent((story.run, story.last)),
        *missing,
    ]


def _stuck(story: Story) -> Chain:
    """Somebody who could have had the message."""
    seen = [
        story.near(event, story.last[0], after=False) for event in (Ev.CONSUMER_ADDED, Ev.DELIVER, Ev.PUBLISH)
    ]
    rows = sorted((placed for placed in seen if placed is not None), key=lambda placed: placed[1][0])
    return [*_links(rows), Link(story.run, None, "DELIVER: a consumer or a waiting get had room")]


def _told_of(story: Story) -> Chain:
    """Where the message's record was."""
    places = {Ev.APPEND, Ev.REF_RECOVERED, Ev.GC_MOVE, Ev.COMPACT_MOVE, Ev.STORE_REMOVE}
    rows = [
        placed
        for placed in story.known.rows(OfMessage(story.scope, story.finding.about[0]))
        if _event(placed) in places and placed[0] == story.run
    ]
    rows = [placed for placed in rows if story.is_before(placed)]
    return _links(rows[-4:]) or [Link(story.run, None, "APPEND: no store had a record of this message")]


STORIES: dict[str, Callable[[Story], Chain]] = {
    "T1": _nothing, "T2": _mail, "T4": _mail, "C1": _confirmed, "C2": _survived, "C3": _owed, "Q1": _in_queue, "Q2": _in_queue,
    "Q3": _expired, "S1": _counted, "S2": _counted, **dict.fromkeys(_DECIDES, _file), "S9": _quiet, "E1": _ended, "R1": _restarts,
    "R2": _incarnations, "W1": _waited, "C4": _overdue, "Q4": _survived, "Q5": _stuck, "A1": _settled, "A2": _settled, "A3": _settled,
    "D1": _told_of,
}  # fmt: skip
