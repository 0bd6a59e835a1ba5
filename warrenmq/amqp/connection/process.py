"""The process of one connection (rabbit_reader): cuts frames, speaks channel 0, hands the rest to its channels.

phases.py says what is allowed when, and what an error does; throttle.py whether the socket is read; heartbeats are in
heartbeat.py.  Here they are put to work:

    socket ─Received, Disconnected, Writable─► this ─Frames, Writable─► channels
    rabbit_alarm ─ResourceAlert──────────────► this ◄ChannelClosed, ChannelBlocked, exit signals─ channels

A connection is linked to its channels: when it ends, for whatever reason, they end, and what they had not acknowledged goes
back to its queues.  A channel that crashes is closed with 541; its connection and the other channels go on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pamqp.base import Frame as Method
from pamqp.commands import Connection
from pykka import ActorDeadError

from warrenmq.actors.node.alarm import RABBIT_ALARM, Register, ResourceAlert
from warrenmq.amqp.access.auth import refused
from warrenmq.amqp.channel.context import (
    ChannelBlocked,
    ChannelClosed,
    ConnectionContext,
    Writable,
    hard_error,
)
from warrenmq.amqp.connection.blocking import CALLS_ONLY, Blocking
from warrenmq.amqp.connection.channels import Channels
from warrenmq.amqp.connection.handshake import (
    PROTOCOL_HEADER,
    answer_to_header,
    capabilities_of,
    log_in,
    open_vhost,
    tune,
)
from warrenmq.amqp.connection.messages import Disconnected, ForceClose, Received
from warrenmq.amqp.connection.phases import LOOSE, Phase, after_error, check_tuning, judge
from warrenmq.amqp.connection.throttle import FLOW, Notice
from warrenmq.amqp.net.heartbeat import Heartbeater
from warrenmq.amqp.net.transport import Transport
from warrenmq.amqp.node import Node, ServedVhost
from warrenmq.amqp.statistics import ConnectionInfo, Describe
from warrenmq.amqp.wire.codec import decode_method, encode_method, ids, make
from warrenmq.amqp.wire.errors import CONNECTION_FORCED, INTERNAL_ERROR, UNEXPECTED_FRAME, AmqpError
from warrenmq.amqp.wire.frames import HEARTBEAT, METHOD, OVERHEAD, Frame, FrameCutter, check_shape, snippet
from warrenmq.log import Log
from warrenmq.node.alarms import SOURCES
from warrenmq.runtime import Down, Exit, From, Server, Stop
from warrenmq.runtime.reasons import SHUTDOWN, is_normal

FAILED_LOGIN = 0.3
"""Seconds before a refused login is answered."""
DROPPED = 3.0
"""Seconds before a socket is closed without connection.close, or that sent bytes that are not frames."""
_LONGEST_GOODBYE = 30.0
_ALARM_RESTARTS = 0.1
"""Seconds to wait before registering with a new rabbit_alarm."""

log = Log("warrenmq.amqp")


@dataclass(frozen=True, slots=True)
class TimerFired:
    """The message of a timer: call this method."""

    callback: Callable[[], None]


class ConnectionProcess(Server):
    """rabbit_reader; its state is #v1{}.

    _phase       connection_state
    _cutter      callback, recv_len and the buffer
    _blocking    throttle, and what was received while it was blocked
    _held        frames of what was received before, behind the one that blocked it
    _channels    the channels, from connection.open on
    """

    trap_exit = True
    helpable = True

    def init(self, transport: Transport, node: Node) -> None:
        """Wait for the protocol header."""
        self._transport = transport
        self._node = node
        self._phase = Phase.INIT
        self._start = b""
        self._cutter = FrameCutter()
        self._held: list[Frame] = []
        self._blocking = Blocking(transport, self._tell, self._take, self.trace)
        self._heartbeater: Heartbeater | None = None
        self._channels: Channels | None = None
        self._capabilities: dict[str, Any] = {}
        self._user = self._mechanism = ""
        self._client_properties: dict[str, Any] = {}
        self._tuned: Connection.TuneOk | None = None
        self._served: ServedVhost | None = None
        self._connected_at = self.runtime.wall_ns() // 1_000_000
        self._bytes_received = self._serial = 0
        node.statistics.happened("connection_created")
        mine = self.actor_ref
        self.actor_inbox.on_close(lambda _reason: node.statistics.connection_closed(mine))
        self._alarm_monitor = 0
        self._goodbye = DROPPED
        self._gone = False
        """The socket is closed."""
        self._peer = str(transport.peer)
        self._after(node.settings.handshake_timeout / 1000, self._handshake_timeout)
        log.info("accepting AMQP connection", connection=self._peer)

    def handle_cast(self, message: Any) -> None:
        match message:
            case Received(data):
                self._bytes_received += len(data)
                if self._heartbeater is not None:
                    self._heartbeater.received += len(data)
                self._blocking.received(data)
            case Disconnected(reason):
                if self._phase is not Phase.CLOSED:
                    log.info("the client closed the socket", connection=self._peer,
                             phase=self._phase.value, reason=reason)  # fmt: skip
                self._gone = True
                self._end_if_gone()
                # no credit may come
                self._stop_soon()
            case Writable() if self._channels is not None:
                self._channels.writable()
            case ChannelClosed(number, channel) if self._channels is not None:
                self._channels.forget(number, channel)
                self._flow()
            case ChannelBlocked(number, channel, blocked) if self._channels is not None:
                self._channels.set_blocked(number, channel, blocked)
                self._flow()
            case ResourceAlert(source, is_set):
                self._blocking.set(source, is_set)
                self._end_if_gone()
            case ForceClose(explanation):
                if self._phase is not Phase.RUNNING:
                    raise Stop(SHUTDOWN)
                self._fail(AmqpError(CONNECTION_FORCED, explanation))

    def handle_call(self, request: Any, sender: From) -> Any:  # noqa: ARG002  # OTP's signature
        """A look from the management side."""
        if isinstance(request, Describe):
            return self._info()
        raise TypeError(request)

    def handle_info(self, message: Any) -> None:
        match message:
            case TimerFired(callback):
                callback()
            case Exit(ref, reason) if ref is not None and self._channels is not None:
                ended = self._channels.ended(ref)
                if (error := hard_error(reason)) is not None:
                    self._fail(error)
                elif ended is not None and not is_normal(reason):
                    log.error("a channel crashed", connection=self._peer, channel=ended, reason=repr(reason))
                    self._channels.close_lost(ended, AmqpError(INTERNAL_ERROR))
                self._flow()
            case Down(monitor) if monitor == self._alarm_monitor:
                self._after(_ALARM_RESTARTS, self._register)

    def terminate(self, reason: Any) -> None:  # noqa: ARG002
        """Channels follow by their links, exclusive queues because they watch their owner."""
        self._transport.close()

    # -- frames

    def _take(self, data: bytes) -> None:
        if self._cutter.error is not None:
            self._transport.handled(len(data))
            return
        if self._phase is Phase.INIT:
            rest = self._take_header(data)
            if rest is None:
                return
            data = rest
        own = 0
        frames, self._held = [*self._held, *self._cutter.feed(data)], []
        for number, frame in enumerate(frames, 1):
            own += self._handle(frame)
            if frame.type != METHOD and self._blocking.blocked:
                self._held = frames[number:]  # at once, so a message whose body follows is not taken
                break
        if self._channels is not None:
            self._channels.flush()
        self._transport.handled(own)
        if self._cutter.error is not None:
            self._broken(self._cutter.error, len(data))

    def _handle(self, frame: Frame) -> int:
        """Handle one frame; returns the bytes of it that are done with (a channel's frames are handled later)."""
        try:
            if frame.channel == 0 or self._channels is None or self._phase is not Phase.RUNNING:
                self._handle_own(frame)
            else:
                check_shape(frame)
                self._channels.add(frame)
                if frame.type != METHOD:
                    self._blocking.content_received()
                return 0
        except AmqpError as error:
            self._fail(error)
        return len(frame.payload) + OVERHEAD

    def _handle_own(self, frame: Frame) -> None:
        if self._phase in {Phase.CLOSING, Phase.CLOSED} and (frame.channel or frame.type != METHOD):
            return
        check_shape(frame)
        if frame.channel:
            raise AmqpError(UNEXPECTED_FRAME, f"type {frame.type}, {snippet(frame.payload)}")
        if frame.type == HEARTBEAT:
            return
        if self._channels is not None:
            self._channels.flush()
        method = decode_method(frame.payload)
        try:
            if judge(self._phase, method):
                self._methods[type(method)](self, method)
        except AmqpError as error:
            raise error.of(ids(method)) from None

    def _broken(self, error: AmqpError, size: int) -> None:
        """Close after bytes that are not frames; what follows is ignored (rabbit_reader:fatal_frame_error)."""
        # some of it twice, which only lets more of what follows in, to be ignored
        self._transport.handled(size)
        if self._phase is not Phase.CLOSED:
            self._fail(error)
        self._goodbye = DROPPED
        self._stop_soon()

    # -- the handshake

    def _take_header(self, data: bytes) -> bytes | None:
        """Take the protocol header; returns the bytes behind it, None until it is complete."""
        self._start += data
        if len(self._start) < len(PROTOCOL_HEADER):
            return None
        header, rest = self._start[: len(PROTOCOL_HEADER)], self._start[len(PROTOCOL_HEADER) :]
        self._transport.handled(len(header))
        start = answer_to_header(header, self._node)
        if start is None:
            self._transport.write(PROTOCOL_HEADER)
            log.warning("the client speaks another protocol", connection=self._peer, header=repr(header))
            raise Stop(SHUTDOWN)
        self._phase = Phase.STARTING
        self._send(start)
        return rest

    def _start_ok(self, method: Connection.StartOk) -> None:
        self._capabilities = capabilities_of(method)
        self._blocking.calls_only = self._node.trusted and self._capabilities.get(CALLS_ONLY) is True
        self._client_properties = dict(method.client_properties)
        self._mechanism = str(method.mechanism)
        self._user, problem = log_in(method, self._node, self._transport.peer)
        self._node.statistics.happened(f"auth_attempts_{'failed' if problem else 'succeeded'}")
        if not problem:
            self._phase = Phase.TUNING
            self._send(tune(self._node))
            return
        log.error("login refused", connection=self._peer, mechanism=method.mechanism, reason=problem)
        self._phase = Phase.SECURING
        error = refused(method.mechanism)
        self._after(FAILED_LOGIN, lambda: self._fail(error))

    def _tune_ok(self, method: Connection.TuneOk) -> None:
        check_tuning(method, self._node.settings)
        self._phase = Phase.OPENING
        self._tuned = method
        self._cutter.frame_max = method.frame_max
        self._goodbye = min(method.heartbeat or _LONGEST_GOODBYE, _LONGEST_GOODBYE)
        if method.heartbeat:
            self._heartbeater = Heartbeater(method.heartbeat, self._transport, self._after, self._silent)
            self._blocking.heartbeater = self._heartbeater

    def _open(self, method: Connection.Open) -> None:
        served, user = open_vhost(method.virtual_host, self._user, self._node)
        assert self._tuned is not None
        self._served = served
        context = ConnectionContext(served.broker, user, self._tuned.frame_max, self._capabilities,
                                    self._transport, self.actor_ref, self._peer, statistics=self._node.statistics)  # fmt: skip
        self._serial = self._node.statistics.connection_opened(
            self.actor_ref,
            self._user,
            served.broker.inside.vhost.name,
            lambda: (self._bytes_received, self._transport.written),
        )
        self._channels = Channels(self, served.channel_sup, context, self._tuned.channel_max)
        self._phase = Phase.RUNNING
        self._send(make(Connection.OpenOk))
        self._register()
        log.info("user authenticated and granted access", connection=self._peer, user=self._user,
                 vhost=method.virtual_host)  # fmt: skip

    def _handshake_timeout(self) -> None:
        if self._phase not in {Phase.RUNNING, *LOOSE}:
            log.warning("handshake timeout", connection=self._peer, phase=self._phase.value)
            raise Stop(SHUTDOWN)

    # -- while it runs

    def _close(self, _method: Connection.Close) -> None:
        if self._phase is Phase.RUNNING:
            self._phase = Phase.CLOSING
            self._end_channels()
            self._begin_close()
        self._send(make(Connection.CloseOk))

    def _close_ok(self, _method: Connection.CloseOk) -> None:
        self._stop_now()

    def _update_secret(self, _method: Connection.UpdateSecret) -> None:
        """Answer update-secret-ok and change nothing: passwords do not expire, as with RabbitMQ's internal users."""
        self._send(make(Connection.UpdateSecretOk))

    _methods: dict[type[Method], Callable[[Any, Any], None]] = {  # noqa: RUF012  # a table, never changed
        Connection.StartOk: _start_ok,
        Connection.TuneOk: _tune_ok,
        Connection.Open: _open,
        Connection.Close: _close,
        Connection.CloseOk: _close_ok,
        Connection.UpdateSecret: _update_secret,
    }

    def _silent(self) -> None:
        if self._phase is not Phase.CLOSED:
            timeout = 0 if self._tuned is None else self._tuned.heartbeat
            log.error("missed heartbeats from client", connection=self._peer, timeout=timeout)
        raise Stop(SHUTDOWN)

    def _info(self) -> ConnectionInfo:
        tuned, served = self._tuned, self._served
        return ConnectionInfo(
            name=self._peer, peer=self._transport.peer, user=self._user, mechanism=self._mechanism,
            state="blocked" if self._blocking.blocked else self._phase.value,
            vhost="" if served is None else served.broker.inside.vhost.name, client_properties=self._client_properties,
            channel_max=0 if tuned is None else tuned.channel_max, frame_max=0 if tuned is None else tuned.frame_max,
            heartbeat=0 if tuned is None else tuned.heartbeat, connected_at=self._connected_at,
            channels=() if self._channels is None else self._channels.refs(), bytes_received=self._bytes_received,
            bytes_sent=self._transport.written, serial=self._serial,
        )  # fmt: skip

    # -- being held up

    def _register(self) -> None:
        """Register with rabbit_alarm, and again with its successor after a restart."""
        if self._phase is not Phase.RUNNING or self._served is None:
            return
        try:
            alarm = self._served.broker.runtime.whereis(RABBIT_ALARM)
            active = [each.source for each in self.call(alarm, Register(self.actor_ref))]
            self._alarm_monitor = self.monitor(alarm)
        except ActorDeadError:
            self._after(_ALARM_RESTARTS, self._register)
            return
        self._blocking.set_all(SOURCES, active)

    def _flow(self) -> None:
        if self._channels is not None:
            self._blocking.set(FLOW, bool(self._channels.blocked))
            self._end_if_gone()

    def _tell(self, notice: Notice, reason: str) -> None:
        if self._capabilities.get("connection.blocked") is True:
            self._send(
                make(Connection.Blocked, reason=reason) if notice == "blocked" else make(Connection.Unblocked)
            )

    # -- the end

    def _fail(self, error: AmqpError) -> None:
        """rabbit_reader:handle_exception."""
        does = after_error(self._phase, error.code)
        if does == "ignore":
            return
        # that the owner of a directory closes is no error of the processes that share it: one of them goes on in its place
        say = log.info if self._node.trusted and error.code == CONNECTION_FORCED else log.error
        say("error on AMQP connection", connection=self._peer, user=self._user, phase=self._phase.value,
                  error=error.reply_text)  # fmt: skip
        if does != "drop":
            self._end_channels()
            if does == "close" or self._capabilities.get("authentication_failure_close") is True:
                self._send(make(Connection.Close, reply_code=error.code, reply_text=error.reply_text,
                                class_id=error.class_id, method_id=error.method_id))  # fmt: skip
        self._begin_close()

    def _end_if_gone(self) -> None:
        """End when all is done that the client sent before its socket was closed, but for what an alarm holds up."""
        if self._gone and not self._blocking.waits_for_credit:
            # the exit signals of the links would overtake frames that channels have not handled
            if self._channels is not None:
                self._channels.close_all()
            raise Stop(SHUTDOWN)

    def _end_channels(self) -> None:
        if self._channels is not None:
            self._channels.close_all()
            self._channels.delete_exclusive_queues()

    def _begin_close(self) -> None:
        """Wait for close-ok or the end of the socket, for a limited time."""
        self._phase = Phase.CLOSED
        self._blocking.give_up()
        self._stop_soon()

    def _stop_soon(self) -> None:
        self._after(self._goodbye, self._stop_now)

    @staticmethod
    def _stop_now() -> None:
        raise Stop(SHUTDOWN)

    def _after(self, seconds: float, callback: Callable[[], None]) -> None:
        self.send_after(seconds, TimerFired(callback))

    def _send(self, method: Method) -> None:
        self._transport.write(encode_method(0, method))
