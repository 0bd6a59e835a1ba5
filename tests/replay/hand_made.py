"""A run whose waits can be counted on the fingers."""

from __future__ import annotations

from tests.support.trace_writer import Actor, RunRows
from warrenmq.trace.events import CREDIT_GRANTED, Ev, Reason

MS = 1_000_000
BROKER, CLIENT, QUEUE, STORE = 1, 2, 3, 4


def hand_made() -> list[RunRows]:
    """A run whose numbers can be counted on the fingers; times in ms, a slice is 10.

    client   SEND 5, 6, 7           BLOCKED 12 .......... 37   SEND 38      alarm 45 ... 65
    queue                           BLOCKED 14 ... 24  PUBLISH 28 (of three)  PUBLISH 41 (of one)
    store    RECV 50, of a sender that is not in the trace
    """
    run = RunRows("made", 1)
    names = {BROKER: ("broker", "broker"), CLIENT: ("client-1", "client"), QUEUE: ("queue:q", "QueueProcess"),
             STORE: ("msg_store_persistent", "MsgStore")}  # fmt: skip
    actors = {number: Actor(number, *named, 0) for number, named in names.items()}
    run.actors = list(actors.values())

    def emit(ms: int, actor: int, event: Ev, flag: int = 0, *, peer: int = 0, pseq: int = 0, a: int = 0, b: int = 0,
             c: int = 0, msg: int = 0) -> None:  # fmt: skip
        its = actors[actor]
        its.last += 1
        its.rows.append([ms * MS, its.last, msg, peer, pseq, a, b, c, actor << 16 | event << 8 | flag])

    emit(1, BROKER, Ev.RUN_START, a=1, b=1, c=1 << 24)
    emit(2, QUEUE, Ev.ACTOR_START, a=1)
    emit(3, STORE, Ev.ACTOR_START, a=1)
    for number, ms in enumerate((5, 6, 7)):
        emit(ms, CLIENT, Ev.SEND, 1, msg=100 + number, peer=QUEUE, b=1)
    emit(12, CLIENT, Ev.CREDIT_BLOCKED, peer=QUEUE)
    emit(14, QUEUE, Ev.CREDIT_BLOCKED, peer=STORE)
    emit(24, QUEUE, Ev.CREDIT_UNBLOCKED, CREDIT_GRANTED, peer=STORE)
    emit(28, QUEUE, Ev.PUBLISH, msg=100, peer=CLIENT, pseq=1, b=3, c=3)
    emit(37, CLIENT, Ev.CREDIT_UNBLOCKED, CREDIT_GRANTED, peer=QUEUE)
    emit(38, CLIENT, Ev.SEND, 1, msg=103, peer=QUEUE, b=1)
    emit(41, QUEUE, Ev.PUBLISH, msg=103, peer=CLIENT, pseq=6, a=3, b=1)
    emit(45, CLIENT, Ev.ALARM_BLOCKED)
    emit(50, STORE, Ev.RECV, 1)
    emit(65, CLIENT, Ev.ALARM_UNBLOCKED)
    emit(70, QUEUE, Ev.ACTOR_STOP, Reason.SHUTDOWN)
    emit(71, STORE, Ev.ACTOR_STOP, Reason.SHUTDOWN)
    emit(72, BROKER, Ev.RUN_END, a=1)
    return [run]
