"""Q6: a message is written, read and delivered with the body with which it was published.

Of a delivery, by Bodies; key: (run, queue actor).  PUBLISH and DELIVER have a checksum of their messages: a
sum over them in which each counts by its place (trace/events/), so rows that cover the same messages in other
portions have to add up to the same.  Sequence ids are places on a line, and each row says how far two of them
are apart:

    PUBLISH  0 ─────── 17 ───────► 5         DELIVER  0 ── 9 ──► 3 ── 8 ──► 5    fine: 9 + 8 = 17
                                             DELIVER  0 ── 9 ──► 3 ── 6 ──► 5    Q6

A row that says otherwise than those before it is a violation, whatever rows are missing: no process gives a
sequence id twice.  A message that an earlier process of the queue took in has no PUBLISH here, and says
nothing.

Array form: a delivery whose messages were published in the same piece of rows, and whose checksum theirs add
up to, is fine; both sides are left out.

Of a store, by StoredBodies; key: (run,).  APPEND and READ have a checksum of their message, which tells that
of the PUBLISH as soon as the sequence id is known.  So a finding says where a body was exchanged: on its way
to the file, in the file or on the way from it, or, where only the delivery is wrong, in the queue.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

from warrenmq.replay.drive.columns import Ints, Rows, expand, look_up, np
from warrenmq.replay.drive.machines import EXERCISED, Figures, Finding, Key, Machine, Outcome
from warrenmq.replay.drive.trace_context import TraceContext
from warrenmq.replay.explain.story import Chain, Story, event_of, links_of
from warrenmq.replay.rules.rule import Exercised, Rule
from warrenmq.trace.catalog import Chunk
from warrenmq.trace.events import IN_STORE, Append, Deliver, Ev, Publish, Read
from warrenmq.trace.index import Row
from warrenmq.trace.schema import Shared, T

_MODULUS = 0xFFFF
"""Checksums are one more than a sum modulo this."""


class _Covers(Shared[T], of=(Ev.PUBLISH, Ev.DELIVER)):
    """Messages that were published or delivered together."""

    first_seq_id: T
    count: T


_covers = _Covers.getter("seq", "t", "first_seq_id", "count")
_checksum = {each.number: each.getter("checksum") for each in (Publish, Deliver)}


class Part(NamedTuple):
    """A row with a checksum."""

    seq: int
    t: int
    first: int
    messages: int
    checksum: int


Parts = tuple[list[Part], int]
"""Rows that have to be compared, and how many deliveries have a checksum."""


class Line:
    """Sequence ids as places on a line, as far as rows say how far apart they are."""

    def __init__(self) -> None:
        self._places: dict[int, tuple[int, int]] = {}
        """Sequence id -> one that it is joined to, and how far behind that one it is."""

    def join(self, part: Part) -> bool:
        """Take a row in; False if the rows before it say otherwise."""
        (left, before), (right, behind) = self._find(part.first), self._find(part.first + part.messages)
        apart = before + part.checksum - 1 - behind
        if left == right:
            return apart % _MODULUS == 0
        self._places[right] = left, apart
        return True

    def _find(self, id_: int) -> tuple[int, int]:
        """The id that this one is joined to in the end, and how far behind that one it is."""
        way: list[int] = []
        while (joined := self._places.get(id_)) is not None:
            way.append(id_)
            id_ = joined[0]
        behind = 0
        for each in reversed(way):
            behind += self._places[each][1]
            self._places[each] = id_, behind
        return id_, behind


class Bodies(Machine):
    """Compares the checksums of what came in and what went out."""

    name: ClassVar[str] = "bodies"
    events: ClassVar[frozenset[int]] = frozenset({Ev.PUBLISH, Ev.DELIVER})

    def summarise(self, piece: Chunk, rows: list[Row]) -> Iterator[tuple[Key, Parts]]:
        deliveries = 0
        parts: list[Part] = []
        for row in rows:
            (checksum,) = _checksum[row.event](row)
            if checksum:
                seq, t, first, messages = _covers(row)
                parts.append(Part(seq, t, first, messages, checksum))
                deliveries += row.event == Ev.DELIVER
        if parts:
            yield (piece.run, piece.actor), (parts, deliveries)

    def fold(self, piece: Chunk, rows: Rows) -> Iterator[tuple[Key, Parts]]:
        """Leave out deliveries that publishes add up to, and those publishes, unless another delivery has
        some of their messages.
        """
        published, delivered = (_table(event, rows) for event in (Publish, Deliver))
        published = published.take(np.argsort(published[:, 2], kind="stable"), axis=0)
        _, _, firsts, messages, checksums = published.T
        _, _, begins, delivers, said = delivered.T
        ends = firsts + messages
        if np.all(ends[:-1] <= firsts[1:]):
            counted, total = (np.concatenate(([0], np.cumsum(each))) for each in (messages, checksums - 1))
            (first, has_first), (last, has_last) = look_up(firsts, begins), look_up(ends, begins + delivers)
            same = has_first & has_last & (first <= last)
            same[same] = (counted[last[same] + 1] - counted[first[same]] == delivers[same]) & (
                (total[last[same] + 1] - total[first[same]] - said[same] + 1) % _MODULUS == 0
            )
            others = delivered[~same]
            met = np.zeros(len(published) + 1, np.int64)
            np.add.at(met, first[same], 1)
            np.add.at(met, last[same] + 1, -1)
            _, _, from_, many, _ = others.T
            touched = np.searchsorted(np.sort(from_), ends) > np.searchsorted(
                np.sort(from_ + many), firsts, side="right"
            )
            left = published[(np.cumsum(met)[:-1] == 0) | touched]
        else:
            left, others = published, delivered
        parts = [Part(*each) for each in np.concatenate((left, others)).tolist()]
        if parts or len(delivered):
            yield (piece.run, piece.actor), (parts, len(delivered))

    def absorb(self, state: list[Parts], summary: Parts) -> None:
        state.append(summary)

    def finish(self, key: Key, state: list[Parts], context: TraceContext) -> Outcome:
        who, outcome, line = (int(key[0]), int(key[1])), Outcome(), Line()
        outcome.figures[EXERCISED, "Q6"] = sum(deliveries for _, deliveries in state)
        for part in sorted(part for parts, _ in state for part in parts):
            if not line.join(part):
                text = f"{part.messages} messages from {part.first} on were not delivered with the bodies that were published"
                rows = ((*who, part.seq),)
                outcome.findings.append(
                    Finding("Q6", f"queue {context.name(who)}", text, rows, part.t, (), (part.first,))
                )
        return outcome


class Stored(NamedTuple):
    """A row about a body in a store; `first` and `messages` are those of a PUBLISH."""

    t: int
    actor: int
    seq: int
    event: int
    message: int
    checksum: int
    first: int = 0
    messages: int = 0


_published = Publish.getter("t", "seq", "message", "checksum", "first_seq_id", "count", "flags")
_written = Append.getter("t", "seq", "message", "checksum")
_read = Read.getter("t", "seq", "message", "checksum")


class StoredBodies(Machine):
    """Compares the checksums of what was published with what stores wrote, and of that with what was read."""

    name: ClassVar[str] = "stored bodies"
    events: ClassVar[frozenset[int]] = frozenset({Ev.PUBLISH, Ev.APPEND, Ev.READ})

    def summarise(self, piece: Chunk, rows: list[Row]) -> Iterator[tuple[Key, list[Stored]]]:
        actor, found = piece.actor, []
        for row in rows:
            if (event := row.event) == Ev.PUBLISH:
                t, seq, message, checksum, first, messages, flags = _published(row)
                if checksum and flags & IN_STORE:
                    found.append(Stored(t, actor, seq, event, message, checksum, first, messages))
            else:
                t, seq, message, checksum = (_written if event == Ev.APPEND else _read)(row)
                if checksum:
                    found.append(Stored(t, actor, seq, event, message, checksum))
        if found:
            yield (piece.run,), found

    def fold(self, piece: Chunk, rows: Rows) -> Iterator[tuple[Key, list[Ints]]]:
        """`summarise` for arrays: one table."""
        tables = []
        for event in (Publish, Append, Read):
            its = rows.where(rows.event == event.number)
            view: Any = event.of(its)
            nothing = np.zeros(len(its), np.int64)
            spans = (view.first_seq_id, view.count) if event is Publish else (nothing, nothing)
            columns = (its.t, its.actor, its.seq, its.event, view.message, view.checksum, *spans)
            wanted = view.checksum != 0
            if event is Publish:
                wanted &= view.flags & IN_STORE != 0
            tables.append(np.stack(columns, axis=1).compress(wanted, axis=0))
        if any(map(len, tables)):
            yield (piece.run,), [np.concatenate(tables)]

    def absorb(self, state: list[Any], summary: list[Any]) -> None:
        state += summary

    def finish(self, key: Key, state: list[Any], context: TraceContext) -> Outcome:
        tables = [each for each in state if not isinstance(each, Stored)]
        rows = [each for each in state if isinstance(each, Stored)]
        if tables and not rows and (cases := _all_fine(np.concatenate(tables))) is not None:
            return Outcome(figures=Figures({(EXERCISED, "Q6"): cases}))
        rows += [Stored(*each) for table in tables for each in table.tolist()]
        return self._compare(int(key[0]), rows, context)

    @staticmethod
    def _compare(run: int, rows: list[Stored], context: TraceContext) -> Outcome:
        outcome = Outcome()
        written: dict[int, Stored] = {}
        for each in sorted(each for each in rows if each.event == Ev.APPEND):
            written.setdefault(each.message, each)

        def wrong(each: Stored, text: str, *writes: Stored) -> None:
            evidence = sorted([each, *writes])
            rows = tuple((run, one.actor, one.seq) for one in evidence)
            subject, about = context.name((run, each.actor)), (each.message, each.event)
            outcome.findings.append(Finding("Q6", subject, text, rows, evidence[-1].t, (), about))

        for each in sorted(rows):
            if each.event == Ev.PUBLISH:
                known = [
                    one for n in range(each.messages) if (one := written.get(each.message + n)) is not None
                ]
                if len(known) == each.messages:
                    outcome.figures[EXERCISED, "Q6"] += 1
                    total = sum((one.checksum - 1) * (each.first + n + 1) for n, one in enumerate(known))
                    if (total - each.checksum + 1) % _MODULUS:
                        what = f"{each.messages} messages from {each.first} on"
                        wrong(each, f"the store wrote other bodies than were published as {what}", known[0])
            elif (first := written.get(each.message)) is not None and each.checksum != first.checksum:
                done = "written again" if each.event == Ev.APPEND else "read"
                wrong(each, f"the body that was {done} is not the one that was written of this message")
        return outcome


def _all_fine(table: Ints) -> int | None:
    """Rows as Stored has them: the number of publishes whose bodies were all written, if each body is what it was before."""
    written = table.compress(table[:, 3] == Ev.APPEND, axis=0)
    written = written.take(np.lexsort((written[:, 2], written[:, 1], written[:, 0], written[:, 4])), axis=0)
    messages, checksums = written[:, 4], written[:, 5]
    at, known = look_up(messages, table[:, 4])
    of_one = (table[:, 3] != Ev.PUBLISH) & known
    if np.any(checksums.take(at[of_one]) != table[of_one, 5]):
        return None
    published = table.compress(table[:, 3] == Ev.PUBLISH, axis=0)
    _, _, _, _, first, said, first_id, count = published.T
    row, message = expand(first, count)
    at, known = look_up(messages, message)
    whole = np.bincount(row[~known], minlength=len(published)) == 0
    parts = whole.take(row)
    row, message, at = row[parts], message[parts], at[parts]
    sums = np.zeros(len(published), np.int64)
    place = (first_id.take(row) + message - first.take(row) + 1) % _MODULUS
    np.add.at(sums, row, (checksums.take(at) - 1) * place)
    return None if np.any(whole & ((sums - said + 1) % _MODULUS != 0)) else int(whole.sum())


def _table(event: type[Publish[Any] | Deliver[Any]], rows: Rows) -> Ints:
    """The rows of an event that have a checksum, each as a Part."""
    its = rows.where(rows.event == event.number)
    view = event.of(its)
    parts = np.stack((its.seq, its.t, view.first_seq_id, view.count, view.checksum), axis=1)
    found: Ints = parts[parts[:, 4] != 0]
    return found


_OF_STORES = frozenset({Ev.PUBLISH, Ev.APPEND, Ev.READ})


def _both(story: Story) -> Chain:
    """Everything that befell the first of the messages; of a store, where it was published, written and read."""
    (about, *of_a_store) = story.finding.about
    if of_a_store:
        rows = [each for each in story.of_message(about) if event_of(each) in _OF_STORES]
    else:
        rows = story.of_id(about)
    return links_of([*rows, *story.evidence])


_SQL = """
SELECT d.run, d.actor, d.seq FROM deliver_rows AS d
JOIN publish_rows AS p ON p.run = d.run AND p.actor = d.actor AND p.first_seq_id = d.first_seq_id AND p.count = d.count AND p.seq < d.seq
WHERE d.checksum <> 0 AND p.checksum <> 0 AND d.checksum <> p.checksum
UNION
SELECT p.run, p.actor, p.seq FROM publish_rows AS p JOIN append_rows AS w ON w.run = p.run AND w.message = p.message
WHERE p.count = 1 AND p.flags & 4 <> 0 AND p.checksum <> 0 AND w.checksum <> 0
  AND (w.checksum - 1) * ((p.first_seq_id + 1) % 65535) % 65535 <> p.checksum - 1
UNION
SELECT r.run, r.actor, r.seq FROM read_rows AS r JOIN append_rows AS w ON w.run = r.run AND w.message = r.message
WHERE r.checksum <> 0 AND w.checksum <> 0 AND r.checksum <> w.checksum
"""

RULE = Rule(
    id="Q6",
    name="bodies as published",
    text="A message is written to a store, read from it and delivered with the body with which it was published.",
    sources=("docs/reference/classic-queue.md#what-is-stored", "docs/reference/classic-queue.md#p19"),
    exercised=Exercised("a delivery with a checksum, or a body that was published and written"),
    machines=(Bodies, StoredBodies),
    sql=_SQL,
    not_in_sql="deliveries that cover other messages together than were published together, and bodies of several messages of one publish",
    explain=_both,
)
