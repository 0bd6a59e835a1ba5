"""The decisions of paging, as functions: when a queue pages, and how much (rabbit_variable_queue, rabbit_memory_monitor).

    queue --ram_duration()--> memory monitor --desired_duration()--> queue: target_ram_count()
                                                                       |  and its own bound: count_within()
                                                                       v
                                           chunk_size(), permitted_beta_count(): alphas to betas, betas to delta

The ram duration of a queue is the time for which its messages in memory would last at its present rates.  A count or a
duration that nothing limits is infinite.

`worth_reading_together` belongs to the other behaviour, which reads ahead; how far ahead is in backing_queue/rates.py.
Source: docs/reference/classic-queue.md#paging and #head-and-tail.
"""

from __future__ import annotations

import math

from warrenmq.backing_queue.rates import Rates

INFINITE = math.inf
IDLE_RATE = 0.01
"""Messages a second below which a flow counts as none."""
SUM_INCREASE_BELOW = 0.95
"""Memory use (of the limit) below which the queues may keep a little more than they have."""
MESSAGE_BYTES = 200
"""Memory that a message takes beside its bytes: its tuple, its number, and its place in a queue."""

TOGETHER_SIZE = 12_000
TOGETHER_COUNT = 10
"""The least number of bodies, of TOGETHER_SIZE bytes at most, that are read from a message store together."""


def ram_duration(messages: int, messages_before: int, acks: int, acks_before: int, rates: Rates) -> float:
    """Seconds for which the messages in memory last; `before` is what there was at the last report.

    | in memory, unacked in memory; before the same | all rates | duration                |
    | --------------------------------------------- | --------- | ----------------------- |
    | any                                           | < 0.01/s  | infinite                |
    | 100, 0; 100, 0                                | 50/s in all | (100 + 100) / (4 * 50) = 1 s |
    | 300, 50; 100, 50                              | 50/s in all | 500 / 200 = 2.5 s       |
    """
    if max(rates.ingress, rates.egress, rates.ack_ingress, rates.ack_egress) < IDLE_RATE:
        return INFINITE
    return (messages_before + messages + acks_before + acks) / (4 * rates.total)


def desired_duration(
    ratio: float, paging_ratio: float, total: float, queues: int, *, disk_alarm: bool
) -> float:
    """The duration that every queue shall come down to; `ratio` is memory used of the limit.

    `total` is the sum of the finite durations that were reported, `queues` how many those are.

    | disk alarm | ratio        | reports | desired                             |
    | ---------- | ------------ | ------- | ----------------------------------- |
    | yes        | any          | any     | infinite: paging would need disk    |
    | no         | infinite     | any     | 0: the limit is 0                   |
    | no         | < paging     | any     | infinite                            |
    | no         | any other    | none    | infinite                            |
    | no         | < 0.95       | some    | ((total + 1) / queues) / ratio      |
    | no         | >= 0.95      | some    | (total / queues) / ratio            |
    """
    if disk_alarm:
        return INFINITE
    if ratio == math.inf:
        return 0.0
    if ratio < paging_ratio or not queues:
        return INFINITE
    if ratio < SUM_INCREASE_BELOW:
        total += 1.0
    return total / queues / ratio


def must_inform(informed: float, reported: float, desired: float, *, disk_alarm: bool) -> bool:
    """True if a queue is sent a new desired duration at once; otherwise it gets it when it next reports.

    | disk alarm | desired, compared with the duration sent last and the one reported last | inform |
    | ---------- | ----------------------------------------------------------------- | ------ |
    | no         | less than both                                                    | yes    |
    | no         | not less than one of them                                         | no     |
    | yes        | more than both: it need not page now                              | yes    |
    | yes        | not more than one of them                                         | no     |
    """
    if disk_alarm:
        return informed < desired and reported < desired
    return informed > desired and reported > desired


def target_ram_count(desired: float, rates_in_all: float) -> float:
    """The number of messages that a queue may have in memory.

    | desired  | rates in all | target   |
    | -------- | ------------ | -------- |
    | infinite | any          | infinite |
    | 2.5 s    | 50/s         | 125      |
    | 2.5 s    | 0.9/s        | 2        |
    | 0        | any          | 0        |
    """
    return INFINITE if desired == INFINITE else math.trunc(desired * rates_in_all)


def count_within(bound: int, count: int, size: int) -> float:
    """The number of messages, of `count` that have `size` bytes in memory, that a queue's own bound in bytes allows.

    RabbitMQ has no such bound: its node has the machine to itself.  An embedded queue shares its process with an
    application, and 0.4 of a large machine's memory is far more than that expects of a queue.

    | bound | count | size   | allowed  |
    | ----- | ----- | ------ | -------- |
    | 1,000 | 10    | 1,000  | infinite |
    | 1,000 | 10    | 2,000  | 5        |
    | 1,000 | 1     | 50,000 | 0        |
    """
    return INFINITE if size <= bound else math.trunc(count * bound / size)


def chunk_size(count: int, permitted: float) -> int:
    """The number by which a limit is exceeded.

    | count | permitted | too many |
    | ----- | --------- | -------- |
    | 10    | infinite  | 0        |
    | 10    | 10        | 0        |
    | 10    | 4         | 6        |
    """
    return 0 if count <= permitted else count - int(permitted)


def permitted_beta_count(ready: int, q1: int, q3: int, q4: int, target: float, segment_entries: int) -> float:
    """The number of messages that may be betas; `ready` is the queue's length, the q's are lengths, too.

    With BD = ready - q1 - q4, the betas and deltas:

    | ready | target   | permitted                                                   |
    | ----- | -------- | ----------------------------------------------------------- |
    | 0     | any      | infinite                                                    |
    | any   | infinite | infinite                                                    |
    | some  | 0        | min(q3, a segment): only what is read next                  |
    | some  | some     | max(a segment, BD - BD² / (BD + target)): comes near target |
    """
    if not ready or target == INFINITE:
        return INFINITE
    if not target:
        return min(q3, segment_entries)
    betas_and_deltas = ready - q1 - q4
    most = betas_and_deltas - betas_and_deltas * betas_and_deltas / (betas_and_deltas + target)
    return max(segment_entries, math.trunc(most))


def worth_reading_together(count: int) -> bool:
    """True if `count` bodies of one message store, each of at most 12,000 bytes, are read along with their entries.

    | how many   | read                                |
    | ---------- | ----------------------------------- |
    | 10 or more | together, now                       |
    | fewer      | one at a time, each when it is sent |
    """
    return count >= TOGETHER_COUNT
