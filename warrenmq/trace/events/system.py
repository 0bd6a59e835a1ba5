"""The rows of alarms and flow control, of the broker itself, and marks."""

from __future__ import annotations

from warrenmq.trace.schema import (
    ACTOR,
    COUNT,
    SIZE,
    TEXT,
    YES_NO,
    Event,
    T,
    in_a,
    in_b,
    in_c,
    in_flag,
    in_peer,
    in_pseq,
)
from warrenmq.trace.words import Alarm, CreditEnd, Ev, Profile

# alarms and flow control


class AlarmSet(
    Event[T],
    event=Ev.ALARM_SET,
    says="{actor} blocks publishers: {alarm} is short ({measured}, limit {limit})",
):
    """Publishers are blocked."""

    alarm: T = in_flag(Alarm, "what runs short")
    measured: T = in_a(SIZE, "bytes of memory in use, or free on the disk")
    limit: T = in_b(SIZE, "limit")


class AlarmClear(
    Event[T], event=Ev.ALARM_CLEAR, says="{actor} has enough {alarm} again ({measured}, limit {limit})"
):
    """Publishers go on, if the other alarm is not set."""

    alarm: T = in_flag(Alarm, "what ran short")
    measured: T = in_a(SIZE, "bytes of memory in use, or free on the disk")
    limit: T = in_b(SIZE, "limit")


class AlarmBlocked(Event[T], event=Ev.ALARM_BLOCKED, says="{actor} waits for the alarms to clear"):
    """A publisher (thread, coroutine or connection) waits until no alarm is set."""


class AlarmUnblocked(
    Event[T], event=Ev.ALARM_UNBLOCKED, says="{actor} waits no longer for the alarms to clear"
):
    """A publisher that an alarm had blocked goes on, or has given up."""


class CreditBlocked(Event[T], event=Ev.CREDIT_BLOCKED, says="{actor} waits for credit from {granter}"):
    """The actor has no credit left towards a peer, and waits: a thread stands still, a channel's connection
    is not read, a queue grants its publishers nothing.
    """

    granter: T = in_peer(ACTOR, "the peer that grants credit")


class CreditUnblocked(
    Event[T], event=Ev.CREDIT_UNBLOCKED, says="{actor} waits no longer for credit from {granter}[, {reason}]"
):
    """The actor no longer waits for that peer's credit."""

    reason: T = in_flag(CreditEnd, "why")
    granter: T = in_peer(ACTOR, "the peer that grants credit")


# the broker's own rows (actor kind "broker")


class RunStart(
    Event[T],
    event=Ev.RUN_START,
    says="{actor} opened its data directory for boot {boot}[ with the defaults of {profile}]",
):
    """A broker opened the data directory."""

    profile: T = in_flag(Profile, "the profile of its settings; 0 = not said")
    write_buffer: T = in_pseq(SIZE, "msg_store_write_buffer, 0 = not said")
    boot: T = in_a(COUNT, "boot number of the directory")
    fsync: T = in_b(YES_NO, "1 = fsync, 0 = os", bits=1)
    entries_v1: T = in_b(COUNT, "entries of an index segment of version 1, 0 = not said", shift=1, bits=15)
    entries_v2: T = in_b(COUNT, "entries of an index segment of version 2, 0 = not said", shift=16, bits=21)
    embed_below: T = in_b(
        SIZE, "smaller bodies are embedded in the index (where `entries_v1` is said)", shift=37, bits=21
    )
    file_size_limit: T = in_c(SIZE, "msg_store_file_size_limit")


class RunEnd(Event[T], event=Ev.RUN_END, says="{actor} closed its data directory after boot {boot}"):
    """A clean end of the run."""

    boot: T = in_a(COUNT, "boot number")


# marks


class Mark(Event[T], event=Ev.MARK, says="{actor} marks: {text}"):
    """A named place in the run, set by an application (`Broker.mark`), a test, or a lesson."""

    text: T = in_a(TEXT, "the name; 0 = one of more names than a trace holds")
