"""The interface of a backing queue to its stores, its figures, its trace rows of paging, and how messages
come back into a run.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from warrenmq.message.queue_message import SEQ_ID, Message
from warrenmq.message.runs import runs
from warrenmq.queue_index.protocol import Index
from warrenmq.queue_index.record import body_size
from warrenmq.trace.events import Ev, PageIn, PageOut, State
from warrenmq.trace.recorder import ActorTrace
from warrenmq.trace.writers import writer

_WRITERS = {Ev.PAGE_OUT: writer(PageOut), Ev.PAGE_IN: writer(PageIn)}


class Wanted(Enum):
    """The part of a message that is read when it is taken from the index to leave the queue."""

    BODIES = auto()
    """Their bodies, which are read from the stores along with them where that is worth it."""
    RECORDS = auto()
    """Their records, whole: what is read with them and does not leave is delivered later."""
    HEADERS = auto()
    """The headers of their records: everything leaves."""


class StoreClient(Protocol):
    """A message store, as a backing queue uses it (MsgStoreClient)."""

    name: str
    store_trace_id: int
    blocked: bool
    """The store grants no credit: send no more than must be."""
    collected: bool
    """Writes or removes wait to be sent."""

    def write(self, msg_id: bytes, stored: bytes) -> None: ...
    def remove(self, msg_ids: list[bytes]) -> None: ...
    def read(self, msg_id: bytes) -> bytes | None: ...
    def read_many(self, msg_ids: Sequence[bytes]) -> dict[bytes, bytes]: ...


@dataclass(frozen=True, slots=True)
class QueueMemory:
    """Counts of a queue's ready messages by state (trace/words.py, State), and their memory."""

    alpha: int
    """Body and position in memory."""
    beta: int
    """Body on disk, position in memory."""
    gamma: int
    """Body on disk, position in memory and on disk."""
    delta: int
    """Messages that are on disk only: the tail."""
    ram_msg_count: int
    """Messages whose body is in memory; those with a small body are, even if they are betas or gammas."""
    ram_bytes: int
    """Bytes of these, and of unacked messages."""
    target_ram_count: float
    """The most that the queue should keep in memory; infinite = no limit."""

    @property
    def in_memory(self) -> int:
        """Ready messages that are in memory, with or without their body."""
        return self.alpha + self.beta + self.gamma


class PagingRows:
    """Changes of messages' states, kept until their rows are written: those of a publish come after its own row."""

    def __init__(self, trace: ActorTrace | None) -> None:
        self._trace = trace
        self.base = 0
        """Added to sequence ids in rows: of a queue with priorities each counts its own from 0."""
        self.unwritten: list[tuple[Ev, State, State, list[tuple[int, int]]]] = []
        """Empty without a trace."""

    def note(self, event: Ev, seqs: Iterable[int], state: State, before: State) -> None:
        """Record that messages, in ascending order, changed from one state to another."""
        if self._trace is not None:
            self.unwritten.append((event, state, before, list(runs(seqs))))

    def tell(self) -> None:
        """Write the rows."""
        if self.unwritten and self._trace is not None:
            for event, state, before, all_runs in self.unwritten:
                for first, count in all_runs:
                    _WRITERS[event](self._trace, state, self.base + first, count, before)
            self.unwritten.clear()


def merge(queue: deque[Message], back: list[Message]) -> None:
    """Put messages back into a queue; both ascend, and so does the result."""
    if not queue or back[-1][SEQ_ID] < queue[0][SEQ_ID]:
        queue.extendleft(reversed(back))
        return
    merged = [*heapq.merge(queue, back)]
    queue.clear()
    queue.extend(merged)


def body_bytes(index: Index) -> int:
    """Bytes of the bodies of all messages that an index holds, read segment by segment, without the bodies."""
    low, high = index.bounds()
    step = index.segment_entry_count
    return sum(
        body_size(record)
        for start in range(low, high, step)
        for _, record, _ in index.read_headers(start, start + step)
    )
