"""The client side of one AMQP connection to the owner of the directory: one thread reads, any thread writes.

    write(), any thread ──► kernel, while it takes everything at once
                        └─► what is pending ──► the thread "warrenmq-attached" ──► kernel
    kernel ──► the thread ──frames──► channels, in its thread

Guarantees.  Bytes are sent in the order of the calls of `write`, which never waits; `wait_for_room` is for
who may.  The end is told once: every channel gets the reason, then `on_end` is called.  Nothing here takes a
lock while it calls a channel.  The handler of a signal may raise between any two calls in the main thread,
and leaves the stream and the counts of it whole: what belongs together has no call in between.

After a fork a child's copy is closed without a word to the owner (`abandon`).
"""

from __future__ import annotations

import os
import select
import socket
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count, islice
from time import monotonic, sleep
from typing import Any, Protocol

from pamqp.base import Frame as Method
from pamqp.commands import Connection

from warrenmq.amqp.access.auth import EXTERNAL
from warrenmq.amqp.channel.message import PLAIN
from warrenmq.amqp.connection.blocking import CALLS_ONLY
from warrenmq.amqp.connection.handshake import PROTOCOL_HEADER
from warrenmq.amqp.net import local_socket
from warrenmq.amqp.wire.codec import decode_method, encode_method, make
from warrenmq.amqp.wire.errors import ERRORS, AmqpError
from warrenmq.amqp.wire.frames import METHOD, Frame, FrameCutter
from warrenmq.errors import BrokerClosed, Error, ResourceError
from warrenmq.log import Log
from warrenmq.runtime.shortage import keep_on, no_thread
from warrenmq.runtime.thread_event import News
from warrenmq.runtime.thread_start import start_thread
from warrenmq.shared.errors import LinkLost, NobodyServes, OwnerSilent, anew, error_of
from warrenmq.shared.patience import at_most, check

log = Log("warrenmq.shared")

HIGH = 4 << 20
"""Bytes that wait to be sent above which a publisher waits."""
_READ = 1 << 18
_PARTS = 64
"""Writes that one call of the kernel sends together."""
_LARGE = 1 << 16
"""Bytes of a write that is worth a try while others are pending: the connection's thread may wait for Python's lock."""
_HANDSHAKE = 30.0
"""Seconds that the owner has for each answer of the handshake."""
_AGAIN = 0.01
"""Seconds between two tries to connect to an owner that has too many connections to accept."""
GOODBYE = 5.0
"""Seconds that the owner has to answer connection.close."""
_NO_MEMORY = LinkLost("there was no memory for what the owner sent")
_CAPABILITIES = {
    "publisher_confirms": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    ERRORS: True,
}


class Receiver(Protocol):
    """The callbacks of a connection to its channels; all but `sync` are called in the connection's thread."""

    number: int
    """Set by `ClientConnection.add`."""
    written: int
    """The number of `write`s for it that were not refused, and so have been sent or will be."""

    def frames(self, frames: list[Frame]) -> None:
        """Handle frames of this channel, from one read."""

    def lost(self, error: Error) -> None:
        """Called when the connection is lost."""

    def blocked(self) -> None:
        """The owner reads no more from this connection for now."""

    def sync(self) -> None:
        """Wait until the owner has processed what was sent before; in any thread but the connection's."""


class ClientConnection:
    """The client side of one AMQP connection; `open` comes first."""

    def __init__(self, directory: str, vhost: str, on_end: Callable[[ClientConnection], None],
                 on_blocked: Callable[[str | None], None], *, publishes: bool = False) -> None:  # fmt: skip
        """The callbacks are called in the connection's thread; `on_blocked` gets the reason of
        connection.blocked (an alarm), and None on connection.unblocked.
        """
        self._directory, self._vhost = directory, vhost
        self._publishes = publishes
        self._on_end = on_end
        self._on_blocked = on_blocked
        self.channels: dict[int, Receiver] = {}
        self._numbers = count(1)
        self._free: list[int] = []
        """Numbers of channels that were closed, to be used again."""
        self._lock = threading.RLock()
        """An RLock, as a finalizer that cancels a consumer may run at any point and writes, too."""
        self._pending: deque[bytes | memoryview] = deque()
        """Bytes that the kernel has not taken yet."""
        self._sent: list[int] = []
        """Bytes that the kernel took and `_pending` still has."""
        self._sending = False
        """True while a thread hands `_pending` to the kernel; the others only add to it."""
        self.blocked = False
        """True while the owner does not read from here, because of an alarm."""
        self._waiting = 0
        """Bytes in `_pending`."""
        self._room = News()
        """Told when `has_room` may have become true, and at the end."""
        self._ended: Error | None = None
        """Why it ended; None until then."""
        self._untold: list[Receiver] = []
        """Its channels at its end that were not told yet."""
        self._closing: Error | None = None
        """Why it is closed by this side; None until then."""
        self._runs = False
        """The thread runs, which closes the descriptors at its end."""
        self._paused = False
        """True while its only consumer has too much unread: nothing is read from the socket."""
        self._cutter = FrameCutter()
        self._early: list[Frame] = []
        """Frames that came with the handshake's last one."""
        self._thread = threading.Thread(target=self._run, name="warrenmq-attached", daemon=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._wake_read, self._wake_write = socket.socketpair()
        except BaseException:
            self._socket.close()
            raise

    def open(self) -> None:
        """Connect.  LinkLost when nobody serves the socket, AccessRefused and others when the owner refuses."""
        try:
            for each in (self._wake_read, self._wake_write):
                each.setblocking(False)
            try:
                self._connect()
                self._shake_hands(self._vhost)
            except TimeoutError as why:
                check()
                raise OwnerSilent(
                    f"the owner of the directory has not answered for {_HANDSHAKE:.0f} s; is it stopped?"
                ) from why
            self._socket.setblocking(False)
            try:
                start_thread(self._thread)
            except (RuntimeError, MemoryError) as why:
                raise no_thread(why, self._thread.name) from why
        except BaseException:
            self._closing = LinkLost("it was never open")
            with self._lock:
                if not self._runs:
                    self.abandon()
            self._end(self._closing)
            raise

    # -- the handshake, in the thread that connects; TimeoutError when the owner does not answer in time

    def _connect(self) -> None:
        end = monotonic() + at_most(_HANDSHAKE)
        self._socket.settimeout(_HANDSHAKE)
        while True:
            try:
                return local_socket.connect(self._socket, self._directory)
            except (FileNotFoundError, ConnectionRefusedError) as why:
                raise NobodyServes(f"nobody serves {self._directory}: {why.strerror}") from why
            except BlockingIOError as why:  # more connect than the owner accepts
                if monotonic() >= end:
                    raise TimeoutError from why
                sleep(_AGAIN)

    def _shake_hands(self, vhost: str) -> None:
        try:
            self._socket.sendall(PROTOCOL_HEADER)
            self._expect(Connection.Start)
            capabilities = _CAPABILITIES | {CALLS_ONLY: not self._publishes, PLAIN: self._publishes}
            properties = {"product": "warrenmq", "capabilities": capabilities}
            self._say(Connection.StartOk, client_properties=properties, mechanism=EXTERNAL,
                      response=f"process {os.getpid()}".encode(), locale="en_US")  # fmt: skip
            tune = self._expect(Connection.Tune)
            self.frame_max: int = tune.frame_max
            self.channel_max: int = tune.channel_max or 0xFFFF
            self._say(Connection.TuneOk, channel_max=tune.channel_max, frame_max=tune.frame_max, heartbeat=0)
            self._cutter.frame_max = tune.frame_max
            self._say(Connection.Open, virtual_host=vhost)
            self._expect(Connection.OpenOk)
        except TimeoutError:
            raise
        except OSError as why:
            raise LinkLost(f"the owner went away: {why}") from why

    def _say(self, kind: type[Method], **values: Any) -> None:
        self._socket.sendall(encode_method(0, make(kind, **values)))

    def _expect(self, kind: type[Method]) -> Any:
        while not self._early:
            self._socket.settimeout(max(at_most(_HANDSHAKE), _AGAIN))
            data = self._socket.recv(_READ)
            if not data:
                raise LinkLost("the owner closed the connection")
            self._early += self._cutter.feed(data)
            if self._cutter.error is not None:
                raise BrokerClosed(f"the owner sends what is no AMQP: {self._cutter.error}")
        method = decode_method(self._early.pop(0).payload)
        if isinstance(method, Connection.Close):
            raise error_of(method.reply_code, method.reply_text)
        if not isinstance(method, kind):
            raise BrokerClosed(
                f"the owner answers {method.name} where {kind.name} is due; is it another release?"
            )
        return method

    # -- for everyone

    @property
    def ended(self) -> Error | None:
        """The error that ended the connection; None while it is open."""
        return self._ended

    def add(self, channel: Receiver) -> None:
        """Register a channel and assign its number; ResourceError when all are taken."""
        with self._lock:
            if self._ended is not None:
                raise anew(self._ended)
            number = self._free.pop() if self._free else next(self._numbers)
            if number > self.channel_max:
                raise ResourceError(
                    f"all {self.channel_max} channels of this process are in use; cancel consumers, settle deliveries, "
                    "or raise the owner's channel_max"
                )
            channel.number = number
            self.channels[number] = channel

    def remove(self, number: int) -> None:
        """Release the number of a channel that is closed on both sides."""
        with self._lock:
            if self.channels.pop(number, None) is not None:
                self._free.append(number)

    def write(self, data: bytes, channel: Receiver | None = None) -> None:
        """Send bytes after those already queued, without waiting; counts them for their channel.

        LinkLost, and nothing is sent, once the connection is gone.
        """
        size = len(data)
        with self._lock:
            if self._ended is not None:
                raise anew(self._ended)
            others = bool(self._pending)
            try:
                if channel is not None:
                    channel.written += 1
                self._waiting += size
                self._pending.append(data)
                if self._sending or (others and size < _LARGE):
                    return  # sent by the connection's thread, or by the thread that is in `write` now
                with suppress(OSError):  # the connection's thread sees the end of file and tells all channels
                    self._send_pending()
            except BaseException:  # of a signal's handler
                self._wake()
                raise
            if self._pending and not others:
                self._wake()

    def has_room(self) -> bool:
        """True if a publisher need not wait."""
        return self._waiting <= HIGH or self._ended is not None

    def wait_for_room(self, timeout: float | None = None) -> bool:
        """Wait until `has_room`, or the end; False after `timeout` seconds."""
        return self._room.wait_for(self.has_room, timeout)

    def wait_for_end(self, timeout: float) -> bool:
        """Wait until the connection is gone; False after `timeout` seconds."""
        return self._room.wait_for(lambda: self._ended is not None, timeout)

    def pause_reading(self) -> None:
        """Stop reading from the socket; further frames wait in the owner."""
        self._paused = True

    def resume_reading(self) -> None:
        """Resume reading from the socket."""
        with self._lock:
            if self._paused:
                self._paused = False
                self._wake()

    def is_own_thread(self) -> bool:
        """True in the thread that reads from here."""
        return threading.current_thread() is self._thread

    def close_soon(self, why: Error | None = None) -> None:
        """Close the connection without waiting; its channels get the reason."""
        if self._closing is not None:
            return
        self._closing = why or BrokerClosed("the connection was closed")
        self.resume_reading()
        with suppress(Error):
            self.write(encode_method(0, make(Connection.Close, reply_code=200, reply_text="Goodbye")))

    def close(self) -> None:
        """Close the connection; its channels' `lost` is called.  Waits for the connection's thread, unless called in it."""
        self.close_soon()
        others = not self.is_own_thread()
        if others and not self.blocked:
            self._thread.join(at_most(GOODBYE))
        assert self._closing is not None
        self._end(self._closing)
        if others:
            self._thread.join(at_most(GOODBYE))

    def abandon(self) -> None:
        """Close the descriptors of this process alone; for a forked child, one that was never open, and the
        thread at its end: a descriptor that is closed while it is used may be another file's by then.
        """
        self._ended = self._ended or LinkLost("it belongs to another process")
        for each in (self._socket, self._wake_read, self._wake_write):
            each.close()

    # -- in the thread

    def _wake(self) -> None:
        """Wake the thread to look at what there is to do; the caller holds the lock."""
        if self._ended is None:
            with suppress(OSError):
                self._wake_write.send(b"\0")

    def _run(self) -> None:
        with self._lock:
            if self._ended is not None:
                return
            self._runs = True
        try:
            self._dispatch(self._early)
            self._loop()
        except OSError as why:
            self._end(LinkLost(f"the owner went away: {why}"))
        except Error as why:
            self._end(why)
        except AmqpError as why:
            self._end(BrokerClosed(f"the owner sends what makes no sense: {why}"))
        except MemoryError:
            self._end(_NO_MEMORY)
        except BaseException as why:  # a defect; end the connection, so that no caller waits for ever
            log.exception("an attached process's connection failed")
            self._end(BrokerClosed(f"the connection to the owner failed: {why!r}"))
        finally:
            keep_on(self._finish)

    def _finish(self) -> bool:
        """Do what there was no memory for at the end of the thread."""
        self._end(_NO_MEMORY)
        with self._lock:
            self.abandon()
        return False

    def _loop(self) -> None:
        poll = select.poll()
        descriptor, bell = self._socket.fileno(), self._wake_read.fileno()
        poll.register(bell, select.POLLIN)
        watched = select.POLLIN
        poll.register(descriptor, watched)
        while True:
            wanted = (0 if self._paused else select.POLLIN) | (select.POLLOUT if self._pending else 0)
            if wanted != watched:
                poll.modify(descriptor, wanted)
                watched = wanted
            for ready, events in poll.poll():
                if ready == bell:
                    self._wake_read.recv(4096)
                    self._room.tell()  # who sent last may have been interrupted before
                    continue
                if events & select.POLLOUT:
                    self._flush()
                if events & ~select.POLLOUT:
                    self._read()

    def _flush(self) -> None:
        with self._lock:
            if not self._sending:
                self._send_pending()

    def _send_pending(self) -> None:
        """Send until the kernel takes no more.  A finalizer that writes meanwhile, in this thread, leaves it to this."""
        self._sending = True
        try:
            self._drop_sent()
            while self._pending:
                try:  # `extend` notes what was sent before a signal's handler can run
                    self._sent.extend(map(self._socket.sendmsg, [list(islice(self._pending, _PARTS))]))
                except BlockingIOError:
                    return
                if not self._drop_sent():
                    return
        finally:
            self._sending = False

    def _drop_sent(self) -> bool:
        """Forget the bytes that were sent; False if the kernel took no more."""
        pending, sent, took_all = self._pending, self._sent, True
        while sent:
            while sent[0] and (size := len(pending[0])) <= sent[0]:
                sent[0] -= size
                self._waiting -= size
                pending.popleft()
            if sent[0]:  # what is left is not copied
                rest = memoryview(pending[0])[sent[0] :]
                self._waiting -= sent[0]
                sent[0] = 0
                pending[0] = rest
                took_all = False
            del sent[0]
        if self._waiting <= HIGH:
            self._room.tell()
        return took_all

    def _read(self) -> None:
        try:
            data = self._socket.recv(_READ)
        except BlockingIOError:
            return
        except MemoryError:
            sleep(_AGAIN)
            return
        if not data:
            raise LinkLost("the owner ended")
        self._dispatch(self._cutter.feed(data))
        if self._cutter.error is not None:
            raise BrokerClosed(f"the owner sends what is no AMQP: {self._cutter.error}")

    def _dispatch(self, frames: list[Frame]) -> None:
        """Hand frames to their channels, those in a row of one channel together."""
        start = 0
        while start < len(frames):
            number = frames[start].channel
            stop = start + 1
            while stop < len(frames) and frames[stop].channel == number:
                stop += 1
            if number == 0:
                for each in frames[start:stop]:
                    self._own(each)
            elif (channel := self.channels.get(number)) is not None:
                channel.frames(frames[start:stop])
            start = stop

    def _own(self, frame: Frame) -> None:
        if frame.type != METHOD:
            return
        method = decode_method(frame.payload)
        match method:
            case Connection.Blocked():
                self.blocked = True
                for channel in list(self.channels.values()):
                    channel.blocked()
                self._on_blocked(method.reason)
            case Connection.Unblocked():
                self.blocked = False
                self._on_blocked(None)
            case Connection.CloseOk() if self._closing is not None:
                raise self._closing
            case Connection.Close():
                with suppress(Error):
                    self.write(encode_method(0, make(Connection.CloseOk)))
                raise error_of(method.reply_code, method.reply_text)

    def _end(self, error: Error) -> None:
        with self._lock:
            if self._ended is not None:
                return
            self._ended = error if isinstance(error, LinkLost) else LinkLost(str(error))
            self._pending.clear()
            self._sent.clear()
            self._waiting = 0
            self._untold, self.channels = list(self.channels.values()), {}
            with suppress(OSError):  # the thread, if it is not this one, sees the end of file
                self._socket.shutdown(socket.SHUT_RDWR)
        keep_on(partial(self._tell_end, error))
        if self._closing is None:
            self._on_end(self)

    def _tell_end(self, error: Error) -> bool:
        self._room.tell()
        while self._untold:
            self._untold[-1].lost(error)
            del self._untold[-1]
        return False
