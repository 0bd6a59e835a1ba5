"""The order of turns: consumers with room, by priority, round robin in each (priority_queue in rabbit_queue_consumers).

One message a turn: a consumer that had one goes to the back of its round.  A lower priority has a turn only when no consumer above has
room.  A consumer without room leaves the round for its channel's `blocked`, and later joins at the back.

====================================  ==============================
messages 0 to 5, and consumers        dealt
====================================  ==============================
a and b, room enough                  a 0 2 4, b 1 3 5
a with room for 1, b                  a 0, b 1 2 3 4 5
a of priority 1 with room for 2, b    a 0 1, b 2 3 4 5
none                                  nothing
====================================  ==============================
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from warrenmq.queue.channel_record import Consumer


class ConsumerTurns:
    """The rounds of one queue; each consumer in them had room when it was last checked."""

    def __init__(self) -> None:
        self._rounds: dict[int, deque[Consumer]] = {}
        """By priority, the highest first."""

    def add(self, consumer: Consumer) -> None:
        """Add a consumer to the back of its round."""
        if consumer.priority not in self._rounds:
            self._rounds[consumer.priority] = deque()
            self._rounds = dict(sorted(self._rounds.items(), reverse=True))
        self._rounds[consumer.priority].append(consumer)

    def remove(self, consumer: Consumer) -> None:
        """Remove a consumer from its round, or from its channel's `blocked`."""
        round_ = self._rounds.get(consumer.priority, ())
        if consumer in round_:
            self._rounds[consumer.priority].remove(consumer)
        elif consumer in consumer.channel.blocked:
            consumer.channel.blocked.remove(consumer)
        if not round_:
            self._rounds.pop(consumer.priority, None)

    def deal(self, count: int) -> list[tuple[Consumer, int]]:
        """Claim the next `count` messages for consumers: (consumer, how many in a row), in the order of the queue."""
        dealt: list[tuple[Consumer, int]] = []
        for round_ in self._rounds.values():
            while count and round_:
                consumer = round_.popleft()
                claimed = consumer.claim(1 if round_ else count)
                if claimed:
                    dealt.append((consumer, claimed))
                    count -= claimed
                    round_.append(consumer)
                else:
                    consumer.channel.blocked.append(consumer)
        return dealt

    def unblock(self, consumers: list[Consumer]) -> list[Consumer]:
        """Add the consumers that have room again to their rounds; returns the others."""
        without = []
        for consumer in consumers:
            if consumer.credit(1) > 0:
                self.add(consumer)
            else:
                without.append(consumer)
        return without
