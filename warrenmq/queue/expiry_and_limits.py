"""The front of a queue, where messages are fetched, expire, and are dropped from a queue that is too long.

    publish         messages left after delivery: drop-head down to the limits, then expired ones
    fetch           expired messages are dropped first
    requeue         as publish, but before consumers are asked
    DropExpired     the timer: the head's time to live is over

A message expires only at the front: behind one that has not expired it waits.  With priorities the front is
that of the highest one that has messages.  Expiry is a point in (wall clock) time, which is stored with the
message, so it goes on while the broker is down.  While a vhost is being recovered nothing is dropped: dead
letters need their bindings (VhostRecovered).

Source: rabbit_amqqueue_process (fetch, requeue_and_run, maybe_drop_head, drop_expired_msgs);
docs/reference/classic-queue.md#arguments-and-limits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice

from warrenmq.backing_queue.protocol import BackingQueue
from warrenmq.message.queue_message import Fetched, Publication, expiry_of
from warrenmq.queue.arguments import QueueArguments
from warrenmq.queue.drops import MOST_DROPPED_AT_ONCE, QueueDrops
from warrenmq.queue.effects import Effect, StartTimer
from warrenmq.queue.index_sync import IndexSync
from warrenmq.queue.limits import Limits, expired, expiries, fresh, sizes_of, surplus, timer_delay
from warrenmq.queue.messages import DropExpired
from warrenmq.queue.setting import QueueSetting
from warrenmq.queue.x_death import EXPIRED, MAXLEN


class ExpiryAndLimits:
    """Drops expired messages, and those beyond x-max-length, at a queue's front.

    active        True if a message may have to be dropped; in other queues nothing here is called
    may_expire    True if a message may have an expiry
    ttl           x-message-ttl
    _arrived      arrival time of the messages not yet offered to consumers (microseconds since 1970)
    _index_sync   has what cannot be read for now tried again
    is_up         the vhost is recovered: dead letters find their bindings
    _timer        the expiry that the running DropExpired timer is for; None = no timer runs
    """

    def __init__(self, queue: QueueSetting, vq: BackingQueue, drops: QueueDrops, index_sync: IndexSync,
                 effects: list[Effect]) -> None:  # fmt: skip
        self._vq = vq
        self._drops = drops
        self._index_sync = index_sync
        self._wall_ns = queue.wall_ns
        self._effects = effects
        self.ttl: int | None = None
        self._limits = Limits(None, None)
        self._always = False
        self._read(queue.arguments)
        self.may_expire = queue.found_expiring
        self._arrived: int | None = None
        self._timer: int | None = None
        self.is_up = queue.is_up
        self.active = self._always or self.may_expire

    def set_limits(self, arguments: QueueArguments) -> None:
        """Go by other arguments from now on; `trim` follows."""
        self._read(arguments)
        self.active = self._always or self.may_expire

    def _read(self, arguments: QueueArguments) -> None:
        self.ttl = arguments.message_ttl
        drops_head = arguments.overflow == "drop-head"
        self._limits = (
            Limits(arguments.max_length, arguments.max_length_bytes) if drops_head else Limits(None, None)
        )
        self._always = self.ttl is not None or self._limits != (None, None)
        if arguments.max_length_bytes is not None and self._vq.ready_bytes is None:
            self._vq.count_bytes()

    # -- out

    def fetch(self, most: int, *, ack_required: bool) -> list[Fetched]:
        """Take up to `most` messages from the front, fewer if one among them has expired; drops expired ones at the front."""
        if self.may_expire and self.is_up:
            # a consumer may take a message that lives 0 ms
            now = self._now() if self._arrived is None else self._arrived - 1
            self._drop_expired(now)
            most = fresh(islice(self._vq.front(), most), now)
            if not most:
                return []
        return self._vq.fetch(most, ack_required=ack_required)

    def peek(self, most: int) -> list[Fetched]:
        """The first `most` messages, which stay where they are; drops expired ones at the front."""
        if self.active:
            self.trim()
        return self._vq.peek(most)

    def ready_behind(self) -> int:
        """Ready messages after a fetch, without those at the front that have expired by now."""
        if self.may_expire and self.is_up:
            self._as_far_as_readable(self._drop_expired)
        return self._vq.ready

    # -- in

    def expiries(self, publications: Sequence[Publication]) -> list[int]:
        """The expiry of messages that arrive now, one for each publication."""
        now = self._arrived = self._now()
        found = expiries(self.ttl, [publication.expiration for publication in publications], now)
        if any(found):
            self.may_expire = self.active = True
        return found

    def trim(self) -> None:
        """Drop expired messages and those beyond the limits, and start the timer of the next expiry; call it
        after delivery.
        """
        self._arrived = None
        if self.is_up:
            self._as_far_as_readable(self._trim)

    def _as_far_as_readable(self, drop: Callable[[int], object]) -> None:
        """Drop messages now; what has to be read first, and cannot be, stays until it can be delivered."""
        try:
            drop(self._now())
        except OSError as error:
            self._index_sync.deliveries_wait(error)

    def _trim(self, now: int) -> None:
        vq = self._vq
        self._drop_expired(now)
        while too_many := self._surplus():
            front = islice(vq.front(), MOST_DROPPED_AT_ONCE)
            # as one message at a time would go: an expired one at the front does not count towards the limit
            self._drops.drop_head(
                min(too_many, fresh(front, now) if self.may_expire else MOST_DROPPED_AT_ONCE), MAXLEN
            )
            self._drop_expired(now)
        if not self.may_expire:
            return
        if head := vq.front():
            self._ensure_timer(expiry_of(head[0]), now)
        elif not vq.unacked:
            self.may_expire = False
            self.active = self._always

    def timer_came(self) -> None:
        """DropExpired came."""
        self._timer = None
        self.trim()

    def go_ahead(self) -> None:
        """The vhost is up."""
        self.is_up = True
        self.trim()

    @property
    def will_expire(self) -> bool:
        """True if the first message has an expiry, or one may that is not acked and would be the first after a stop."""
        if not self.may_expire:
            return False
        head = self._vq.front()
        return self._vq.unacked > 0 or bool(head and expiry_of(head[0]))

    def _surplus(self) -> int:
        vq = self._vq
        if self._limits == (None, None) or not vq.ready:
            return 0
        sizes = () if vq.ready_bytes is None else sizes_of(vq.front())
        return surplus(self._limits, vq.ready, vq.ready_bytes or 0, sizes)

    def _drop_expired(self, now: int) -> None:
        while self.may_expire and (count := expired(islice(self._vq.front(), MOST_DROPPED_AT_ONCE), now)):
            self._drops.drop_head(count, EXPIRED, now)

    def _ensure_timer(self, expiry: int, now: int) -> None:
        delay = timer_delay(expiry, now, self._timer)
        if delay is not None:
            self._effects.append(StartTimer(delay / 1_000, DropExpired()))
            self._timer = expiry

    def _now(self) -> int:
        """Microseconds since 1970."""
        return self._wall_ns() // 1_000
