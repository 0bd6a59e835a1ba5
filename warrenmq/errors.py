"""The errors, grouped by whose fault they are.

    the caller's     CallerError and its subclasses: the call was refused and nothing changed
    the broker's no  Refusal and its subclasses: the call was fine, the broker could not take the message
    the broker's     ProcessDied: a process of it failed while it did what was asked
    a damaged file   CorruptFile: bytes that this program did not write, or wrote only in part
    a failing disk   no class of ours: the system's own OSError goes through unchanged

Every message is one sentence that says what is wrong and, where it is not obvious, what to do.
"""

from __future__ import annotations


class Error(Exception):
    """Every error of this package that is not the system's."""


class CallerError(Error):
    """The caller asked for something that cannot be; nothing changed.

    `reply_text` says the same in RabbitMQ's words, for clients of AMQP ("no queue 'jobs' in vhost '/'"); empty where
    RabbitMQ has none.
    """

    def __init__(self, *args: object, reply_text: str = "") -> None:
        super().__init__(*args)
        self.reply_text = reply_text


class SettingsError(CallerError):
    """A setting is unknown, of the wrong type or out of range."""


class NotFound(CallerError):
    """Raised when a queue, an exchange or a message does not exist (AMQP 404)."""


class AccessRefused(CallerError):
    """The name is reserved, or the object is not for clients (AMQP 403)."""


class ResourceLocked(CallerError):
    """An exclusive queue belongs to another connection (AMQP 405)."""


class PreconditionFailed(CallerError):
    """The object exists with other properties, a delivery tag is unknown, or an argument is wrong (AMQP 406)."""


class ArgumentTypeError(PreconditionFailed, TypeError):
    """An argument is of a type that the call does not take."""


class ArgumentValueError(PreconditionFailed, ValueError):
    """An argument is of the right type, and out of range, too long, or not what it should say."""


class CommandInvalid(CallerError):
    """The request makes no sense: there is no such exchange type (AMQP 503)."""


class DirectoryInUse(CallerError):
    """Raised when another broker owns the data directory."""

    def __init__(self, path: str, pid: int, host: str, started: str, shared: bool = False) -> None:
        super().__init__(path, pid, host, started, shared)
        self.path = path
        self.pid = pid
        self.host = host
        self.started = started
        self.shared = shared
        """The owner serves other processes: `warrenmq.open(path, shared=True)` attaches to it."""

    def __str__(self) -> str:
        advice = (
            "attach to it with warrenmq.open(path, shared=True)"
            if self.shared
            else "close that broker, choose another directory, or share this one: "
            "open it with shared=True in every process, or have `warrenmq serve` own it"
        )
        return f"{self.path} is in use by process {self.pid} on {self.host}, which opened it at {self.started}; {advice}."


class Refusal(Error):
    """The broker could not take, or not keep, what it was given."""


class Nacked(Refusal):
    """The broker does not have the message: publish it again."""


class Returned(Refusal):
    """A mandatory message matched no queue."""

    def __init__(self, exchange: str, routing_key: str) -> None:
        super().__init__(exchange, routing_key)
        self.exchange = exchange
        self.routing_key = routing_key

    def __str__(self) -> str:
        return (
            f"exchange {self.exchange!r} routed a mandatory message with key {self.routing_key!r} to no queue; "
            "bind a queue or publish it without mandatory."
        )


class Blocked(Refusal):
    """The broker takes nothing more for now, and nothing was changed: try again later.

    A memory or disk alarm is set or a queue is behind, and the caller did not want to wait (any longer); or the disk is
    full.  The message says which, and what to do.
    """


class ResourceError(Refusal):
    """The system has no thread, memory or file descriptor left for what was asked; nothing was changed (AMQP 506).

    Everything that is there already goes on.
    """


class AskFailed(Refusal):
    """A durable actor gave up the message that it was asked, or its answer cannot come any more."""


class BrokerClosed(Refusal):
    """The broker is closed, or was closed before it answered."""


class ForkedProcess(BrokerClosed):
    """The broker belongs to the process that this one was forked from."""

    def __init__(self, parent: int, pid: int) -> None:
        super().__init__(parent, pid)
        self.parent = parent
        self.pid = pid

    def __str__(self) -> str:
        return (
            f"this broker runs in process {self.parent}, and process {self.pid}, which was forked from that, cannot use it; "
            "fork before you open the directory, or let the child talk to the parent."
        )


class ProcessDied(Error):
    """The process that was handling a request died: the request may or may not have taken effect.

    It is not sent again by itself, because it may be what the process died of.  The process is started again, and the log
    says why it died.
    """


class Fenced(Error):
    """A write of an actor that has been replaced: it must not reach the disk any more."""


class CorruptFile(Error):
    """Bytes of a file do not make sense."""

    def __init__(self, path: str, offset: int, reason: str) -> None:
        super().__init__(path, offset, reason)
        self.path = path
        self.offset = offset
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path} is damaged at byte {self.offset}: {self.reason}."
