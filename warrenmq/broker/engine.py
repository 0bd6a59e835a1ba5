"""Engine: an open data directory and the supervision tree that runs on it, from recovery to the clean stop."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from pykka import ActorDeadError, Timeout

from warrenmq import forks
from warrenmq.actors.sending.message_sender import MessageIds
from warrenmq.actors.vhost.vhost import Vhost, queue_name
from warrenmq.broker.run_trace import RunTrace
from warrenmq.directory.definitions import Definitions
from warrenmq.directory.layout import DataDirectory
from warrenmq.errors import ArgumentValueError, BrokerClosed, Error
from warrenmq.log import Log
from warrenmq.node.resources import Resources
from warrenmq.queue.messages import Drain
from warrenmq.routing import Router
from warrenmq.runtime import Channel, Runtime
from warrenmq.runtime.life import inbox_of
from warrenmq.seams.disk import Disk
from warrenmq.seams.memory import Memory
from warrenmq.settings import Settings
from warrenmq.signals import undisturbed
from warrenmq.supervisors.broker_sup import RABBIT_SUP, RabbitSup
from warrenmq.trace.recorder import Recorder

log = Log("warrenmq.broker.broker")

CLOSED = object()
"""Put into each consumer's channel at the end: there will be no more deliveries."""


class Engine:
    """An opened directory with its running actors.

    runtime, resources, vhost   what the actors share; `vhost` has the tables of the virtual host that is served
    trace                       the trace of this run, or None
    trace_path                  the folder that it is written to, if it is one
    consumers                   the channels of running consumers, which get CLOSED at the end
    is_open                     it takes calls: False once stopped, or when the supervision tree gave up
    is_closed                   `stop` was called
    is_released                 `stop` has returned: the directory is free
    _down                       why the supervision tree ended by itself; None while it stands
    """

    def __init__(self, path: str, settings: Settings, runtime: Runtime, disk: Disk, memory: Memory,
                 trace: str | Recorder | None, vhost: str, directory: DataDirectory | None) -> None:  # fmt: skip
        """Recover the directory and start the actors; `directory` is given by its owner, who serves another vhost of it."""
        if runtime.is_registered(RABBIT_SUP):
            msg = f"{path} cannot be opened in this runtime, which has an open broker already; give each broker a runtime of its own"
            raise ArgumentValueError(msg)
        self.path = path
        self.settings = settings
        self.runtime = runtime
        self.trace: RunTrace | None = None
        self.trace_path = trace if isinstance(trace, str) else None
        self.consumers: dict[int, Channel] = {}
        self.is_open = True
        self.is_closed = False
        self.is_released = False
        self._down: str | None = None
        self._directory = directory or DataDirectory.open(disk, path, settings, runtime)
        try:
            disk = self._directory.disk
            vhost_directory = self._directory.vhost(vhost)
            definitions = Definitions.open(disk, vhost_directory.definitions, vhost_directory.quarantine)
            self.resources = Resources(memory, disk, path, settings)
            if trace is None:
                self._directory.begin_untraced()
            boot = self._directory.next_boot()
            ids = MessageIds(runtime, boot, runtime.lock())
            self.vhost = Vhost(vhost, vhost_directory, disk, vhost_directory.settings, definitions, Router(vhost),
                               self.resources, ids)  # fmt: skip
            self.vhost.sort_out_folders(disk)
            if trace is not None:
                self.trace = RunTrace(trace, runtime, self._directory, vhost, boot, settings)
            runtime.count_anew()
            self._root = runtime.start(RabbitSup, self.vhost, name=RABBIT_SUP)
        except BaseException:
            self.give_up()
            raise
        inbox_of(self._root).on_close(self._root_ended)
        forks.register(self)
        log.info("broker open", path=path, boot=boot, queues=len(definitions.queues))

    def share_directory(self) -> DataDirectory:
        """The directory, for another of its virtual hosts."""
        return self._directory.shared()

    def on_end(self, notice: Callable[[Any], object]) -> None:
        """Register `notice(reason)` to be called when the supervision tree ends: it gave up, or the broker is closed."""
        inbox_of(self._root).on_close(notice)

    def give_up(self) -> None:
        """Release the directory after a start that failed."""
        if self.trace is not None:
            self.trace.end(clean=False)
        self._directory.close()

    def check_open(self) -> None:
        """Raise BrokerClosed, with the reason, unless it is open; ForkedProcess in a forked child."""
        self.runtime.check_process()
        if self._down is not None:
            msg = f"the broker of {self.path} is down: {self._down}; close it and open the directory again"
            raise BrokerClosed(msg)
        if self.is_closed:
            raise BrokerClosed(f"the broker of {self.path} is closed")

    def after_fork(self) -> None:
        """See forks.py: every call raises ForkedProcess from now on."""
        if self.runtime.forked_from is not None:
            self.is_open = False
            self._down = "it is in another process"

    def drain(self, timeout: float | None) -> None:
        """Wait until each queue has answered all publishes, `timeout` seconds a queue; no delayed message is
        released any more.
        """
        for name in [*self.vhost.stores(), *self.vhost.router.queues]:
            with suppress(Error, ActorDeadError, Timeout):
                self.runtime.call(queue_name(name), Drain(), timeout)

    def stop(self, timeout: float | None) -> tuple[str, ...]:
        """Stop the actors, end the consumers, close the files; returns what a full disk did not let be written.

        The handler of a signal may interrupt the wait for the actors; then this can be called again.
        """
        self.is_open = False
        self.is_closed = True
        self.resources.alarms.wake_all()
        clean = self._down is None and self.runtime.stop_actor(self._root, timeout=timeout)
        undisturbed(partial(self._release, clean))
        return tuple(self.vhost.unwritten)

    def _release(self, clean: bool) -> None:
        self.is_released = True
        if not clean:
            self.runtime.shutdown()
        with suppress(OSError):  # the next start reads more; nothing is lost
            self.vhost.make_stops_safe()
        self._end_consumers()
        if self.trace is not None:
            self.trace.end(clean=clean)
        self.vhost.definitions.close()
        self._directory.close()
        log.info("broker closed", path=self.path, clean=clean)

    def _root_ended(self, reason: Any) -> None:
        if not self.is_closed:
            restarts, period = self.settings.vhost_restart_intensity
            self.is_open = False
            why = self.runtime.why_down(reason)
            self._down = f"its supervisor gave up after {why} (it allows {restarts} restarts in {period} s)"
            self.resources.alarms.wake_all()
            self._end_consumers()

    def _end_consumers(self) -> None:
        for channel in list(self.consumers.values()):
            channel.put(CLOSED)
