"""consumer_timeout for the embedded face: deliveries that an application holds for too long (rabbit_channel's tick).

RabbitMQ's channel looks at its oldest unacked delivery every channel_tick_interval; one that is older than
consumer_timeout closes the channel with 406, its messages go back to their queues and its consumers are gone.  The
embedded face has no channels, so here the queue looks, at each of its embedded consumers: an overdue one is cancelled, all
that it holds goes back, and its iterator raises PreconditionFailed.  A message that was fetched with `get` and not settled
goes back alone.  (Consumers of AMQP clients are their channel's business.)

Unlike in RabbitMQ the time counts from when the application was handed the message.  A message that waits in
this process for the application to ask for it is not late: a consumer with a prefetch of 250 that works on
each message for ten seconds is alive.

No delivery is stamped with a time: at each look the queue notes which tags had been handed out by then.
"""

from __future__ import annotations

from collections.abc import Iterable

from warrenmq.errors import PreconditionFailed
from warrenmq.queue.channel_record import Consumer
from warrenmq.queue.effects import Effect, StartTimer
from warrenmq.queue.messages import AckDeadline, CheckAcks


def handed_out_before(marks: list[tuple[int, int]], moment: int) -> int:
    """The largest tag that had been handed out at `moment` (ns); drops the marks before it, which are not needed any more.

    `marks` are pairs (when, largest tag handed out by then), oldest first.

    | marks                   | moment | tag | left                    |
    | ----------------------- | ------ | --- | ----------------------- |
    | none                    | 5      | 0   | none                    |
    | (10, 3)                 | 5      | 0   | (10, 3)                 |
    | (10, 3) (20, 7)         | 10     | 3   | (10, 3) (20, 7)         |
    | (10, 3) (20, 7) (30, 9) | 25     | 7   | (20, 7) (30, 9)         |
    """
    while len(marks) > 1 and marks[1][0] <= moment:
        del marks[0]
    return marks[0][1] if marks and marks[0][0] <= moment else 0


def too_late(queue: str, deadline: AckDeadline) -> PreconditionFailed:
    """The error message for the application."""
    timeout = round(deadline.seconds * 1000)
    msg = (
        f"the consumer of queue {queue!r} was cancelled and its unacked messages went back to the queue, because a delivery "
        f"was not acked within consumer_timeout ({timeout:,} ms); consume again, and ack sooner or raise consumer_timeout"
    )
    return PreconditionFailed(
        msg, reply_text=f"delivery acknowledgement timed out. Timeout value used: {timeout} ms"
    )


class AckTimeouts:
    """The periodic check of one queue's embedded consumers, while they hold unacked deliveries.

    armed    a CheckAcks is on its way
    """

    def __init__(self, effects: list[Effect]) -> None:
        self._effects = effects
        self.armed = False

    def arm(self, deadline: AckDeadline) -> None:
        """A consumer with a deadline holds unacked messages: start the timer of the next check."""
        if not self.armed:
            self.armed = True
            self._effects.append(StartTimer(min(deadline.look_every, deadline.seconds / 2), CheckAcks()))

    def look(self, consumers: Iterable[Consumer], now: int) -> list[tuple[Consumer, list[int]]]:
        """Handle CheckAcks at `now` (ns): returns the consumers with overdue deliveries, each with their tags."""
        self.armed = False
        found = []
        for consumer in consumers:
            deadline = consumer.ack_deadline
            if deadline is None or not consumer.unacked:
                consumer.marks.clear()
                continue
            late_up_to = handed_out_before(consumer.marks, now - round(deadline.seconds * 1e9))
            late = [tag for tag in consumer.unacked if tag <= late_up_to] if late_up_to else []
            if late:
                found.append((consumer, late))
            if len(late) < len(consumer.unacked):
                handed_out = (
                    consumer.next_tag - 1 if deadline.holder is None else deadline.holder.handed_out()
                )
                consumer.marks.append((now, handed_out))
                self.arm(deadline)
        return found
