"""Chains of rows that explain one finding, with those that are missing; here are the chains that several rules share.

A chain goes from causes to the evidence, at most LONGEST rows.  Each rule has in its file the function that
makes its chain (`explain`).  Edges that are followed: from a receive to its SEND, from a row to those of the
same sequence id, message or file, and the order of rows within an actor.
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
    in_order,
)
from warrenmq.trace.catalog import Run
from warrenmq.trace.events import IN_STORE, Append, Ev, FileSync, Publish, StoreConfirm, StoreWrite, sends_of
from warrenmq.trace.schema import Row

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
        return self.last.event

    @property
    def actor(self) -> int:
        return self.last.actor

    @property
    def scope(self) -> str:
        return self.runs[self.run].scope

    @property
    def name(self) -> str:
        return self.runs[self.run].actor_name(self.actor)

    def is_before(self, placed: Placed) -> bool:
        """Earlier than the evidence."""
        return (placed.run, placed.row.t) < (self.run, self.last.t)

    def of_id(self, id_: int) -> list[Placed]:
        """Earlier rows of the same queue about a sequence id."""
        return [
            placed for placed in self.known.rows(OfId(self.scope, self.name, id_)) if self.is_before(placed)
        ]

    def of_message(self, msg: int) -> list[Placed]:
        """Earlier rows that name a message."""
        return [placed for placed in self.known.rows(OfMessage(self.scope, msg)) if self.is_before(placed)]

    def is_own(self, placed: Placed) -> bool:
        """True for a row of the actor that the finding is about."""
        return (placed.run, placed.row.actor) == (self.run, self.actor)

    def sent(self, placed: Placed) -> list[Link]:
        """The SEND of a receive."""
        run, row = placed
        sender, sends = sends_of(row)
        if not sends:
            return []
        send = self.known.row(RowAt(run, sender, sends[0]))
        if send is None:
            return [Link(run, None, f"SEND {sends[0]} of {self.runs[run].actor_name(sender)}")]
        return [Link(*send)]

    def near(self, event: Ev, t: int, *, after: bool, actor: int = 0) -> Placed | None:
        """The actor's first row of an event after `t`, or its last one before, if that is earlier than the evidence."""
        found = self.known.row(Near(self.run, actor or self.actor, int(event), t, after))
        return found if found is not None and self.is_before(found) else None


def event_of(placed: Placed) -> int:
    """The event of a row."""
    return placed.row.event


def links_of(rows: Iterable[Placed | None]) -> Chain:
    """A link for each of these rows that was found."""
    return [Link(*placed) for placed in rows if placed is not None]


def links_in_time(rows: Iterable[Placed | None]) -> Chain:
    """`links_of` in the order of runs and times."""
    found = [placed for placed in rows if placed is not None]
    found.sort(key=in_order)
    return links_of(found)


def no_chain(_: Story) -> Chain:
    """An empty chain: the evidence alone explains the finding."""
    return []


def mail_chain(story: Story) -> Chain:
    """A SEND and all its receives."""
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
        if event_of(placed) in {Ev.PUBLISH, Ev.CONFIRM} and placed.run == story.run
    ]
    published = next((placed for placed in reversed(rows) if event_of(placed) == Ev.PUBLISH), None)
    if published is None:
        return [Link(story.run, None, f"PUBLISH: nothing was published as {id_} in this life of the queue")]
    row = published[1]
    chain = [*story.sent(published), Link(*published)]
    synced = story.near(Ev.QI_SYNC, row.t, after=True)
    missing = "QI_SYNC: the index was not synced between the PUBLISH and the CONFIRM"
    chain += links_of([synced]) or [Link(story.run, None, missing)]
    publish = Publish.of(row)
    if publish.flags & IN_STORE:
        msg = publish.message + id_ - publish.first_seq_id
        why = "FILE_SYNC: no sync covers the record before the CONFIRM"
        chain += store_chain(story, msg, story.actor, why)
        reports = [
            placed
            for placed in story.of_message(msg)
            if event_of(placed) == Ev.ON_DISK and placed.row.actor == story.actor
        ]
        why = "ON_DISK: the store had not reported the body safe before the CONFIRM"
        chain += links_of(reports[-1:]) or [Link(story.run, None, why)]
    return [*chain, *links_of(placed for placed in rows if event_of(placed) == Ev.CONFIRM)]


def store_chain(story: Story, msg: int, client: int, why: str) -> Chain:
    """The store's steps with a client's message, up to the sync that covers it; `why` is the text where there is no such
    sync.
    """
    rows = [placed for placed in story.of_message(msg) if placed.run == story.run]
    writes = [
        placed
        for placed in rows
        if event_of(placed) == Ev.STORE_WRITE and StoreWrite.of(placed.row).client in {client, 0}
    ]
    chain = links_of(writes[:1])
    appends = [placed for placed in rows if event_of(placed) == Ev.APPEND]
    if not appends:
        return chain or [Link(story.run, None, "STORE_WRITE: no store handled a write of this message")]
    row = appends[-1].row
    chain.append(Link(*appends[-1]))
    append = Append.of(row)
    synced = story.near(Ev.FILE_SYNC, row.t, after=True, actor=row.actor)
    if synced is not None and _covers(FileSync.of(synced.row), append):
        chain.append(Link(*synced))
    elif why:
        chain.append(Link(story.run, None, why))
    confirms = [
        placed
        for placed in rows
        if event_of(placed) == Ev.STORE_CONFIRM and StoreConfirm.of(placed.row).client == client
    ]
    return [*chain, *links_of(confirms[-1:])]


def _covers(sync: FileSync[int], append: Append[int]) -> bool:
    return (sync.file, sync.synced_to) >= (append.file, append.offset + append.size)


def restart_chain(story: Story) -> Chain:
    """A message from its publish over the end of a queue process to the next one's recovery."""
    id_ = story.finding.about[0]
    rows = story.of_id(id_)
    here = [placed for placed in rows if story.is_own(placed)]
    before = rows[: len(rows) - len(here)]
    chain = [link for placed in before[:1] if event_of(placed) == Ev.PUBLISH for link in story.sent(placed)]
    first = [placed for placed in before if event_of(placed) in {Ev.PUBLISH, Ev.CONFIRM, Ev.RECOVERED}]
    chain += links_of(dict.fromkeys([*first[:2], *before[-4:]]))
    gone = [placed for placed in before if event_of(placed) in {Ev.ACK, Ev.DROP, Ev.DELIVER}]
    if gone and here:
        run, row = gone[-1]
        synced = story.known.row(Near(run, row.actor, int(Ev.QI_SYNC), row.t, after=True))
        chain += links_of([synced])
    if before:
        run, row = before[-1]
        stop = story.known.row(Near(run, row.actor, int(Ev.ACTOR_STOP), row.t, after=True))
        chain += links_of([stop])
    missing = Link(story.run, None, f"RECOVERED of {id_}: it was confirmed, and neither acked nor dropped")
    return [*chain, *(links_of(here) or [missing])]


def queue_chain(story: Story) -> Chain:
    """The rows of the message, and of the one that should have gone first."""
    id_, *others = story.finding.about
    lives = (
        [story.of_id(id_)[-2:], *(story.of_id(each)[-3:] for each in others)]
        if others
        else [story.of_id(id_)[-6:]]
    )
    rows = sorted({placed for life in lives for placed in life}, key=in_order)
    sends = [link for placed in rows[:1] if event_of(placed) == Ev.PUBLISH for link in story.sent(placed)]
    if not rows and not others:
        return [Link(story.run, None, f"PUBLISH or RECOVERED of {id_}: it is not in the queue")]
    return [*sends, *links_of(rows)]


_COUNTS = frozenset({Ev.STORE_WRITE, Ev.STORE_REMOVE, Ev.REF_RECOVERED, Ev.REF_DROPPED})


def count_chain(story: Story) -> Chain:
    msg = story.finding.about[0]
    rows = story.of_message(msg)
    counts = [placed for placed in rows if event_of(placed) in _COUNTS and story.is_own(placed)]
    published = [placed for placed in rows if event_of(placed) == Ev.PUBLISH]
    return links_in_time([*published[-2:], *counts[-6:]])


def settle_chain(story: Story) -> Chain:
    """The last delivery of the message, what followed, and when its consumer was added."""
    id_ = story.finding.about[0]
    life = [placed for placed in story.of_id(id_) if story.is_own(placed)]
    added = story.near(Ev.CONSUMER_ADDED, story.last.t, after=False)
    missing = []
    if story.event == Ev.CONSUMER_GONE:
        missing = [Link(story.run, None, f"REQUEUE of {id_}: its consumer is gone")]
    return [*links_in_time([added, *life[-4:]]), *story.sent(Placed(story.run, story.last)), *missing]


def file_chain(story: Story, deciding: frozenset[int]) -> Chain:
    """The last rows of the `deciding` events about a file, and the ROLL that opened it."""
    store, file = story.finding.about
    rows = [
        placed for placed in story.known.rows(OfFile(story.run, store, file, story.last.t))
        if event_of(placed) in deciding and story.is_before(placed)
    ]  # fmt: skip
    if not rows:
        return [Link(story.run, None, f"any earlier row of file {file}")]
    opened = [placed for placed in rows if event_of(placed) == Ev.ROLL][-1:]
    return links_of(dict.fromkeys([*opened, *rows[-STATE_ROWS:]]))
