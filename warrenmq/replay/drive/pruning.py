"""What a live replay may forget: states that no row can meet any more.

    machine      key                     it goes when                                       what comes all the same
    mail         4,096 rows of a sender  the sender is past them and no SEND is open        a second receive of a SEND finds
                                                                                            none: still T2
    on_disk      4,096 messages          nothing told is unheard, nothing heard is untold   an empty state is a new one
    ledger       4,096 ids of a queue    all are gone: only that, and whether it was        a message that comes back is still
                                         synced, is kept (some 100 bytes)                   seen to have been settled (C2)
    any by run                           the run has ended and its findings stand           nothing: its rows are all there

What is left besides is what is open: messages in queues and stores, files that exist, and the last words of each actor.
"""

from __future__ import annotations

from array import array

from warrenmq.replay.drive.machines import Key, State
from warrenmq.replay.drive.trace_context import TraceContext
from warrenmq.replay.rules.ledger import Lives
from warrenmq.replay.rules.life import GONE, SIZE, Life
from warrenmq.replay.rules.mail import Bucket
from warrenmq.replay.rules.on_disk import Meeting

_BLOCK = 12
"""Of the mail's keys: seq >> 12."""


def prune(key: Key, state: State, context: TraceContext) -> bool:
    """Whether a state can be forgotten; one that cannot is made as small as it may be."""
    match state:
        case Bucket():
            coverage = context.coverage.get((int(key[0]), int(key[1])))
            is_past = coverage is not None and coverage.last_seq >= (int(key[2]) + 1) << _BLOCK
            return is_past and not state.sent and not state.waiting
        case Meeting():
            return not state.told and not state.heard
        case Lives():
            for who, life in state.lives.items():
                if len(life.states) == SIZE and life.states.count(GONE) == SIZE:
                    _shrink(life, context.actor_summary(who).last_sync)
    return False


def _shrink(life: Life, last_sync: int) -> None:
    """All of its messages are gone: keep that, and which were gone before the last sync."""
    for times in (life.published, life.delivered, life.messages):
        times[:] = array("q", bytes(8 * len(times)))
    for delays in (life.confirm_delays, life.deliver_delays, life.ack_delays):
        del delays[:]
    life.gone_at[:] = array("q", [1 if 0 < seq < last_sync else seq for seq in life.gone_at])
