"""A consistent trace of any size: one period of the model's work, as often as it takes.

The model works for a while and then comes to rest: queues empty, every body removed, all files but a fresh one deleted.
What it wrote from one rest to the next is a period, and the next one is the same rows with larger numbers: times, row
numbers, messages, sequence ids, file numbers, readers' marks.  So the cost of a row does not depend on how many there are.

    python -m tests.replay.trace_periods FOLDER --events 10000000 [--seed 1] [--queues 16] [--plant NAME]...

A plant is one of trace_plants.py (`--plant list` names them); it goes into a small run of its own beside the large one.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.trace_model import LIMIT, Model, Queue, consistent_trace
from tests.support.trace_plants import PLANTS
from tests.support.trace_union import side_by_side
from tests.support.trace_writer import Actor, RunRows, header_of, write_trace
from warrenmq.replay.rules.passes.settlements import CONSUMER_SHIFT
from warrenmq.trace.block import encode_footer, encode_rows
from warrenmq.trace.events import COVERS_SEQ_IDS, DIRECT, Ev, Trigger
from warrenmq.trace.schema import COLUMNS
from warrenmq.trace.segment import encode_header

PIECE = 1024
STEPS = 300
"""Of the model in one period, for each queue."""
SEGMENT_BYTES = 16 << 20
T, SEQ, MSG, PEER, PSEQ, A, B, C, WHO = range(len(COLUMNS))

_RECEIVES = frozenset({Ev.RECV, Ev.PUBLISH, Ev.ACK, Ev.UNDELIVERED})
_OF_FILES = frozenset({
    Ev.APPEND, Ev.FILE_WRITE, Ev.FILE_SYNC, Ev.LOCK, Ev.UNLOCK, Ev.FILE_DELETE, Ev.FILE_STATE, Ev.GC_MOVE, Ev.COMPACT_START,
    Ev.COMPACT_MOVE, Ev.COMPACT_DONE, Ev.TRUNCATE, Ev.GC_START, Ev.GC_DONE, Ev.ROLL,
})  # fmt: skip
_SETTLES = frozenset({Ev.ACK, Ev.REQUEUE, Ev.DROP})
_OF_TWO_FILES = frozenset({Ev.GC_START, Ev.GC_DONE, Ev.ROLL})
_FILE_IN_PSEQ = frozenset({Ev.STORE_WRITE, Ev.STORE_REMOVE, Ev.REF_DROPPED})


class Periodic(Model):
    """The model, in one run that nothing crashes, with rests."""

    def __init__(self, seed: int, queues: int) -> None:
        super().__init__(seed)
        self.queues = [Queue(f"queue/{number:02d}") for number in range(queues)]
        self.restarts = 2  # no queue crashes any more
        self.consumers_change = False

    def begin_run(self) -> None:
        self.run(0, kill=True)
        self.runs[-1].closed = True
        self._fill_file()  # a period may not begin with file 0: a 0 in pseq says that there is no file
        self.rest()

    def rest(self) -> None:
        """Nothing is left but a fresh file."""
        while not self._at_rest():
            for queue in self.queues:
                while queue.ready:
                    self.deliver(queue)
                while queue.unacked:
                    self.ack(queue)
            while self.store.mail:
                self.handle_mail()
            self.sync_store(Trigger.MAILBOX_EMPTY)
            for queue in self.queues:
                self.sync_queue(queue)
            if self.store.ends[self.store.current]:
                self._fill_file()
        self.delete_empty()
        for queue in self.queues:
            queue.kept.clear()
            if queue.held_up:
                self.let_go(queue)
        self.store.refs.clear()
        self.store.owners.clear()

    def _fill_file(self) -> None:
        """Publish until the current file is full and left."""
        before = self.store.current
        while self.store.current == before and self.store.ends[before] < LIMIT:
            self.publish(self.queues[0])
            while self.store.mail:
                self.handle_mail()

    def _at_rest(self) -> bool:
        busy = any(queue.ready or queue.unacked or queue.acks_to_sync for queue in self.queues)
        return (
            not busy
            and not self.store.mail
            and not self.store.waiting
            and not self.store.ends[self.store.current]
        )

    def marks(self) -> dict[str, Any]:
        """The numbers that grow from one rest to the next."""
        return {
            "t": self.t, "msg": self.next_msg, "file": self.store.current, "mark": self.store.mark,
            "tags": {each.id: each.next_tag for queue in self.queues for each in (queue.consumer, queue.getter)},
            "next": {queue.actor.id: queue.next for queue in self.queues if queue.actor is not None},
            "rows": {actor.id: actor.last for actor in self.runs[-1].actors},
        }  # fmt: skip


class Period:
    """The rows of one actor from rest to rest, and what each number of them grows by."""

    def __init__(self, actor: Actor, before: dict[str, Any], after: dict[str, Any]) -> None:
        first, last = before["rows"][actor.id], after["rows"][actor.id]
        self.rows = np.array(actor.rows[first:last], dtype=np.int64).reshape(-1, len(COLUMNS))
        self.growth = _growth(actor.rows[first:last], before, after)


def _growth(rows: Sequence[Sequence[int]], before: dict[str, Any], after: dict[str, Any]) -> np.ndarray:
    grown = {name: after[name] - before[name] for name in ("t", "msg", "file", "mark")}
    more_rows = {actor: after["rows"][actor] - before["rows"][actor] for actor in after["rows"]}
    more_seqs = {actor: after["next"][actor] - before["next"][actor] for actor in after["next"]}
    more_tags = {consumer: after["tags"][consumer] - before["tags"][consumer] for consumer in after["tags"]}
    growth = np.zeros((len(rows), len(COLUMNS)), dtype=np.int64)
    for number, row in enumerate(rows):
        actor, event, flag = row[WHO] >> 16, row[WHO] >> 8 & 0xFF, row[WHO] & 0xFF
        line = growth[number]
        line[T], line[SEQ] = grown["t"], more_rows[actor]
        if row[MSG]:
            line[MSG] = grown["msg"]
        if event in _RECEIVES and row[PSEQ]:
            line[PSEQ] = more_rows[row[PEER] or actor]
        if event in COVERS_SEQ_IDS:
            line[A] = more_seqs[actor]
        if event == Ev.DELIVER:
            line[C] = more_tags[row[PEER]]
        if event in _SETTLES and row[C] >> CONSUMER_SHIFT:
            line[C] = more_tags[row[C] >> CONSUMER_SHIFT]
        if event == Ev.QUEUE_CLOSED:
            line[B] = more_seqs[actor]
        direct = event == Ev.READ and flag == DIRECT
        if event in _OF_FILES or direct:
            line[A] = grown["file"]
        if event in _OF_TWO_FILES:
            line[B] = grown["file"]
        if event in _FILE_IN_PSEQ and row[PSEQ]:
            line[PSEQ] = grown["file"]
        if event == Ev.TRUNCATE or direct:
            line[PSEQ] = grown["mark"]
    return growth


def write_large(
    folder: Path, events: int, seed: int = 1, queues: int = 16, plants: Sequence[str] = ()
) -> int:
    """Write a trace of at least `events` rows into a new folder; returns how many it has."""
    folder.mkdir(parents=True)
    model = Periodic(seed, queues)
    model.begin_run()
    before = model.marks()
    for _ in range(STEPS * queues):
        model.step()
    model.rest()
    after = model.marks()
    model.stop()
    run = model.runs[0]
    a_period = sum(after["rows"][actor] - before["rows"][actor] for actor in after["rows"])
    fixed = sum(len(actor.rows) for actor in run.actors) - a_period
    periods = max(1, -(-(events - fixed) // a_period))
    planted = side_by_side([_planted(name) for name in plants])
    for name, content in write_trace(planted, PIECE).items():
        (folder / name).write_bytes(content)
    writer = _Segments(folder, run)
    for actor in run.actors:
        writer.add(np.array(actor.rows[: before["rows"].get(actor.id, len(actor.rows))], dtype=np.int64))
    of_actors = [Period(actor, before, after) for actor in run.actors]
    for number in range(periods):
        for period in of_actors:
            writer.add(period.rows + number * period.growth)
    for actor in run.actors:
        rows = actor.rows[after["rows"].get(actor.id, len(actor.rows)) :]
        writer.add(
            np.array(rows, dtype=np.int64).reshape(-1, len(COLUMNS))
            + (periods - 1) * _growth(rows, before, after)
        )
    writer.close()
    return fixed + periods * a_period + sum(len(actor.rows) for each in planted for actor in each.actors)


class _Segments:
    """Segment files of one run, as the recorder would have cut them."""

    def __init__(self, folder: Path, run: RunRows) -> None:
        self._folder, self._run = folder, run
        self._number = self._frames = self._rows = 0
        self._body = bytearray()
        self._begin()

    def add(self, rows: np.ndarray) -> None:
        for at in range(0, len(rows), PIECE):
            piece = rows[at : at + PIECE]
            self._body += encode_rows(np.ascontiguousarray(piece, dtype="<i8").tobytes())
            self._frames, self._rows = self._frames + 1, self._rows + len(piece)
            if len(self._body) >= SEGMENT_BYTES:
                self._finish(closed=False)
                self._begin()

    def close(self) -> None:
        self._finish(closed=True)

    def _begin(self) -> None:
        self._number += 1
        self._body += encode_header(header_of(self._run, self._number))

    def _finish(self, *, closed: bool) -> None:
        self._body += encode_footer(self._frames, self._rows, closed=closed)
        path = self._folder / f"{self._run.name}-n-1-{self._number:06d}.wtr"
        path.write_bytes(self._body)
        self._body.clear()
        self._frames = self._rows = 0


def _planted(name: str) -> list[RunRows]:
    plant = next((each for _, each, _ in PLANTS if each.__name__ == name), None)
    if plant is None:
        raise SystemExit(f"there is no plant {name!r}; --plant list names them")
    for seed in range(100):
        runs = consistent_trace(seed)
        if plant(runs):
            return runs
    raise AssertionError(f"no consistent trace has a place for {name}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Write a synthetic trace.")
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--queues", type=int, default=16)
    parser.add_argument("--plant", action="append", default=[], metavar="NAME")
    args = parser.parse_args()
    if args.plant == ["list"]:
        print("\n".join(f"{rule:4} {each.__name__}" for rule, each, _ in PLANTS))
        return
    print(f"{write_large(args.folder, args.events, args.seed, args.queues, args.plant):,} rows")


if __name__ == "__main__":
    main()
