"""Links: find the process that owns the directory, or become it, and connect to it.

    ┌──────────── the lock is free ───────────► Owned: recover, serve the others
    look ─ the owner shares, and answers ─────► Attachment ─ the owner ends ─► look
    └───────── the owner does not share ──────► DirectoryInUse

An owner whose supervision tree gives up closes what is left of its broker, which frees the lock, and looks, too; for
HAND_OVER seconds it only attaches, so that another process gets the directory if there is one.

One thread looks at a time, and it is none of the application's: `open` that a signal's handler interrupts
leaves no directory locked.  The search for the next owner begins as soon as the last one is gone, so that a
process that only waits for messages takes over, too.  It goes on while the system is out of something, or the
next owner does not answer; where it fails it is told to whoever waits, and the next call begins another one.
Publishes that the last owner left unanswered fail, or are published again before any other of this process
(`unconfirmed`).

A forked child has no link at first, and looks for one when it needs it: its parent, if that owns the directory, or any other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from time import monotonic
from typing import Literal, TypeVar

from warrenmq import forks
from warrenmq.amqp.server import CLOSE_OK_TIMEOUT, AmqpServer, serve_locally
from warrenmq.broker.broker import Broker
from warrenmq.broker.embedded import runtime_of
from warrenmq.checks import shown
from warrenmq.directory.layout import DataDirectory
from warrenmq.errors import (
    AccessRefused,
    BrokerClosed,
    DirectoryInUse,
    Error,
    ForkedProcess,
    Nacked,
    ProcessDied,
    ResourceError,
)
from warrenmq.log import Log
from warrenmq.node.alarms import SOURCES, Alarm, Alarms
from warrenmq.runtime import Runtime, Threads
from warrenmq.runtime.shortage import keep_on, may_pass, no_thread
from warrenmq.runtime.thread_event import News
from warrenmq.runtime.thread_start import start_thread
from warrenmq.seams.memory import RealMemory
from warrenmq.seams.real_disk import RealDisk
from warrenmq.settings import Settings
from warrenmq.shared.attachment import Attachment
from warrenmq.shared.errors import LinkLost, NobodyServes, OwnerSilent
from warrenmq.shared.patience import Unanswered, left
from warrenmq.shared.publishing import Unconfirmed

T = TypeVar("T")
AfterLoss = Literal["fail", "repeat"]
_LOOK = 0.01
"""Seconds between two looks while an owner starts or stops."""
_PAUSE = 0.1
"""Seconds between two tries while the system is out of something."""
_DOUBTS = 20
"""Looks before an owner is believed not to share the directory: it writes that down a moment after it took the lock,
and until then the last owner's record is there.
"""
_CLOSURES = 3
"""Times that a publish is repeated after its channel was closed for one of several."""
_DROPS = 500
"""Times in a row that an owner may drop a connection before it is open, or has no record yet."""
HAND_OVER = 5.0
"""Seconds in which a process whose supervision tree gave up leaves the directory to others."""
_STOP = 60.0
"""Seconds that what is left of a broker whose supervision tree gave up has to stop."""

log = Log("warrenmq.shared")


@dataclass(frozen=True, slots=True)
class OpenArguments:
    """The arguments of `warrenmq.open`."""

    path: str
    settings: Settings
    trace: str | None
    vhost: str
    unconfirmed: AfterLoss


class OwnersAlarm(Alarm):
    """An alarm of the owner; its figures are unknown to an attached process."""

    def __str__(self) -> str:
        return (
            f"the {self.source} alarm of the directory's owner is set: consume, make room, or raise its limit"
        )


class Owned:
    """The link of the owner: a Broker in this process, and the server on the directory's socket."""

    def __init__(self, arguments: OpenArguments, next_consumer_id: Callable[[], int]) -> None:
        settings, disk = arguments.settings, RealDisk(arguments.settings.durability)
        runtime = runtime_of(settings)
        directory = DataDirectory.open(disk, arguments.path, settings, runtime, shares=True)
        self.broker = Broker(arguments.path, settings, runtime, directory.disk, RealMemory(), arguments.trace,
                             arguments.vhost, directory)  # fmt: skip
        self.client = self.broker.inside.local_client
        self.client.next_consumer_id = next_consumer_id
        try:
            self.server: AmqpServer = serve_locally(self.broker)
        except BaseException:
            self.broker.close()
            raise

    def close(self, timeout: float | None) -> tuple[str, ...]:
        """Disconnect the attached processes, stop cleanly, and release the directory."""
        end = None if timeout is None else monotonic() + timeout
        self.server.close(CLOSE_OK_TIMEOUT if timeout is None else min(timeout, CLOSE_OK_TIMEOUT))
        return self.broker.close(None if end is None else max(0.0, end - monotonic()))


class Links:
    """The current link of one SharedBroker, replaced when the owner changes; thread-safe."""

    def __init__(self, arguments: OpenArguments) -> None:
        """`open` comes next."""
        self.arguments = arguments
        self.alarms = Alarms()
        """Alarms of the owner, while it is another process."""
        self.is_closed = False
        self.next_consumer_id = count(1).__next__
        """Draws a number for a consumer.  While this process owns the directory the other processes'
        consumers draw theirs here, too: a consumer or handle made here before keeps its own number, which
        must stay unique in each queue.
        """
        self._begin()
        forks.register(self)

    def _begin(self) -> None:
        self.runtime: Runtime = Threads()
        """The runtime of waiting threads in this process, whoever owns the directory."""
        self.current: Owned | Attachment | None = None
        """None while the next owner is looked for."""
        self._last: Owned | Attachment | None = None
        """The link at the time of `close`, until that is done: if a signal's handler interrupts it, it can be
        called again.
        """
        self._lock = threading.RLock()
        self._changed = News()
        self._broken: Owned | None = None
        """The owner's broker of this process whose supervision tree gave up, until it is closed."""
        self._owns_from = 0
        """The monotonic time from which this process may own the directory (again)."""
        self._unanswered: list[Unconfirmed] = []
        """Publishes that are to be repeated, in order."""
        self._failure: Exception | None = None
        """Why the last search failed."""
        self._looking = False
        """True while a thread looks; set by itself."""
        self._said = False
        """It has said in the log that it found no owner yet."""
        self._opening = False
        """It has the directory's lock, or tries for it, and has not told anybody."""

    def after_fork(self) -> None:
        """Reset after a fork: the child makes a link of its own when it needs one (forks.py)."""
        last = self.current
        self._begin()
        if isinstance(last, Attachment):
            last.abandon()

    def open(self) -> None:
        """Own the directory, or attach to its owner; raises DirectoryInUse, and what opening a broker raises."""
        try:
            self._begin_to_look(first=True)
            self._changed.wait_for(lambda: self.current is not None or self._failure is not None)
            if self._failure is not None:
                raise self._failure
        except BaseException:
            self.close(None)  # if an interrupt comes first, the thread that looks lets go of what it finds
            raise

    def check_open(self) -> None:
        """Raise BrokerClosed once the broker is closed, or while the interpreter ends."""
        self.runtime.check_process()
        if self.is_closed:
            raise BrokerClosed(f"the broker of {self.arguments.path} is closed")

    def wait(self, timeout: float | None = None) -> Owned | Attachment | None:
        """Wait for the link; None after `timeout` seconds.  BrokerClosed when no owner can be found."""
        found: Owned | Attachment | None = None
        why: Exception | None = None

        def is_known() -> bool:
            nonlocal found, why
            found, why = self.current, self._failure
            return found is not None or self.is_closed or why is not None

        with self._lock:
            if self.current is None and not self._looking:
                self._failure = None
        end = None if timeout is None else monotonic() + timeout
        while not is_known():
            more = None if end is None else max(0.0, end - monotonic())
            try:
                self._begin_to_look()
            except ResourceError:
                more = _PAUSE if more is None else min(more, _PAUSE)
            if not self._changed.wait_for(is_known, more) and end is not None and monotonic() >= end:
                break
        self.check_open()
        if found is None and why is not None:
            raise BrokerClosed(
                f"{self.arguments.path} could not be taken over from its last owner: {why}"
            ) from why
        return found

    def link(self) -> Owned | Attachment:
        """Wait for the link; Unanswered when the caller's time is over."""
        found = self.current or self.wait(left())
        if found is None:
            raise Unanswered
        return found

    def at_owner(self, owned: Callable[[Owned], T], attached: Callable[[Attachment], T]) -> T:
        """Do something at the owner, this process or another; again at the next one if that one ends, so only
        what may be done twice.
        """
        while True:
            link = self.link()
            with suppress(LinkLost):
                return self.use(link, owned) if isinstance(link, Owned) else attached(link)

    def use(self, link: Owned, act: Callable[[Owned], T]) -> T:
        """Do something with the broker in this process; LinkLost, and it was not begun, when its supervision
        tree has given up.
        """
        try:
            return act(link)
        except ForkedProcess:
            raise
        except BrokerClosed as why:
            if self.is_closed or link.broker.is_open:
                raise
            self._gave_up(link)
            raise LinkLost(str(why)) from why

    # -- finding the owner

    def _look(self) -> Owned | Attachment:
        doubts = drops = 0
        while True:
            if self.is_closed:
                raise BrokerClosed("it was closed meanwhile")
            if self.runtime.monotonic_ns() < self._owns_from:
                with suppress(LinkLost):
                    return self._attach()
                self.runtime.event().wait(_LOOK)
                continue
            try:
                found = self._own()
            except DirectoryInUse as owner:
                if owner.shared:
                    doubts = 0
                    try:
                        return self._attach()
                    except NobodyServes:
                        drops = 0
                    except (LinkLost, ProcessDied):  # it is about to end, or has a fault
                        if (drops := drops + 1) > _DROPS:
                            raise
                elif (doubts := doubts + 1) > (_DOUBTS if owner.pid else _DROPS):
                    raise
                self.runtime.event().wait(_LOOK)
            else:
                log.info("owns the directory", path=self.arguments.path)
                return found

    def _own(self) -> Owned:
        self._opening = True
        try:
            return Owned(self.arguments, self.next_consumer_id)
        except BaseException:
            self._opening = False
            raise

    def _attach(self) -> Attachment:
        path, vhost = self.arguments.path, self.arguments.vhost
        try:
            return Attachment(path, vhost, self.runtime, self._lost, self._give_up, self._blocked)
        except AccessRefused as why:
            raise AccessRefused(
                f"the owner of {path} does not serve the virtual host {shown(vhost)}: a program serves the one that it opened; "
                "have `warrenmq serve` own the directory for several"
            ) from why

    def _take(self, link: Owned | Attachment) -> bool:
        """Make this the current link unless it is lost already; unanswered publishes of the previous link are
        repeated first.
        """
        while True:
            with self._lock:
                again, self._unanswered = self._unanswered, []
                if not again:
                    if self.is_closed or (isinstance(link, Attachment) and link.is_over):
                        return False
                    self.current = link
                    self._failure = None
                    self._looking = self._opening = False
                    break
            for number, item in enumerate(again):
                try:
                    publish_again(link, item)
                except LinkLost:
                    with self._lock:
                        self._unanswered = again[number:] + self._unanswered
                    return False
                except (Error, OSError) as why:
                    item.confirm.fail(why)
        self._changed.tell()
        if isinstance(link, Owned):
            link.client.engine.on_end(lambda _reason: self._gave_up(link))
        return True

    def _begin_to_look(self, *, first: bool = False) -> None:
        """Have a thread look, unless one does; ResourceError if none can be started."""
        if not self._looking:
            name = "warrenmq-shared"
            try:
                start_thread(threading.Thread(target=self._look_again, args=(first,), name=name, daemon=True))
            except (RuntimeError, MemoryError) as why:
                raise no_thread(why, name) from why

    def _look_again(self, first: bool) -> None:
        """Find or become the next owner, and repeat unanswered publishes.  What may pass is tried again,
        unless it is the first time.
        """
        with self._lock:
            if self._looking or (self.current is not None and not self._unanswered):
                return
            self._looking = True
        self._said = False
        keep_on(partial(self._look_once, first))

    def _look_once(self, first: bool) -> bool:
        """Search; False when this is over."""
        if (why := self._search()) is None:
            return False
        if first or not (may_pass(why) or isinstance(why, LinkLost | OwnerSilent)):
            self._failed(why)
            return False
        if not self._said:
            self._said = True
            reason = str(why) or type(why).__name__
            log.warning("found no owner yet; goes on looking", path=self.arguments.path, reason=reason)
        self.runtime.event().wait(_PAUSE)
        return True

    def _search(self) -> Exception | None:
        """Look until there is a link; returns the error that ends this."""
        try:
            self._close_broken()
            link = self.current or self._look()
            while not self._take(link):
                # it is over, or this broker was closed meanwhile
                link.close(None)
                self._opening = False
                link = self._look()
        except Exception as why:  # noqa: BLE001  # whoever waits gets it
            return why
        return None

    def _failed(self, why: Exception) -> None:
        with self._lock:
            unanswered, self._unanswered = self._unanswered, []
            self._failure = why
            self._looking = False
        self._changed.tell()
        for item in unanswered:
            item.confirm.fail(Nacked(NO_ANSWER))

    def _close_broken(self) -> None:
        if (broken := self._broken) is None:
            return
        try:
            broken.close(_STOP)
        finally:
            self._owns_from = self.runtime.monotonic_ns() + round(HAND_OVER * 1e9)
            with self._lock:
                self._broken = None
            self._changed.tell()

    def _gave_up(self, link: Owned) -> None:
        """The supervision tree of this process gave up: let go of the directory, and look for the next owner."""
        with self._lock:
            if self.is_closed or self.current is not link:
                return
            self.current, self._broken = None, link
        log.warning("gives up the directory, as its broker is down", path=self.arguments.path)
        with suppress(ResourceError):  # the next call begins
            self._begin_to_look()

    # -- in a connection's thread

    def _lost(self, link: Attachment, why: Error) -> None:
        for alarm in self.alarms.active:
            self.alarms.clear(alarm.source)
        with self._lock:
            if self.is_closed or self.current is not link:
                return
            self.current = None
        log.info("the owner of the directory is gone", path=self.arguments.path, reason=str(why))
        self._look_from_here()

    def _look_from_here(self) -> None:
        try:
            self._begin_to_look()
        except ResourceError:  # this thread has nothing else to do
            self._look_again(first=False)

    def _give_up(self, items: list[Unconfirmed], error: Error) -> None:
        """Take over publishes without an answer: the owner is gone, or one of them made it close the channel."""
        refused: list[Unconfirmed] = []
        if not isinstance(error, LinkLost):
            refused = [
                item
                for item in items
                if len(items) == 1 or repr(item.exchange) in str(error) or item.closures == _CLOSURES
            ]
            for item in items:
                item.closures += 1
        others = [item for item in items if item not in refused]
        late = False
        with self._lock:
            if self.arguments.unconfirmed == "repeat" and not self.is_closed and self._failure is None:
                self._unanswered += others
                others = []
                late = bool(self._unanswered) and self.current is not None
        for item in refused:
            item.confirm.fail(error)
        for item in others:
            item.confirm.fail(Nacked(NO_ANSWER))
        if late:  # the next owner was found before this connection's end was
            self._look_from_here()

    def _blocked(self, reason: str | None) -> None:
        if reason is None:
            for alarm in self.alarms.active:
                self.alarms.clear(alarm.source)
            return
        for source in SOURCES:
            if source in reason:
                self.alarms.set(OwnersAlarm(source, 0, 0, self.runtime.wall_ns()))

    # -- the end

    def close(self, timeout: float | None) -> tuple[str, ...]:
        """Release the directory, or disconnect from its owner; returns what could not be written (Broker.close)."""
        with self._lock:
            if not self.is_closed:
                self.is_closed = True
                self._last, self.current = self.current, None
            link = self._last
            unanswered, self._unanswered = self._unanswered, []
        unwritten: tuple[str, ...] = ()
        try:
            self._changed.tell()
            self._changed.wait_for(lambda: self._broken is None, timeout)
            self.alarms.wake_all()
            if isinstance(link, Owned):
                unwritten = link.close(timeout)
            elif link is not None:
                link.close(timeout)
            self._last = None
        finally:
            for item in unanswered:
                item.confirm.fail(Nacked(NO_ANSWER))
        return unwritten

    def wait_until_released(self, timeout: float | None) -> None:
        """Wait, behind `close`, until a search that was taking the directory over has let go of it."""
        self._changed.wait_for(lambda: not self._opening, timeout)


LATE = "the owner of the directory has not confirmed the message in time, which may be there or not: publish it again"
NO_ANSWER = "the process that owned the directory ended before it confirmed the message, which may be there or not: publish it again"


def publish_again(link: Owned | Attachment, item: Unconfirmed) -> None:
    """Repeat unanswered publishes; the new confirm resolves the publisher's."""
    item.bodies, item.answered = item.unanswered(), None
    if isinstance(link, Attachment):
        link.publish(item)
        return
    answer = link.client.publishing.own.publish(
        item.exchange, item.routing_key, item.bodies, item.properties, item.persistent, item.mandatory
    )
    item.confirm.follow(answer)
