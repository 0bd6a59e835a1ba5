"""The channels of one connection by number, and the routing of frames to them (rabbit_reader:process_frame).

Frames of one read are handed on together, one cast a channel.  A number is free again when the client's channel.close has
been seen by the channel (ChannelClosed) or its channel.close-ok here, whichever of the two ends this channel.

RabbitMQ closes the connection when one of its channels crashes.  Here only the channel closes: a crash is a defect of ours
and has left nothing behind, for the queues take back what a dead channel held, and the bytes that it was handed and did
not deal with are known (Intake).
"""

from __future__ import annotations

from typing import Any

from pamqp.commands import Channel
from pykka import ActorDeadError, ActorRef, Timeout

from warrenmq.actors.vhost.messages import DeleteQueue
from warrenmq.amqp.channel.context import (
    ConnectionClosing,
    ConnectionContext,
    Intake,
    StopConsuming,
    Writable,
)
from warrenmq.amqp.wire.codec import decode_method, encode_method, ids, make, start_of
from warrenmq.amqp.wire.errors import CHANNEL_ERROR, NOT_ALLOWED, RESOURCE_ERROR, UNEXPECTED_FRAME, AmqpError
from warrenmq.amqp.wire.frames import METHOD, OVERHEAD, Frame
from warrenmq.errors import Error, ResourceError
from warrenmq.log import Log
from warrenmq.runtime import Server
from warrenmq.supervisors import start_child
from warrenmq.supervisors.broker_sup import VHOST_PROCESS

_OPEN, _CLOSE, _CLOSE_OK = (start_of(kind) for kind in (Channel.Open, Channel.Close, Channel.CloseOk))
FRAMES_PER_CAST = 128
"""Frames in one cast to a channel: between two casts it checks whether the client reads its answers."""
CLOSE_TIMEOUT = 60.0
"""Seconds that a channel has to give back what is unacked when its connection closes."""

log = Log("warrenmq.amqp")


class Channels:
    """The channels of one connection process."""

    def __init__(
        self, owner: Server, sup: ActorRef[Any], context: ConnectionContext, channel_max: int
    ) -> None:
        self._owner = owner
        self._sup = sup
        self._context = context
        self._channel_max = channel_max
        self._refs: dict[int, ActorRef[Any]] = {}
        self._intakes: dict[ActorRef[Any], tuple[int, Intake]] = {}
        """The number and the Intake of each channel that has not ended, also of those whose numbers are free again."""
        self._crashed: dict[int, None] = {}
        """Numbers whose channel.close has been sent: what comes is ignored until channel.close-ok."""
        self._batches: dict[int, list[Frame]] = {}
        self.blocked: dict[int, None] = {}
        """Numbers of channels without credit."""

    def __len__(self) -> int:
        return len(self._refs)

    def refs(self) -> tuple[ActorRef[Any], ...]:
        """The processes of the open channels."""
        return tuple(self._refs.values())

    def add(self, frame: Frame) -> None:
        """Collect a frame for its channel, which channel.open starts; AmqpError."""
        number = frame.channel
        if number in self._crashed:
            self._ignore(frame)
            return
        if number not in self._refs and not self._start(frame):
            return
        self._batches.setdefault(number, []).append(frame)
        if frame.type == METHOD and frame.payload.startswith(_CLOSE_OK):
            self.flush()
            self.forget(number, self._refs[number])

    def flush(self) -> None:
        """Hand on what was collected."""
        for number, all_frames in self._batches.items():
            for at in range(0, len(all_frames), FRAMES_PER_CAST):
                frames = all_frames[at : at + FRAMES_PER_CAST]
                size = sum(len(each.payload) for each in frames) + OVERHEAD * len(frames)
                ref = self._refs[number]
                self._owner.cast(ref, self._intakes[ref][1].give(frames, size))
        self._batches.clear()

    def _ignore(self, frame: Frame) -> None:
        if frame.type == METHOD and frame.payload.startswith(_CLOSE_OK):
            del self._crashed[frame.channel]
        elif frame.type == METHOD and frame.payload.startswith(_CLOSE):
            self._context.transport.write(encode_method(frame.channel, make(Channel.CloseOk)))
        self._context.transport.handled(len(frame.payload) + OVERHEAD)

    def _start(self, frame: Frame) -> bool:
        """Start a channel; False when the system has no thread for it (the client gets channel.close)."""
        if frame.type != METHOD:
            raise AmqpError(UNEXPECTED_FRAME, "expected method frame, got non method frame instead")
        if not frame.payload.startswith(_OPEN):
            raise AmqpError(CHANNEL_ERROR, "expected 'channel.open'", *ids(decode_method(frame.payload)))
        taken = len(self._refs) + len(self._crashed)
        if taken >= self._channel_max > 0:
            why = f"number of channels opened ({taken}) has reached the negotiated channel_max ({self._channel_max})"
            raise AmqpError(NOT_ALLOWED, why)
        most = self._context.user.max_channels()
        if most is not None and self._context.statistics.channels_of(self._context.user.name) >= most:
            why = (
                f"number of channels opened for user '{self._context.user.name}' has reached the maximum allowed user "
                f"limit of ({most})"
            )
            raise AmqpError(NOT_ALLOWED, why)
        try:
            ref = start_child(self._owner, self._sup, frame.channel, self._owner.actor_ref, self._context)
        except ResourceError as error:
            log.warning(
                "channel refused", connection=self._context.name, channel=frame.channel, reason=str(error)
            )
            self._context.transport.handled(len(frame.payload) + OVERHEAD)
            self.close_lost(frame.channel, AmqpError(RESOURCE_ERROR, str(error)))
            return False
        self._refs[frame.channel] = ref
        self._intakes[ref] = frame.channel, Intake(self._context.transport)
        self._owner.link(ref)
        return True

    def set_blocked(self, number: int, ref: ActorRef[Any], blocked: bool) -> None:
        """Note whether a channel is without credit.

        A channel that has ended is not: its exit signal overtakes what it sent before, and nothing would unblock its number.
        """
        if self._refs.get(number) is not ref:
            return
        if blocked:
            self.blocked[number] = None
        else:
            self.blocked.pop(number, None)

    def forget(self, number: int, ref: ActorRef[Any]) -> None:
        """Free the number of a closed channel."""
        if self._refs.get(number) is ref:
            del self._refs[number]
            self.blocked.pop(number, None)

    def ended(self, ref: ActorRef[Any]) -> int | None:
        """Handle the end of a linked actor; returns the number of the channel that it was, if that was open."""
        if ref not in self._intakes:
            return None
        number, intake = self._intakes.pop(ref)
        intake.abandon()
        if self._refs.get(number) is not ref:
            return None
        for frame in self._batches.pop(number, ()):
            self._context.transport.handled(len(frame.payload) + OVERHEAD)
        self.forget(number, ref)
        return number

    def close_lost(self, number: int, error: AmqpError) -> None:
        """Send channel.close for a channel that crashed or could not be started; its number is free after close-ok."""
        self._crashed[number] = None
        close = make(
            Channel.Close, reply_code=error.code, reply_text=error.reply_text, class_id=0, method_id=0
        )
        self._context.transport.write(encode_method(number, close))

    def writable(self) -> None:
        """The socket can be written to again."""
        for ref in self._refs.values():
            self._owner.cast(ref, Writable())

    def close_all(self) -> None:
        """Stop all channels; each gives back its unacked messages first.

        Requests that the client sent before are answered.  Deliveries, confirms and cancels that are on their
        way are not sent: a queue that goes with its last consumer would cancel those of other channels, which
        py-amqp raises out of `close`.
        """
        self._context.closing.begun = True
        self.flush()
        for request in (
            (StopConsuming(), ConnectionClosing()) if len(self._refs) > 1 else (ConnectionClosing(),)
        ):
            for ref in list(self._intakes):
                try:
                    self._owner.call(ref, request, timeout=CLOSE_TIMEOUT)
                except ActorDeadError:  # it has ended already
                    continue
                except Timeout:
                    log.warning(
                        "a channel did not close in time and is given up", connection=self._context.name
                    )
                    self._context.broker.runtime.kill(ref)
        self._refs.clear()
        self.blocked.clear()

    def delete_exclusive_queues(self) -> None:
        """Delete the connection's exclusive queues before close-ok is sent (rabbit_queue_collector).

        When the connection dies without closing, the virtual host deletes them, as it monitors their owner.
        """
        vhost, me = self._context.broker.inside.vhost, self._owner.actor_ref
        for name in [name for name, owner in list(vhost.owners.items()) if owner is me]:
            try:
                vhost_process = self._context.broker.runtime.whereis(VHOST_PROCESS)
                self._owner.call(
                    vhost_process, DeleteQueue(name, if_unused=False, if_empty=False, owner=me), CLOSE_TIMEOUT
                )
            except (ActorDeadError, Timeout):
                return  # it is being restarted, and will find the owner dead
            except Error as error:
                log.warning("an exclusive queue was not deleted", queue=name, error=str(error))
