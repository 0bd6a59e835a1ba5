"""A client of another broker over AMQP 0-9-1, for `publish --url`, `consume --url` and `recover --to amqp://`.

pika's connection for event loops, driven by its caller: each call runs the loop until what it waits for has come, so
to the caller this blocks like any function, and still a thousand messages may be on their way unconfirmed (pika's
blocking connection waits for each).  For one thread.

    publish ──► at most WINDOW unconfirmed ──► confirms, perhaps many in one ──► flush returns
                                               nack or return ──► flush raises Refused, the channel goes on
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from warrenmq.errors import AccessRefused, CallerError, Error, Nacked, NotFound, PreconditionFailed

try:
    import pika  # type: ignore[import-untyped]
except ModuleNotFoundError as missing:
    raise CallerError("another broker is reached with pika; install warrenmq[client].") from missing


SCHEMES = ("amqp://", "amqps://")
WINDOW = 1000
"""Messages that may be unconfirmed."""
WINDOW_BYTES = 16 << 20
_PERSISTENT = 2
_REFUSALS: dict[int, type[CallerError]] = {403: AccessRefused, 404: NotFound, 406: PreconditionFailed}


class Unreachable(Error):
    """Raised when the other broker cannot be reached, or the connection breaks."""


class Refused(Nacked):
    """Raised when the other broker nacks or returns messages."""


class RawProperties(pika.BasicProperties):  # type: ignore[misc]  # pika has no types
    """Encoded property flags and values, sent as they are: nothing is decoded, so nothing can change."""

    def __init__(self, raw: bytes) -> None:
        super().__init__()
        self._raw = raw

    def encode(self) -> list[bytes]:
        return [self._raw]


class Remote:
    """A connection with one channel in confirm mode, which is opened anew when the broker has closed it."""

    def __init__(self, url: str, vhost: str | None = None) -> None:
        """Connect; `vhost` is used instead of the URL's."""
        self.parameters = parameters_of(url)
        if vhost is not None:
            self.parameters.virtual_host = vhost
        self._channel: Any = None
        self._lost: BaseException | None = None
        """Why the connection is gone."""
        self._closed: BaseException | None = None
        """Why the broker closed the channel; the next call raises it, and opens another one."""
        self._published = 0
        """The number of the last message of this channel."""
        self._unconfirmed: dict[int, int] = {}
        """The size of each message that is on its way, by its number, in order."""
        self._bytes = 0
        """Bytes of the messages in `_unconfirmed`."""
        self._nacked = 0
        self._returned: dict[str, int] = {}
        """How many messages were returned, by routing key."""
        self._opened = False
        """The connection was open at some time: what fails later is no refusal."""
        self._connection: Any = pika.SelectConnection(
            self.parameters,
            on_open_callback=self._woken,
            on_open_error_callback=self._on_lost,
            on_close_callback=self._on_lost,
        )
        try:
            self._wait(lambda: self._connection.is_open)
        except Error:
            self._connection.ioloop.close()
            raise
        self._opened = True

    # -- declaring

    def declare_queue(
        self, name: str, *, auto_delete: bool = False, arguments: Mapping[str, Any] | None = None
    ) -> None:
        """Declare a durable queue.  Raises AccessRefused or PreconditionFailed as the broker answers."""
        self._call(
            "queue_declare", name, durable=True, auto_delete=auto_delete, arguments=dict(arguments or {})
        )

    def queue(self, name: str) -> None:
        """Declare a queue passively: raises NotFound unless it exists, whatever its arguments."""
        self._call("queue_declare", name, passive=True)

    def declare_exchange(self, name: str, type: str, *, auto_delete: bool, internal: bool,
                         arguments: Mapping[str, Any]) -> None:  # fmt: skip
        """Declare a durable exchange."""
        self._call(
            "exchange_declare",
            name,
            type,
            durable=True,
            auto_delete=auto_delete,
            internal=internal,
            arguments=dict(arguments),
        )

    def bind(self, destination: str, source: str, routing_key: str, arguments: Mapping[str, Any], *,
             destination_type: str) -> None:  # fmt: skip
        """Bind a "queue" or an "exchange" to the source."""
        self._call(f"{destination_type}_bind", destination, source, routing_key, arguments=dict(arguments))

    # -- publishing

    def publish(self, queue: str, body: bytes, properties: bytes | None = None) -> None:
        """Publish to a queue, persistent unless the raw properties say otherwise; waits while WINDOW are unconfirmed."""
        channel = self._open_channel()
        known = (
            pika.BasicProperties(delivery_mode=_PERSISTENT)
            if properties is None
            else RawProperties(properties)
        )
        self._published += 1
        self._unconfirmed[self._published] = len(body)
        self._bytes += len(body)
        channel.basic_publish("", queue, body, known, mandatory=True)
        if self._is_full():
            self._wait(lambda: not self._is_full())

    def _is_full(self) -> bool:
        return len(self._unconfirmed) >= WINDOW or self._bytes >= WINDOW_BYTES

    def flush(self) -> None:
        """Wait until everything is confirmed.  Raises Refused if a message was nacked or returned."""
        self._wait(lambda: not self._unconfirmed)
        nacked, returned = self._nacked, self._returned
        self._nacked, self._returned = 0, {}
        if nacked:
            raise Refused(f"the broker refused {nacked} messages: a queue is full, or failed.")
        if returned:
            names = ", ".join(f"{name!r} ({count} messages)" for name, count in sorted(returned.items()))
            raise Refused(f"the broker has no queue {names}.")

    def serve_until_readable(self, descriptor: int) -> None:
        """Send, and answer heartbeats, until a pipe, socket or terminal has something to read.

        Without that nothing is sent before as many messages as may be unconfirmed are published.
        """
        loop, ready = self._connection.ioloop, []

        def on_ready(*_: Any) -> None:
            ready.append(True)
            self._woken()

        loop.add_handler(descriptor, on_ready, loop.READ)
        try:
            self._wait(lambda: bool(ready))
        finally:
            loop.remove_handler(descriptor)

    def close(self) -> None:
        """Close the connection if it is still open."""
        if self._connection.is_open:
            self._connection.close()
        while not self._connection.is_closed:
            self._connection.ioloop.start()
        self._connection.ioloop.close()

    # -- the loop

    def _call(self, method: str, *arguments: Any, **keywords: Any) -> None:
        """Call one method of the channel and wait for its answer."""
        answered: list[Any] = []

        def answer(frame: Any) -> None:
            answered.append(frame)
            self._woken()

        getattr(self._open_channel(), method)(*arguments, **keywords, callback=answer)
        self._wait(lambda: bool(answered))

    def _open_channel(self) -> Any:
        if self._channel is not None:
            return self._channel
        channel = self._connection.channel(on_open_callback=self._woken)
        channel.add_on_close_callback(self._on_channel_closed)
        self._wait(lambda: channel.is_open)
        channel.add_on_return_callback(self._on_return)
        self._channel, self._published = channel, 0
        self._call("confirm_delivery", self._on_confirm)
        return channel

    def _wait(self, until: Callable[[], bool]) -> None:
        """Run the loop until a condition holds; every callback stops it for a check."""
        while not until():
            if self._lost is not None:
                raise _unreachable(self._lost, self.parameters, opened=self._opened) from self._lost
            if self._closed is not None:
                closed, self._closed = self._closed, None
                raise _refusal(closed) from closed
            self._connection.ioloop.start()

    def _woken(self, *_: Any) -> None:
        self._connection.ioloop.stop()

    def _on_lost(self, _: Any, why: BaseException) -> None:
        self._lost = why
        self._woken()

    def _on_channel_closed(self, _: Any, why: BaseException) -> None:
        self._channel = None
        self._closed = why
        self._unconfirmed.clear()
        self._bytes = 0
        self._woken()

    def _on_return(self, _channel: Any, method: Any, _properties: Any, _body: bytes) -> None:
        self._returned[method.routing_key] = self._returned.get(method.routing_key, 0) + 1

    def _on_confirm(self, frame: Any) -> None:
        tag = frame.method.delivery_tag
        settled = [each for each in self._unconfirmed if each <= tag] if frame.method.multiple else [tag]
        for each in settled:
            self._bytes -= self._unconfirmed.pop(each)
        if isinstance(frame.method, pika.spec.Basic.Nack):
            self._nacked += len(settled)
        self._woken()


class Subscription:
    """The messages of one queue of another broker, in order; nothing is acked but by `ack`.

    An iterator over (body, ack): ack() acknowledges it and all before it.  It gives None when no message came for a while.
    """

    def __init__(self, url: str, queue: str, prefetch: int, patience: float) -> None:
        self._queue, self._patience = queue, patience
        parameters = parameters_of(url)
        try:
            self._connection = pika.BlockingConnection(parameters)
            self._channel = self._connection.channel()
            self._channel.basic_qos(prefetch_count=prefetch)
        except Exception as why:  # pika lets errors of sockets, of TLS and of host names through as they are
            raise _unreachable(why, parameters, opened=False) from why

    def __iter__(self) -> Iterator[tuple[bytes, Callable[[], None]] | None]:
        try:
            for method, _, body in self._channel.consume(self._queue, inactivity_timeout=self._patience):
                yield None if method is None else (body, partial(self._ack, method.delivery_tag))
        except pika.exceptions.AMQPError as why:
            raise self._why(why) from why

    def _ack(self, tag: int) -> None:
        self._channel.basic_ack(tag, multiple=True)

    def is_empty(self) -> bool:
        """True if the queue has no ready message."""
        try:
            ready: int = self._channel.queue_declare(self._queue, passive=True).method.message_count
        except pika.exceptions.AMQPError as why:
            raise self._why(why) from why
        return not ready

    def _why(self, why: BaseException) -> Error:
        closed = isinstance(why, pika.exceptions.ChannelClosed)
        return _refusal(why) if closed else _unreachable(why, self._connection.params, opened=True)

    def close(self) -> None:
        """Close the channel; unacked messages are requeued."""
        if self._connection.is_open:
            self._connection.close()


def parameters_of(url: str) -> Any:
    """Read the URL of a broker.  CallerError for one that is none."""
    try:
        if not url.startswith(SCHEMES):
            raise ValueError("its scheme is another one")
        return pika.URLParameters(url)
    except (ValueError, TypeError, IndexError) as why:
        shown = re.sub(r"(?<=://)[^@/]*@", "...@", url)  # a password must not be shown
        raise CallerError(
            f"{shown} is no URL of a broker, like amqp://guest:guest@localhost:5672/%2F: {why}"
        ) from why


def _unreachable(why: BaseException, parameters: Any, *, opened: bool) -> Unreachable:
    """An Unreachable with a sentence for people who do not know pika."""
    host = f"[{parameters.host}]" if ":" in parameters.host else parameters.host
    reason = reason_of(why, parameters, opened=opened)
    return Unreachable(f"{host}:{parameters.port} cannot be used: {reason}")


def reason_of(why: BaseException, parameters: Any, *, opened: bool) -> str:
    """A sentence for what broke a connection, or kept one from being opened.

    | in the chain of errors | it means |
    | --- | --- |
    | connection refused | no broker listens |
    | an error of the name service, a name that no host can have | no such host |
    | a timeout | no answer |
    | an error of TLS | the certificate, or no TLS at all |
    | ACCESS_REFUSED, NOT_ALLOWED | user or password, virtual host |
    | anything else, before it is open | no AMQP |
    """
    chain = list(_chain(why))
    for kinds, reason in (
        (ConnectionRefusedError, "no broker listens there; start it, or correct the URL."),
        ((socket.gaierror, UnicodeError), f"there is no host called {parameters.host!r}; correct the URL."),
        (ssl.SSLCertVerificationError, "its certificate is not one that this machine trusts."),
        (ssl.SSLError, "TLS failed; where the broker has no TLS on this port, the URL begins with amqp://."),
    ):
        if any(isinstance(each, kinds) for each in chain):
            return reason
    said, user = _said(chain), parameters.credentials.username
    if any("Timeout" in f"{type(each).__name__} {said}" for each in chain):
        return "it does not answer; is there an AMQP 0-9-1 broker on this port?"
    if any(isinstance(each, pika.exceptions.AuthenticationError) for each in chain) or said.startswith(
        "ACCESS_REFUSED"
    ):
        return f"it refuses the user {user!r}: there is none, or the password is wrong ({said})."
    if said.startswith("NOT_ALLOWED"):
        return (
            f"it does not let the user {user!r} into the virtual host {parameters.virtual_host!r} ({said})."
        )
    if opened:
        return f"the connection broke ({said})."
    if any(isinstance(each, pika.exceptions.AMQPError) for each in chain):
        return f"no AMQP 0-9-1 broker answers there{' without TLS' if parameters.ssl_options is None else ''} ({said})."
    return f"{said}."


def _chain(why: Any) -> Iterator[BaseException]:
    """Pika's errors around errors, the outermost first: of several attempts the last one, and what it was caused by."""
    yield why
    inner = [*getattr(why, "exceptions", ())[-1:], getattr(why, "exception", None), *getattr(why, "args", ())]
    for each in inner:
        if isinstance(each, BaseException):
            yield from _chain(each)


def _said(chain: list[BaseException]) -> str:
    """The text of the innermost error that has one; of a broker's connection.close its reply text."""
    for each in reversed(chain):
        if reply := getattr(each, "reply_text", ""):
            return str(reply)
        if text := " ".join(str(part) for part in each.args if not isinstance(part, BaseException)):
            quoted = re.search(r"\(\d+\) '(.+)'$|\(['\"](.+)['\"],\)$", text)  # pika quotes what a peer said
            return quoted[1] or quoted[2] if quoted else text
    return type(chain[-1]).__name__


def _refusal(why: BaseException) -> Error:
    code = getattr(why, "reply_code", 0)
    return _REFUSALS.get(code, CallerError)(f"{code} {getattr(why, 'reply_text', why)}")
