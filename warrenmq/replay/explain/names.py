"""Names for the numbers in a row: what a flag means depends on the event beside it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from warrenmq.trace import events as e
from warrenmq.trace.events import Decision, Ev, Reason, Trigger

_MESSAGE_KINDS = (Ev.SEND, Ev.RECV, Ev.UNDELIVERED)

_ENUMS: dict[Ev, type[IntEnum]] = {
    Ev.QI_WRITE: Trigger, Ev.QI_SYNC: Trigger, Ev.FILE_WRITE: Trigger, Ev.FILE_SYNC: Trigger,
    Ev.STORE_WRITE: Decision, Ev.STORE_REMOVE: Decision,
    Ev.ACTOR_STOP: Reason, Ev.CHILD_EXIT: Reason,
}  # fmt: skip

_BITS: dict[Ev, dict[int, str]] = {
    Ev.PUBLISH: {e.PERSISTENT: "PERSISTENT", e.WANTS_CONFIRM: "WANTS_CONFIRM", e.IN_STORE: "IN_STORE"},
    Ev.DELIVER: {e.REDELIVERED: "REDELIVERED", e.NO_ACK: "NO_ACK", e.GET: "GET"},
    Ev.CONSUMER_ADDED: {e.NO_ACK: "NO_ACK", e.EXCLUSIVE: "EXCLUSIVE", e.LIMITED: "LIMITED"},
}

_RECOVERY = {e.CLEAN: "CLEAN", e.DIRTY: "DIRTY"}
_STORED = {e.WRITTEN: "WRITTEN", e.IGNORED: "IGNORED"}
_STATES: dict[int, str] = {state: state.name for state in e.State}
_ALARMS = {e.ALARM_MEMORY: "MEMORY", e.ALARM_DISK: "DISK"}
_OVERFLOWS = {
    e.OVERFLOW_DROP_HEAD: "DROP_HEAD",
    e.OVERFLOW_REJECT: "REJECT",
    e.OVERFLOW_REJECT_DLX: "REJECT_DLX",
}
_VALUES: dict[Ev, dict[int, str]] = {
    Ev.CONFIRM: {e.CONFIRM_DURABLE: "DURABLE", e.CONFIRM_TRANSIENT: "TRANSIENT", e.CONFIRM_NACK: "NACK"},
    Ev.DROP: {
        e.DROP_REJECTED: "REJECTED",
        e.DROP_PURGED: "PURGED",
        e.DROP_DELETED: "DELETED",
        e.DROP_LOST: "LOST",
        e.DROP_EXPIRED: "EXPIRED",
        e.DROP_MAXLEN: "MAXLEN",
        e.DROP_REJECTED | e.DEAD_LETTERED: "REJECTED, DEAD_LETTERED",
        e.DROP_EXPIRED | e.DEAD_LETTERED: "EXPIRED, DEAD_LETTERED",
        e.DROP_MAXLEN | e.DEAD_LETTERED: "MAXLEN, DEAD_LETTERED",
    },
    Ev.ACK: {e.MULTIPLE: "MULTIPLE"},
    Ev.REQUEUE: {e.MULTIPLE: "MULTIPLE", e.RETURNED: "RETURNED"},
    Ev.CONSUMER_GONE: {
        e.CONSUMER_CANCELLED: "CANCELLED",
        e.CHANNEL_ENDED: "CHANNEL_ENDED",
        e.CONSUMER_LAPSED: "LAPSED",
    },
    Ev.QUEUE_LIMITS: _OVERFLOWS
    | {flag | e.SINGLE_ACTIVE: f"{name}, SINGLE_ACTIVE" for flag, name in _OVERFLOWS.items()},
    Ev.CHANNEL_LIMIT: {e.OF_CHANNEL: "OF_CHANNEL", e.OF_CONSUMERS_TO_COME: "OF_CONSUMERS_TO_COME"},
    Ev.QUEUE_RECOVERED: _RECOVERY,
    Ev.STORE_RECOVERED: _RECOVERY,
    Ev.STORE_CONFIRM: _STORED,
    Ev.ON_DISK: _STORED,
    Ev.READ: {e.FROM_CACHE: "FROM_CACHE", e.DIRECT: "DIRECT", e.BY_SERVER: "BY_SERVER"},
    Ev.PAGE_OUT: _STATES,
    Ev.PAGE_IN: _STATES,
    Ev.ALARM_SET: _ALARMS,
    Ev.ALARM_CLEAR: _ALARMS,
    Ev.CREDIT_UNBLOCKED: {
        e.CREDIT_GRANTED: "GRANTED",
        e.CREDIT_PEER_DOWN: "PEER_DOWN",
        e.CREDIT_GAVE_UP: "GAVE_UP",
    },
    Ev.DEFER: {e.DEFER_READ: "READ", e.DEFER_REMOVE: "REMOVE"},
}


def flag_names(kinds: Mapping[int, str]) -> dict[tuple[int, int], str]:
    """(event, flag) -> name, for every pair that has one; `kinds` are the run's message kinds."""
    found = {(int(event), kind): name for event in _MESSAGE_KINDS for kind, name in kinds.items()}
    found |= {(int(event), int(each)): each.name for event, enum in _ENUMS.items() for each in enum}
    found |= {(int(event), flag): name for event, values in _VALUES.items() for flag, name in values.items()}
    for event, bits in _BITS.items():
        for flag in range(1, sum(bits) + 1):
            if not flag & ~sum(bits):
                found[int(event), flag] = "|".join(name for bit, name in bits.items() if flag & bit)
    return found
