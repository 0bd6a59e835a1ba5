"""The rows of every actor, about its life and its mail, and those of supervisors."""

from __future__ import annotations

from warrenmq.trace.schema import (
    ACTOR,
    COUNT,
    MESSAGE_KIND,
    MILLISECONDS,
    ROW,
    SEQ_ID,
    SIZE,
    Event,
    T,
    in_a,
    in_b,
    in_c,
    in_flag,
    in_msg,
    in_peer,
    in_pseq,
)
from warrenmq.trace.words import Ev, Reason

# runtime: every actor


class ActorStart(Event[T], event=Ev.ACTOR_START, says="{actor} started[ (incarnation {incarnation})]"):
    """The actor's init has returned."""

    incarnation: T = in_a(COUNT, "incarnation of this name in this run, from 1; of an actor without a name 1")


class ActorStop(Event[T], event=Ev.ACTOR_STOP, says="{actor} ended[ {reason}]"):
    """The actor's last row."""

    reason: T = in_flag(Reason, "why it ended")


class Send(Event[T], event=Ev.SEND, says="{actor} sent {kind}[ to {receiver}][ with {message_ids}]"):
    """A message was put in a mailbox; that of a publish follows the ROUTED row that is in force."""

    kind: T = in_flag(MESSAGE_KIND, "message kind")
    message: T = in_msg("first message", default=0)
    receiver: T = in_peer(ACTOR, "receiver; 0 = not known yet", default=0)
    size: T = in_pseq(SIZE, "of a publish: bytes of the bodies in it; 0 = not said", default=0)
    first_seq_id: T = in_a(SEQ_ID, "first sequence id or 0", default=0)
    count: T = in_b(COUNT, "messages in it", default=0)
    queues: T = in_c(COUNT, "of a publish to how many queues it was routed; 0 = not said", default=0)


class Recv(Event[T], event=Ev.RECV, says="{actor} received {kind}[ from {sender}]"):
    """A message was taken from the mailbox."""

    kind: T = in_flag(MESSAGE_KIND, "message kind; 0 = not said")
    sender: T = in_peer(ACTOR, "sender")
    send: T = in_pseq(ROW, "its SEND")


class Undelivered(
    Event[T], event=Ev.UNDELIVERED, says="{actor} got {kind}[ of {sender}] back from a dead actor"
):
    """A message met a dead actor and came back to its sender."""

    kind: T = in_flag(MESSAGE_KIND, "message kind")
    send: T = in_pseq(ROW, "its SEND")
    sender: T = in_peer(ACTOR, "sender; 0 = the actor that writes this row", default=0)


# supervisors


class ChildStart(Event[T], event=Ev.CHILD_START, says="{actor} started its child {child}"):
    """A child runs."""

    child: T = in_peer(ACTOR, "child")


class ChildExit(Event[T], event=Ev.CHILD_EXIT, says="{child}, a child of {actor}, ended[ {reason}]"):
    """A child ended."""

    reason: T = in_flag(Reason, "why it ended")
    child: T = in_peer(ACTOR, "child")


class Restart(
    Event[T],
    event=Ev.RESTART,
    says="{actor} starts {child} again: restart {restarts} of at most {intensity} within {period_ms}",
):
    """A child is started again."""

    child: T = in_peer(ACTOR, "the dead child")
    restarts: T = in_a(COUNT, "restarts within the period, this one included")
    intensity: T = in_b(COUNT, "intensity: the most restarts there may be in a period")
    period_ms: T = in_c(MILLISECONDS, "period")


class Escalate(
    Event[T],
    event=Ev.ESCALATE,
    says="{actor} gave up: {restarts} restarts of {child} within {period_ms}, {intensity} are allowed",
):
    """The intensity was exceeded: the supervisor gives up."""

    child: T = in_peer(ACTOR, "the dead child")
    restarts: T = in_a(COUNT, "restarts within the period")
    intensity: T = in_b(COUNT, "intensity: the most restarts there may be in a period")
    period_ms: T = in_c(MILLISECONDS, "period")
