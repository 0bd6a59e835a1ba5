"""The recorder: collects the rows of all actors of a run in files that survive SIGKILL of the process.

An actor calls the writer of an event (writers.py) with its ActorTrace; the row is in a mapped file when the
call returns.  When the actor's slab is full, its rows become one compressed frame in the run's current
segment file, under the recorder's lock.

Threads.  The writers and `observe` of an ActorTrace belong to its one owner: the thread that runs the actor,
or the application's thread that the ActorTrace was made for.  `close` of an ActorTrace is the owner's last
call.  An actor that was killed may still be running, so only `Recorder.close` closes its ActorTrace; until
then its rows stay in the slab.  All methods of a Recorder may be called from any thread.  `Recorder.close`
comes when the actors have ended; rows written after it are dropped.

Cost of a row, of 0.9 us on a machine where a call of an empty function takes 0.06: the clock 0.08, the check
0.17, struct.pack_into 0.22, Python around them 0.12, and a 2,048th of a frame 0.27, more than a third of it
zlib, which lets other actors run.

A trace never stops its broker: when the disk is full the frame is dropped and counted in `lost`, and the
reader finds the gap in `seq`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import Lock
from typing import Any, TypeVar

from warrenmq import forks
from warrenmq.signals import undisturbed
from warrenmq.trace.block import ROW, encode_meta, encode_rows
from warrenmq.trace.clock import Clock, SteppingClock, SystemClock
from warrenmq.trace.events import SCHEMA_VERSION, Ev
from warrenmq.trace.row_check import row_check
from warrenmq.trace.schema import COLUMNS
from warrenmq.trace.segment import SEGMENT_SUFFIX, Segment, encode_header
from warrenmq.trace.sink import DirectorySink, MemorySink, Sink
from warrenmq.trace.slab import EMPTY_CHUNK, SIZES, SLAB_FORMAT, SLAB_SUFFIX, Slabs

T = TypeVar("T")

SEGMENT_BYTES = 16 << 20
"""A segment file that has reached this is finished: one row of Spark's `binaryFile`."""

_EVENTS = {int(event): event.name for event in Ev}
_MAX_KINDS = 255
TEXTS = 4_096
"""Names of exchanges, keys and bindings that a trace holds; each segment repeats them."""
MARKS = 1_024
"""Names of marks that there is room for when those are used up."""
_QUICKLY = 1_000_000_000
"""A slab that fills within this many ns is followed by one of the next size."""

_ROW_BYTES = ROW.size
_MASK = (1 << 64) - 1
_SIGN = 1 << 63


class Recorder:
    """One run's trace: registers actors and message kinds, and writes their frames."""

    def __init__(
        self,
        target: str | os.PathLike[str] | MemorySink,
        *,
        run: str,
        node: str = "warrenmq",
        pid: int = 0,
        boot: int = 0,
        directory: str = "",
        vhost: str = "",
        machine: str = "",
        follows: str | None = None,
        untraced: bool | None = None,
        clock: Clock | None = None,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        """`run` must be unique in the trace's directory.

        `boot` is the boot number of the data directory (RUN_START), `directory` its id, `vhost` the virtual
        host that is served, `machine` the id of this boot of the machine, `follows` the name of the last run
        before that was traced ("": there was none), `untraced` whether the directory was open without a trace
        since then: by these a reader knows which runs follow each other.

        A MemorySink is for simulation: there each row's t is above that of all rows before it.
        """
        clock = clock or SystemClock()
        if isinstance(target, MemorySink):
            clock = SteppingClock(clock)
        self.now = clock.monotonic_ns
        self.lost = 0
        """Rows dropped because the disk refused them."""
        self._rows_of_ended = 0
        """Rows of actors that have ended."""
        self._sink: Sink = DirectorySink(target) if isinstance(target, (str, os.PathLike)) else target
        self._name = f"{run}-{node}-{pid}"
        self._segment_bytes = segment_bytes
        self._lock = Lock()
        self._traces: dict[int, ActorTrace] = {}
        """Those of living actors, by id."""
        self._last_actor = 0
        """The id given out last."""
        self._kinds: dict[type, int] = {}
        """Message class -> its number; as `_texts`, looked up without the lock."""
        self._texts: dict[str, int] = {}
        self._closed = False
        self._is_lossy = False
        """The disk refused rows: slabs are neither given back nor deleted."""
        self._header = _first_header(
            clock, run=run, node=node, pid=pid, boot=boot, directory=directory, vhost=vhost, machine=machine,
            follows=follows, untraced=untraced,
        )  # fmt: skip
        self._open()
        forks.register(self)

    def actor(self, name: str, kind: str, parent: int = 0) -> ActorTrace:
        """Register one incarnation of an actor; `parent` is the trace id of the actor that started it."""
        with self._lock:
            self._last_actor += 1
            actor = self._last_actor
            entry = [name, kind, parent]
            self._header["actors"][actor] = entry
            self._meta({"actor": [actor, *entry]})
            trace = self._traces[actor] = ActorTrace(self, actor, self._take(SIZES[0]))
        return trace

    def kind(self, message_class: type) -> int:
        """The number of a message class, for SEND and RECV rows; 0 if 255 others have one already."""
        return self._kinds.get(message_class) or self._number(
            "kind", self._kinds, message_class, message_class.__qualname__, _MAX_KINDS
        )

    def text(self, text: str, most: int = TEXTS) -> int:
        """The number of a text, for columns that hold a name; 0 if it is new and `most` others have a number already."""
        if known := self._texts.get(text):
            return known
        shown = text.encode(errors="replace").decode()  # msgpack refuses half of a surrogate pair
        return self._number("text", self._texts, text, shown, most)

    def _number(self, what: str, numbers: dict[T, int], key: T, shown: str, most: int) -> int:
        """The next number for a key that had none before the lock was taken."""
        with self._lock:
            number = numbers.get(key, 0)
            if not number and len(numbers) < most:
                number = len(numbers) + 1
                self._header[f"{what}s"][number] = shown
                self._meta({what: [number, shown]})
                numbers[key] = number
        return number

    def close(self) -> None:
        """Write what the slabs still hold and the footer: a clean end of the trace."""
        for trace in list(self._traces.values()):
            trace.close()
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._finish()

    def after_fork(self) -> None:
        """Stop recording in a forked child (forks.py): the maps are shared with the parent, so no row of the
        child may reach them.
        """
        if isinstance(self._sink, MemorySink):
            return  # its memory is not shared with the parent
        self._lock = Lock()
        self._closed = True
        for trace in self._traces.values():
            trace.detach()
        self._traces.clear()
        self._slabs = Slabs(self._chunks)

    @property
    def rows(self) -> int:
        """The number of rows written so far."""
        with self._lock:
            return self._rows_of_ended + sum(trace.seq for trace in self._traces.values())

    # for ActorTrace

    def store(self, slab: memoryview, used: int) -> None:
        """Move the first `used` bytes of a slab into the segment file, and empty their places."""
        raw = bytes(slab[:used])
        frame = encode_rows(raw)
        rows = used // ROW.size
        with self._lock:
            if not self._append(frame, rows):
                self.lost += rows
                self._lossy()
        # Only now: killed before this line, the rows are in both places, never in none.
        slab[:used] = EMPTY_CHUNK[:used]

    def larger(self, slab: memoryview) -> memoryview:
        """A slab of the next size in exchange for an empty one, if there is room."""
        rows = len(slab) // ROW.size
        if rows == SIZES[-1]:
            return slab
        wanted = SIZES[SIZES.index(rows) + 1]
        with self._lock:
            if self._closed or not self._slabs.can_take(wanted):
                return slab
            try:
                taken = self._slabs.take(wanted)
            except OSError:
                return slab
            self._slabs.give_back(slab)
            return taken

    def release(self, actor: int, slab: memoryview) -> None:
        """The actor ended and its slab is empty."""
        with self._lock:
            if (ended := self._traces.pop(actor, None)) is not None:
                self._rows_of_ended += ended.seq
                if not self._is_lossy:
                    self._slabs.give_back(slab)

    # with the lock held

    def _open(self) -> None:
        # First the file that says what the others hold: killed between the two, it says that there is none.
        self._chunks = self._sink.slabs(self._name + SLAB_SUFFIX, self._header)
        self._segment: Segment | None = self._open_segment()
        self._slabs = Slabs(self._chunks)

    def _finish(self) -> None:
        if self._segment is not None:
            try:
                self._segment.finish(closed=True)
            except OSError:
                self._lossy()
        self._chunks.close(keep=self._is_lossy)

    def _take(self, rows: int) -> memoryview:
        try:
            return self._slabs.take(rows)
        except OSError:
            # A full disk: this actor's rows live in plain memory until they make a frame.
            self._lossy()
            return memoryview(bytearray(EMPTY_CHUNK[: rows * ROW.size]))

    def _lossy(self) -> None:
        """The last rows of any actor may be missing from now on.  The mark in the slab file needs no new
        block on the full disk.
        """
        self._is_lossy = True
        self._chunks.mark_lossy()

    def _open_segment(self) -> Segment:
        number = self._header["n"] + 1
        head = encode_header(self._header | {"n": number})
        segment = Segment(self._sink.segment(f"{self._name}-{number:06d}{SEGMENT_SUFFIX}", head), len(head))
        self._header["n"] = number
        self._chunks.written(number, segment.size, segment.rows)
        return segment

    def _append(self, frame: bytes, rows: int) -> bool:
        """Append to the current file, and begin the next one when that is full; False when the disk refuses."""
        if self._closed:
            return False
        try:
            if self._segment is None:
                self._segment = self._open_segment()
            self._segment.append(frame, rows)
            self._chunks.written(self._header["n"], self._segment.size, self._segment.rows)
        except OSError:
            return False
        if self._segment.size >= self._segment_bytes:
            full, self._segment = self._segment, None
            try:
                full.finish(closed=False)
                self._segment = self._open_segment()
            except OSError:
                pass  # tried again with the next frame
        return True

    def _meta(self, meta: dict[str, Any]) -> None:
        self._append(encode_meta(meta), 0)


def _first_header(clock: Clock, **of_the_run: object) -> dict[str, Any]:
    """The header of a run's files before the first; its number `n` and its tables grow with the run."""
    return {
        "v": SCHEMA_VERSION,
        "lib": "warrenmq",
        **of_the_run,
        "wall_ns": clock.wall_ns(),
        "mono_ns": clock.monotonic_ns(),
        "slab": SLAB_FORMAT,
        "n": 0,
        "columns": list(COLUMNS),
        "events": _EVENTS,
        "actors": {},
        "kinds": {},
        "texts": {},
    }


class ActorTrace:
    """The rows of one incarnation of one actor, as far as they are in its slab.

    Without a lock: only its owner's thread writes.  The writers (writers.py) do that through these fields,
    since a method that a row has to call would cost as much as the row.
    """

    __slots__ = ("_recorder", "_since", "at", "clock", "end", "id", "last_t", "seq", "slab")

    def __init__(self, recorder: Recorder, actor: int, slab: memoryview) -> None:
        self.id = actor
        self.clock = recorder.now
        self.last_t = 0
        """The time (t) of the last row, or of the latest message observed."""
        self.seq = 0
        """The last row's number."""
        self.slab = slab
        self.at = 0
        """The offset of the next row."""
        self.end = len(slab)
        self._recorder: Recorder | None = recorder
        self._since = recorder.now()
        """The time at which the slab was last empty."""

    def write_unsigned(self, at: int, pack_into: Callable[..., None], row: tuple[int, ...]) -> None:
        """Write a row with unsigned 64-bit numbers, which are stored as the same bits; for writers.py."""
        row = tuple(((value + _SIGN) & _MASK) - _SIGN for value in row)
        pack_into(self.slab, at, *row, row_check(row))

    def now(self) -> int:
        """The clock that rows are stamped with, ns."""
        return self.clock()

    def observe(self, t: int) -> None:
        """The actor took a message whose SEND row has this t: its next rows get a later one."""
        if t > self.last_t:  # noqa: PLR1730 - max() costs three times as much, on every message
            self.last_t = t

    def close(self) -> None:
        """The owner's last call: the rows go to the segment file, the slab to another actor."""
        recorder, slab = self._recorder, self.slab
        if recorder is None:
            return
        self._recorder = None
        if self.at:
            recorder.store(slab, self.at)
        recorder.release(self.id, slab)
        self.detach()

    def detach(self) -> None:
        """Discard rows from now on, as a killed actor may still be running."""
        self._recorder = None
        self.slab = memoryview(bytearray(_ROW_BYTES))
        self.at, self.end = 0, _ROW_BYTES

    def full(self) -> None:
        """There is no room for the next row: move the rows to the segment file, and put off what handlers of
        signals would interrupt in it.
        """
        undisturbed(self._empty)

    def _empty(self) -> None:
        if self._recorder is not None:
            self._recorder.store(self.slab, self.at)
            if self.last_t - self._since < _QUICKLY:
                self.slab = self._recorder.larger(self.slab)
            self._since = self.last_t
            self.end = len(self.slab)
        self.at = 0
