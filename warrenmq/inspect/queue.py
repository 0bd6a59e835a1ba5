"""One queue's folder: which messages its index has, in the order in which they would be delivered.

An interrupted conversion from version 1 to 2 leaves files of both; what version 2 has already is not taken twice.

A message is delivered as redelivered
    after a clean stop      if its sequence id is below the saved next_deliver_seq_id (4.3: redeliver_seq_id);
                            up to 3.9, whose terms have neither, if the index says that it was delivered
    after anything else     always

Source: rabbit_queue_index, rabbit_classic_queue_index_v2, rabbit_variable_queue;
docs/reference/classic-queue.md#start-and-recovery, #recovery-of-version-2 and #delivery-marks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from warrenmq.directory.recovery_terms import FILE_NAME as TERMS
from warrenmq.inspect.entries import Entry
from warrenmq.inspect.index_v1 import IndexV1
from warrenmq.inspect.index_v2 import IndexV2
from warrenmq.inspect.layout import QueueFolder
from warrenmq.inspect.reading import Findings
from warrenmq.queue_index.v1.journal import FILE_NAME as JOURNAL
from warrenmq.queue_index.v1.segment import EXTENSION as SEGMENT
from warrenmq.queue_index.v2 import qs


class QueueIndex:
    """Reads a queue's index as often as it is asked to; nothing is kept but what the last reading found odd."""

    def __init__(
        self,
        findings: Findings,
        queue: QueueFolder,
        entry_count: int,
        terms: dict[str, Any] | None,
        *,
        ours: bool,
    ) -> None:
        self.queue = queue
        self._ours = ours
        self.terms = terms
        """The recovery terms that the queue wrote at a clean stop; None after a crash, or if they are not believed."""
        self.was_stopped = TERMS in findings.names(queue.path)
        """True if the queue was stopped in order, even if files have changed since."""
        self._findings = findings
        self._entry_count = entry_count
        self._delivered: set[int] = set()

    def entries(self) -> Iterator[Entry]:
        """Every message that is not acked, by ascending sequence id."""
        persistent = 0
        for entry in self._entries():
            persistent += entry.persistent
            yield entry
        counted = (self.terms or {}).get("persistent_count")
        if isinstance(counted, int) and counted != persistent:
            reason = f"when it was stopped it had {counted} persistent messages, its index has {persistent}"
            self._findings.note(self.queue.path, 0, reason)

    def _entries(self) -> Iterator[Entry]:
        index = IndexV2(self._findings, self.queue.path)
        # a crash leaves such files of a segment that was begun or deleted, of which a start of ours says no more
        for number in index.orphans if self.was_stopped or not self._ours else ():
            reason = (
                "there is no index file with its number: its messages cannot be told from acknowledged ones"
            )
            self._findings.note(f"{self.queue.path}/{number}{qs.EXTENSION}", 0, reason)
        seen: set[int] = set()
        names = self._findings.names(self.queue.path)
        converting = JOURNAL in names or any(name.endswith(SEGMENT) for name in names)
        for number in index.numbers:
            found, refused = index.entries(number)
            for entry in found:
                if converting:
                    seen.add(entry.seq_id)
                yield entry if refused is None or entry.salvaged else entry._replace(salvaged=refused)
        if converting:
            yield from (entry for entry in self._version_1() if entry.seq_id not in seen)

    def _version_1(self) -> Iterator[Entry]:
        killed = self._ours and not self.was_stopped
        index = IndexV1(self._findings, self.queue.path, self._entry_count, may_be_killed=killed)
        journal_broken = min((each.offset for each in index.journal.damage), default=None)
        refused = None
        for segment in index.segments():
            if segment.damage:
                refused = f"RabbitMQ does not start a queue whose {segment.number}{SEGMENT} is damaged"
            self._delivered = segment.delivered
            for entry in segment.entries:
                why = refused
                if (
                    why is None
                    and journal_broken is not None
                    and entry.file == JOURNAL
                    and entry.offset > journal_broken
                ):
                    why = f"it lies behind damaged bytes of {JOURNAL}, which RabbitMQ reads no further than them"
                yield entry if why is None else entry._replace(salvaged=why)

    def redelivered(self, entry: Entry) -> bool:
        """Asked while its entry is the last one that `entries` gave."""
        if self.terms is None:
            return True
        below = self.terms.get("next_deliver_seq_id", self.terms.get("redeliver_seq_id"))
        if not isinstance(below, int):
            return entry.seq_id in self._delivered
        counts = self.terms.get("delivery_count")
        return entry.seq_id < below or (isinstance(counts, dict) and entry.seq_id in counts)
