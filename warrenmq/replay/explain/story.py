"""What a chain is made of: the rows that explain one finding, and those that are missing; and the chains that several rules share.

A chain goes from causes to the evidence, at most LONGEST rows.  Each rule says in its file what its chain is (`explain`).  Edges that
are followed: from a receive to its SEND (peer, pseq), from a row to those of the same sequence id, message or file, and the order
of rows within an actor.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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


def event_of(placed: Placed) -> int:
    """The event of a row."""
    return placed[1][8] >> 8 & 0xFF


def links_of(rows: Iterable[Placed]) -> Chain:
    """A link for each row."""
    return [Link(*placed) for placed in rows]


def no_chain(_: Story) -> Chain:
    """The evidence says it all."""
    return []


def mail_chain(story: Story) -> Chain:
    """A SEND and all who received it."""
    if len(story.evidence) > 1:
        run, actor, seq = story.finding.rows[0]
        others = story.known.rows(Receives(run, actor, seq))
        return [
            *links_of(story.evidence[:1]),
            *links_of(placed for placed in others if story.is_before(placed)),
        ]
    return story.sent(story.evidence[0])


def confirm_chain(story: Story, id_: int) -> Chain:
    rows = [
        placed
        for placed in story.of_id(id_)
        if event_of(placed) in {Ev.PUBLISH, Ev.CONFIRM} and placed[0] == story.run
    ]
    published = next((placed for placed in reversed(rows) if event_of(placed) == Ev.PUBLISH), None)
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
        chain += store_chain(story, msg, story.actor, why)
        told = [
            placed for placed in story.known.rows(OfMessage(story.scope, msg)) if event_of(placed) == Ev.ON_DISK and story.is_before(placed)
            and placed[1][8] >> 16 == story.actor
        ]  # fmt: skip
        why = "ON_DISK: the queue was not told, before the CONFIRM, that the body is safe"
        chain += links_of(told[-1:]) or [Link(story.run, None, why)]
    return [*chain, *links_of(placed for placed in rows if event_of(placed) == Ev.CONFIRM)]


def store_chain(story: Story, msg: int, client: int, why: str) -> Chain:
    """What a store did with a client's message, and the sync that covers it; `why` says what is wrong without one."""
    rows = [
        placed
        for placed in story.known.rows(OfMessage(story.scope, msg))
        if story.is_before(placed) and placed[0] == story.run
    ]
    write = next(
        (placed for placed in rows if event_of(placed) == Ev.STORE_WRITE and placed[1][3] in {client, 0}),
        None,
    )
    chain = links_of(each for each in (write,) if each is not None)
    append = next((placed for placed in reversed(rows) if event_of(placed) == Ev.APPEND), None)
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
        *links_of(
            [placed for placed in rows if event_of(placed) == Ev.STORE_CONFIRM and placed[1][3] == client][
                -1:
            ]
        ),
    ]


def restart_chain(story: Story) -> Chain:
    """A message from its publish over the end of a queue process to the next one's recovery."""
    id_ = story.finding.about[0]
    rows = [
        placed for placed in story.known.rows(OfId(story.scope, story.name, id_)) if story.is_before(placed)
    ]
    here = [placed for placed in rows if placed[0] == story.run and placed[1][8] >> 16 == story.actor]
    before = rows[: len(rows) - len(here)]
    chain = [link for placed in before[:1] if event_of(placed) == Ev.PUBLISH for link in story.sent(placed)]
    told = [placed for placed in before if event_of(placed) in {Ev.PUBLISH, Ev.CONFIRM, Ev.RECOVERED}]
    chain += links_of(dict.fromkeys([*told[:2], *before[-4:]]))
    gone = [placed for placed in before if event_of(placed) in {Ev.ACK, Ev.DROP, Ev.DELIVER}]
    if gone and here:
        run, row = gone[-1]
        synced = story.known.row(Near(run, row[8] >> 16, int(Ev.QI_SYNC), row[0], after=True))
        chain += links_of([synced] if synced is not None else [])
    if before:
        run, row = before[-1]
        stop = story.known.row(Near(run, row[8] >> 16, int(Ev.ACTOR_STOP), row[0], after=True))
        chain += links_of([stop] if stop is not None else [])
    missing = Link(story.run, None, f"RECOVERED of {id_}: it was confirmed, and neither acked nor dropped")
    return [*chain, *(links_of(here) or [missing])]


def queue_chain(story: Story) -> Chain:
    """The lives of the message and of the one that should have gone first."""
    id_, *others = story.finding.about
    lives = (
        [story.of_id(id_)[-2:], *(story.of_id(each)[-3:] for each in others)]
        if others
        else [story.of_id(id_)[-6:]]
    )
    rows = sorted({placed for life in lives for placed in life}, key=lambda placed: (placed[0], placed[1][0]))
    sends = [link for placed in rows[:1] if event_of(placed) == Ev.PUBLISH for link in story.sent(placed)]
    if not rows and not others:
        return [Link(story.run, None, f"PUBLISH or RECOVERED of {id_}: it is not in the queue")]
    return [*sends, *links_of(rows)]


_COUNTS = frozenset({Ev.STORE_WRITE, Ev.STORE_REMOVE, Ev.REF_RECOVERED, Ev.REF_DROPPED})


def count_chain(story: Story) -> Chain:
    msg = story.finding.about[0]
    rows = [placed for placed in story.known.rows(OfMessage(story.scope, msg)) if story.is_before(placed)]
    counts = [
        placed
        for placed in rows
        if event_of(placed) in _COUNTS and placed[1][8] >> 16 == story.actor and placed[0] == story.run
    ]
    published = [placed for placed in rows if event_of(placed) == Ev.PUBLISH]
    return links_of(sorted([*published[-2:], *counts[-6:]], key=lambda placed: (placed[0], placed[1][0])))


def settle_chain(story: Story) -> Chain:
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
        *links_of(sorted(rows, key=lambda placed: placed[1][0])),
        *story.sent((story.run, story.last)),
        *missing,
    ]


def file_chain(story: Story, deciding: frozenset[int]) -> Chain:
    """The last rows, of these events, that decided the state of a file; and the ROLL that opened it."""
    store, file = story.finding.about
    rows = [
        placed for placed in story.known.rows(OfFile(story.run, store, file, story.last[0]))
        if event_of(placed) in deciding and story.is_before(placed)
    ]  # fmt: skip
    if not rows:
        return [Link(story.run, None, f"any earlier row of file {file}")]
    opened = [placed for placed in rows if event_of(placed) == Ev.ROLL][-1:]
    return links_of(dict.fromkeys([*opened, *rows[-STATE_ROWS:]]))
