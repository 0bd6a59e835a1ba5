"""Publishes on their way into a queue: collected, taken in together, confirmed later (rabbit_amqqueue_process:deliver).

A publish that arrives alone costs as much as fifty that arrive together, so they are collected until there are BATCH
messages or anything else is to be done.  All that are collected at one time go to the disk, or none.

When less is free on the disk than the publishes at hand need, they are refused before they are taken in (DiskRoom).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import TypeAlias

from warrenmq.backing_queue.protocol import BackingQueue
from warrenmq.errors import Blocked
from warrenmq.queue.effects import AskForRoom, Effect, GrantCredit, Refuse, Settle
from warrenmq.queue.expiry_and_limits import ExpiryAndLimits
from warrenmq.queue.index_sync import IndexSync
from warrenmq.queue.messages import Publish, Publisher
from warrenmq.queue.setting import QueueSetting
from warrenmq.queue.unconfirmed import UNANSWERED, Promises, Publication, Unconfirmed
from warrenmq.queue_index.protocol import QueueFiles
from warrenmq.seams.disk import UNLIMITED

BATCH = 64
"""Messages that are taken in at once while mail keeps coming; fewer wait for the empty mailbox."""

LOOK_PER_BYTES = 64 << 20
"""Bytes of free space for each batch of publishes that is taken in without asking for the free space again."""
OVERHEAD = 256
"""Bytes that a message takes beside its body, at most, except for long headers."""
INDEX_ENTRY = 48
"""Bytes of an index entry whose body is elsewhere, at most, in the files of either version."""

_publication = attrgetter("publication")


class DiskRoom:
    """The room on the disk for publishes: free space, less what was taken in and may not be written yet.

    _refusing       publishes were refused the last time
    _unwritten      bytes taken in since the queue owed no confirm, while room is short: they may not be in the files yet
    _looks_saved    batches that may be taken in before the free space is asked for again
    longest         bytes that a file may have, for what is taken in now
    """

    def __init__(
        self, queue: QueueSetting, index: QueueFiles, index_sync: IndexSync, unconfirmed: Unconfirmed
    ) -> None:
        self._disk = queue.disk
        self._index = index
        self._directory = queue.directory
        self._index_sync = index_sync
        self._stores = index_sync.stores
        self._unconfirmed = unconfirmed
        self._log = queue.log
        self._refusing = False
        self._unwritten = self._looks_saved = 0
        self.longest = UNLIMITED

    def takes(self, size: Callable[[], int]) -> bool:
        """True if publishes may be taken in; `size()` is their bytes.

        A store writes later than its queue takes in, so free space alone would let in a burst many times over.  As long as
        the queue owes confirms, what it took in counts as unwritten: some of it twice, which refuses sooner but never later.
        """
        if (longest := self._disk.longest()) != self.longest:
            self.longest = longest
            self._index.look_at_limit()
        is_full = self._index_sync.disk_full
        for store in self._stores:
            is_full = is_full or store.disk_full
        if self._looks_saved and not self._refusing and not is_full:
            self._looks_saved -= 1
            return True
        if not self._unconfirmed:
            self._unwritten = 0
        more = size()
        refusing = is_full or not self._has(self._unwritten + more)
        if not refusing:
            self._unwritten += more
        if refusing is not self._refusing:
            self._refusing = refusing
            if refusing:
                self._log.warning(f"{self.lack}: publishes are refused until there is room")
            else:
                self._log.info("there is room again: publishes are taken")
        return not refusing

    @property
    def lack(self) -> str:
        """The reason of a refusal."""
        return self._index_sync.lack_now

    def _has(self, size: int) -> bool:
        room = self._disk.room(self._directory)
        self._looks_saved = room // LOOK_PER_BYTES
        return room >= size


class PublishBuffer:
    """Publishes that have arrived and are not taken in yet; only `nack_all` may be called from any thread.

    _publishes    in order of arrival; all alike in durable, answered and priority
    _unlike       a publish that is unlike these, and is added once they are taken in
    count         their messages
    _durable      True if they go to the disk
    _answered     True if their publishers wait for a confirm
    _priority     the priority that they share, in a queue that has priorities
    _timed        True if one of them has a time to live
    _behind       stores that grant no credit, with their trace ids: publishers get none either
    _deferred     credit that publishers get when no store is behind any more
    """

    def __init__(self, queue: QueueSetting, vq: BackingQueue, front: ExpiryAndLimits, unconfirmed: Unconfirmed,
                 room: DiskRoom, effects: list[Effect]) -> None:  # fmt: skip
        self._queue = queue.name
        self._durable_queue = queue.durable
        self._vq = vq
        self._front = front
        self._unconfirmed = unconfirmed
        self._room = room
        self._rows = queue.rows
        self._more_credit_after = queue.settings.credit_flow_default_credit[1]
        """Messages that are taken in until their publisher gets more credit."""
        self._effects = effects
        self._behind: dict[str, int] = {}
        self._deferred: list[GrantCredit] = []
        self._publishes: list[Publish] = []
        self._unlike: Publish | None = None
        self.count = 0
        self._durable = self._answered = True
        self._priority = 0
        self._timed = front.ttl is not None

    def limits_changed(self) -> None:
        """The queue has another time to live; called while the buffer is empty."""
        self._timed = self._front.ttl is not None

    def add(self, message: Publish) -> bool:
        """Collect a publish; False if those before it must be taken in first."""
        publication = message.publication
        durable = publication.persistent and self._durable_queue
        answered = message.confirm is not UNANSWERED
        if self._publishes and (durable is not self._durable or answered is not self._answered):
            self._unlike = message
            return False
        if (highest := self._vq.max_priority) is not None:
            priority = min(publication.priority, highest)
            if self._publishes and priority != self._priority:
                self._unlike = message
                return False
            self._priority = priority
        self._durable, self._answered = durable, answered
        if publication.expiration is not None:
            self._timed = True
        self._publishes.append(message)
        self._unlike = None
        self.count += len(publication.bodies)
        return True

    def take_in(self) -> bool:
        """Pass what was collected to the backing queue, or refuse it; returns True if it has to be synced,
        sooner or later.
        """
        if not self._room.takes(self._size):
            full = f"{self._room.lack}, queue {self._queue!r} takes no messages until there is room"
            self._effects.append(AskForRoom())
            self._refuse(self._publishes, full)
            self._publishes = []
            return False
        if self._room.longest < UNLIMITED:
            self._leave_out_what_no_file_holds(self._room.longest)
            if not self._publishes:
                return False
        publishes, durable, answered = self._publishes, self._durable, self._answered
        publications = [*map(_publication, publishes)]
        expiries = None
        if self._timed:
            expiries = self._front.expiries(publications)
            self._timed = self._front.ttl is not None
        seq, in_store = self._vq.publish(publications, persistent=durable, expiries=expiries)
        if (rows := self._rows) is not None:
            write_rows = _rows_of_each if in_store else _rows_of_runs
            write_rows(
                partial(rows.published, answered=answered, taken=self._vq.taken),
                publishes,
                seq,
                in_store,
                durable,
            )
            if expiries is not None:
                rows.expire(seq, publications, expiries)
        unconfirmed, more_credit_after = self._unconfirmed, self._more_credit_after
        at_once: list[Publication] = []
        for message in publishes:
            publication = message.publication
            count = len(publication.bodies)
            if answered:
                owed = (seq, count, publication.first_id, message.confirm)
                # confirmed at once: RabbitMQ's rule for messages that will not survive a restart
                if not durable:
                    if rows is not None:
                        rows.confirmed_at_once(owed)
                    at_once.append(owed)
                elif in_store and isinstance(message.confirm, Promises):
                    # each has a publisher of its own that waits for its body alone
                    for at, promise in enumerate(message.confirm.parts(count), seq):
                        owed = (at, 1, publication.first_id + at - seq, promise)
                        unconfirmed.add(owed, [in_store[at]] if at in in_store else [])
                elif in_store:
                    unconfirmed.add(owed, [in_store[s] for s in range(seq, seq + count) if s in in_store])
                else:
                    unconfirmed.unsynced.append(owed)
            publisher = message.publisher
            publisher.uncredited += count
            if publisher.uncredited >= more_credit_after:
                self._grant(publisher)
            seq += count
        if at_once:
            self._effects.append(Settle(at_once))
        if rows is not None:
            self._vq.tell_paged()
        # Only now: until the answers are owed elsewhere, a crash has to find them here.
        self._publishes, self.count = [], 0
        return durable

    def _grant(self, publisher: Publisher) -> None:
        """Grant credit for what was taken in, in whole steps, now or when no store is behind."""
        credit = publisher.uncredited - publisher.uncredited % self._more_credit_after
        publisher.uncredited -= credit
        (self._deferred if self._behind else self._effects).append(GrantCredit(publisher, credit))

    def _size(self) -> int:
        """Bytes of what was collected, an upper bound: bodies, heads and index entries."""
        return sum(
            sum(map(len, publication.bodies)) + len(publication.bodies) * (len(publication.head) + OVERHEAD)
            for publication in (message.publication for message in self._publishes)
        )

    def _leave_out_what_no_file_holds(self, longest: int) -> None:
        """Refuse what has no room in a file of this length, however empty it is."""
        if self._vq.index.share < INDEX_ENTRY:
            refused, fit, too = self._publishes, [], "too few for its own files"
        elif max(map(_longest_message, self._publishes)) > longest:
            alone = [*chain.from_iterable(publish.one_by_one() for publish in self._publishes)]
            refused = [each for each in alone if _longest_message(each) > longest]
            fit = [each for each in alone if _longest_message(each) <= longest]
            too = "too few for this message"
        else:
            return
        limit = f"the system lets no file grow beyond {longest:,} bytes"
        self._refuse(
            refused, f"{limit}, {too}: queue {self._queue!r} takes it when that limit (ulimit -f) is raised"
        )
        self._publishes = fit

    def _refuse(self, publishes: list[Publish], why: str) -> None:
        """Refuse publishes, as if they had never been sent."""
        for message in publishes:
            self._effects.append(Refuse(message.confirm, Blocked(why)))
            self._effects.append(GrantCredit(message.publisher, len(message.publication.bodies)))
            if self._rows is not None:
                for send in range(message.sent_seq, message.sent_seq + message.sends):
                    self._rows.received(message.sender, send)
            self.count -= len(message.publication.bodies)

    def block(self, store: str, trace_id: int) -> None:
        """A store is behind: publishers get no more credit."""
        if store not in self._behind:
            self._behind[store] = trace_id
            if self._rows is not None:
                self._rows.blocked(trace_id)

    def unblock(self, store: str) -> None:
        """A store has caught up: grant the credit that was held back, unless another store is behind."""
        if store in self._behind:
            trace_id = self._behind.pop(store)
            if self._rows is not None:
                self._rows.unblocked(trace_id)
            if not self._behind:
                self._effects += self._deferred
                self._deferred.clear()

    def nack_all(self, why: str) -> list[tuple[int, int]]:
        """The queue process is dead: nack what was collected, and what was about to be; returns it as (first
        message, how many).
        """
        collected = [*self._publishes]
        if (unlike := self._unlike) is not None and not any(each is unlike for each in collected):
            collected.append(unlike)
        for message in collected:
            message.confirm.nack(why)
        return [
            (message.publication.first_id, len(message.publication.bodies))
            for message in collected
            if message.confirm is not UNANSWERED
        ]


def _longest_message(publish: Publish) -> int:
    """Bytes of its longest message in a store, at most."""
    publication = publish.publication
    return max(map(len, publication.bodies)) + len(publication.head) + OVERHEAD


Tell: TypeAlias = "Callable[[int, int, int, int, int, int, int, bool, bool, int], None]"
"""QueueTrace.published."""


def _rows_of_runs(
    tell: Tell, publishes: list[Publish], seq: int, _in_store: dict[int, bytes], durable: bool
) -> None:
    """Write the rows of publishes: those that one thread sent one after the other share a row."""
    first, count, msg, sender, pseq, sends, t, size = seq, 0, 0, 0, 0, 0, 0, 0
    for message in publishes:
        publication = message.publication
        row = message.sent_seq
        if (
            sends
            and row
            and row == pseq + sends
            and publication.first_id == msg + count
            and message.sender == sender
        ):
            sends += message.sends
        else:
            if sends:
                tell(first, count, msg, sender, pseq, sends, t, durable, False, size)
            first, size, count, msg, sender, pseq, sends = (
                first + count,
                0,
                0,
                publication.first_id,
                message.sender,
                row,
                message.sends,
            )
        bodies = publication.bodies
        count += len(bodies)
        size += len(bodies[0]) if len(bodies) == 1 else sum(map(len, bodies))
        t = message.sent_t
    tell(first, count, msg, sender, pseq, sends, t, durable, False, size)


def _rows_of_each(
    tell: Tell, publishes: list[Publish], seq: int, in_store: dict[int, bytes], durable: bool
) -> None:
    """Write a row for each run of equal placement in each publish; the first row receives its SEND."""
    for message in chain.from_iterable(publish.one_by_one() for publish in publishes):
        publication = message.publication
        end = seq + len(publication.bodies)
        sender, pseq = message.sender, message.sent_seq
        first, stored = seq, seq in in_store
        for each in range(seq, end + 1):
            if each == end or (each in in_store) is not stored:
                msg = publication.first_id + first - seq
                size = 0 if stored else sum(map(len, publication.bodies[first - seq : each - seq]))
                tell(first, each - first, msg, sender, pseq, 1, message.sent_t, durable, stored, size)
                first, stored, sender, pseq = each, not stored, 0, 0
        seq = end
