"""Workers: a few threads that run the actors that have mail.

Purpose.  Under one GIL a thread for each actor buys nothing and costs its stack, its start, and a change of thread for
each message that is waited for.  Here an actor without mail is a Cell and no more.

Which thread may run an actor.  A sender appends a message and, unless the cell is claimed, puts the cell into
`ready`, a dict, in which it stands once however often it is put there.  A thread takes the cell out of it
(one atomic `pop`), claims it (a lock, tried without waiting), runs a slice, gives the claim back, and only
then looks at the mail again.  So a sender that finds the cell claimed may leave: its message was there before
that second look.  A thread that takes out a cell and finds it claimed may drop it for the same reason.

How many run.  `SIZE` workers at a time compute.  More are let in while some block: declared by
`THIS_THREAD.blocking` in the seams, or found by the wheel, which takes a worker that has not moved for a tick
for blocked.  A thread from outside that waits is a Helper (helper.py), and so is that of an event loop
(leading.py): it runs what its own sends made ready, and is not counted, so that it never takes a worker's
place.

Assumptions.  Operations of deque, dict, OrderedDict, set and list on these objects are atomic (C code under the GIL, with
keys that are hashed by identity).  There is no lock here: a signal's handler runs between any two lines of the main thread, may
wait for an actor, and would do so with the lock held; or it raises.  So state is in sets and dicts, never a counter, and the
wheel looks for what was left half done.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from contextvars import Context
from functools import partial
from operator import not_
from time import monotonic
from types import TracebackType
from typing import Any, Protocol

from warrenmq.log import Log
from warrenmq.runtime.inbox import WAKE
from warrenmq.runtime.messages import unwrapped
from warrenmq.runtime.seams import Suspension
from warrenmq.runtime.server import Server
from warrenmq.runtime.shortage import keep_on, no_thread
from warrenmq.runtime.thread_event import ring
from warrenmq.runtime.thread_start import start_thread
from warrenmq.seams.blocking import NOTHING, THIS_THREAD

log = Log("warrenmq.runtime")

SIZE = 1
"""Workers that compute at a time: more would only wait for each other's GIL."""
MOST_WORKERS = 128
"""Workers, those that block included, but for those that are stuck."""
BATCH = 256
"""Messages that an actor handles before others get their turn."""
SLICE = 0.001
"""Seconds after which an actor gives others their turn, if there are any."""
LATE = 0.001
"""Seconds for which a worker that has more actors to run puts off waking the threads that got an answer."""
LINGER = 10.0
"""Seconds after which a worker that has nothing to do ends, if there is another."""
STUCK = 1.0
"""Seconds in one slice after which an actor is called stuck."""
MOST_PATIENT = 16
"""Messages in a mailbox that are looked at one by one whether they can wait."""

MISSING = object()


class Cell:
    """The incoming channel of one actor, and the right to run it.

    label    the actor's name, for `stuck`
    items    its mail
    claim    held by the thread that runs the actor
    server   the actor; None before it is launched and after its end
    helpable   a thread that waits may run it
    begun    on_start was called
    context  the actor's own contextvars: those of a helping thread must not leak into it
    alarm    when the wheel will look at it (monotonic, ns); 0 = never
    suspension   it gave its thread back and is still claimed, until something is done
    lazy     it was put into `ready`, and no worker was called: its sender is expected to wait soon and run it, or its mail can wait
    """

    __slots__ = (
        "__weakref__",
        "alarm",
        "begun",
        "claim",
        "context",
        "empty",
        "get_nowait",
        "helpable",
        "is_claimed",
        "items",
        "label",
        "lazy",
        "qsize",
        "server",
        "suspension",
        "workers",
    )

    def __init__(self, workers: Workers) -> None:
        self.workers = workers
        self.label = ""
        self.items: deque[Any] = deque()
        self.get_nowait = self.items.popleft
        self.qsize = self.items.__len__
        self.empty = partial(not_, self.items)
        self.claim = threading.Lock()
        self.is_claimed = self.claim.locked
        self.server: Server | None = None
        self.helpable = False
        self.begun = False
        self.context = Context()
        self.alarm = 0
        self.suspension: Suspension | None = None
        self.lazy = False

    def put(self, item: Any, /) -> None:
        """Append a message; from any thread."""
        self.items.append(item)
        if not self.is_claimed():
            workers = self.workers
            if self not in workers.ready or (self.lazy and not self.can_wait()):
                workers.make_ready(self, item)

    def can_wait(self) -> bool:
        """True if its mail, and its empty mailbox, may wait until a thread comes that runs the actor anyway,
        or for a tick of the wheel.
        """
        server = self.server
        if (
            server is None or not self.begun or self.is_claimed() or server.actor_inbox.has_signals
            or len(self.items) > MOST_PATIENT
        ):  # fmt: skip
            return False
        return server.can_wait({type(unwrapped(message)) for message in tuple(self.items)})

    def go_on(self) -> None:
        """End its suspension: a worker runs it again, with or without mail."""
        self.suspension = None
        self.claim.release()
        self.workers.ready[self] = None
        self.workers.call_worker()

    def get(self, *, timeout: float | None = None) -> Any:  # noqa: ARG002
        """Take a message without waiting: an actor without mail is never run."""
        return self.get_nowait()


class Jobs(Cell):
    """Functions that workers call, one after another."""

    def __init__(self, workers: Workers, label: str) -> None:
        super().__init__(workers)
        self.label = label


class Runner:
    """A thread and the actor that it runs now; entered (`with`) while it blocks."""

    def __init__(self) -> None:
        self.cell: Cell | None = None
        self.since = 0.0
        """The time at which its slice began."""

    def keep(self, cell: Cell, message: object) -> bool:  # noqa: ARG002
        """Remember a cell that it made ready, with a message; True if no worker need be called for it."""
        return False

    def has_others(self) -> bool:
        """True if it runs other actors next."""
        return False

    def give_way(self) -> None:
        """Called by the wheel when the actor that a thread from outside runs has not come back for a tick."""

    def wake(self, bell: threading.Lock) -> None:
        """Wake the thread that waits for a lock, now or soon."""
        ring(bell)

    def wake_late(self) -> None:
        """Wake those that `wake` put off."""

    def __enter__(self) -> None:
        raise NotImplementedError

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        pass


class Worker(Runner):
    """One thread of the pool.

    turn    counts its slices
    seen    `turn` at the wheel's last look
    taken   the cell that it took out of the line
    blocks  how many `THIS_THREAD.blocking` it is in
    stuck   the wheel has taken it for blocked
    late    the bells of threads that it will wake when it comes to an end, blocks, or has made them wait for LATE seconds: they could
            not run before that, and each change of thread at a write or read of it, which lets go of the GIL, costs more than the write
    late_since  the time at which it put off the first of them
    """

    def __init__(self, workers: Workers) -> None:
        super().__init__()
        self.workers = workers
        self.turn = self.seen = self.blocks = 0
        self.stuck = False
        self.taken: Cell | None = None
        self.late: list[threading.Lock] = []
        self.late_since = 0.0
        self.bell = threading.Lock()
        self.bell.acquire()
        self.thread = threading.Thread(target=workers.work, args=(self,), name="actors", daemon=True)

    def has_others(self) -> bool:
        return bool(self.workers.ready)

    def wake(self, bell: threading.Lock) -> None:
        if not self.workers.ready or self.blocks:
            ring(bell)
            return
        if not self.late:
            self.late_since = monotonic()
        self.late.append(bell)

    def wake_late(self) -> None:
        with suppress(IndexError):  # the wheel may do this at the same time
            while self.late:
                ring(self.late.pop(0))

    def __enter__(self) -> None:
        self.blocks += 1
        if self.late:
            self.wake_late()
        workers = self.workers
        workers.computing.discard(self)
        if workers.ready:
            workers.call_worker()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.blocks -= 1
        if not self.blocks and not self.stuck:
            self.workers.computing.add(self)


class _Here(threading.local):
    runner: Runner | None = None


here = _Here()
"""The Runner of the calling thread: a Worker, a Leader, a Helper once it has waited, else None."""


def wake(bell: threading.Lock) -> None:
    """Wake the thread that waits for a lock: as soon as a worker, if it is one that calls, lets it run."""
    if (runner := here.runner) is None:
        ring(bell)
    else:
        runner.wake(bell)


class Clock(Protocol):
    """The part of the wheel that workers use."""

    def start(self) -> bool: ...

    def wake(self) -> object: ...

    def set_alarm(self, cell: Cell, when: int) -> None: ...

    def drop_alarm(self, cell: Cell) -> None: ...


class Workers:
    """The line of cells that are ready, and the threads that run them.

    ready      cells in the order of their turns
    computing  workers that were called and neither block nor are parked
    idle       parked workers
    all        all workers
    helping    threads from outside that run an actor now
    latest     the helper whose send made an actor ready last
    callbacks  an application's callbacks that a helper came upon
    jobs       what suspended actors wait for
    refused    how often a worker was wanted and could not be had
    turns      slices run so far, about
    """

    def __init__(self, clock: Clock) -> None:
        self.ready: OrderedDict[Cell, None] = OrderedDict()
        self.computing: set[Worker] = set()
        self.idle: dict[Worker, None] = {}
        self.all: dict[Worker, None] = {}
        self.helping: set[Runner] = set()
        self.refused = 0
        self._excused = 0
        """Workers in an actor that is stuck, beyond MOST_WORKERS: what these wait for may be in the line."""
        self.turns = 0
        self.latest: Runner | None = None
        self.ticking = False
        """The wheel looks at the line every few milliseconds; set by it."""
        self.callbacks = Jobs(self, "callbacks")
        self.jobs = Jobs(self, "commit log")
        self._clock = clock
        self._looked = 0.0
        """The time of the wheel's last look."""
        self._cells: set[Cell] = set()
        """The cells of all actors."""
        self._closing = False
        self._forked = False

    # -- ready

    def make_ready(self, cell: Cell, message: object = None) -> None:
        """Put a cell, with its new message if there is one, at the end of the line, and see to it that a
        thread comes for it.
        """
        self.ready[cell] = None
        runner = here.runner
        if runner is not None and runner.keep(cell, message):
            return
        cell.lazy = False
        if len(self.computing) < SIZE:
            self.call_worker()

    def call_worker(self) -> bool:
        """Start one more worker if there is work and room; False when no thread could be had for it."""
        if self._forked or len(self.computing) >= SIZE or not self.ready:
            return True
        try:
            worker, _ = self.idle.popitem()  # the one that parked last, so that too many of them end
            self.computing.add(worker)
            ring(worker.bell)
        except KeyError:
            if not self._start_worker():
                return False
        if not self.ticking:
            self.ticking = True
            self._clock.wake()
        return True

    def _start_worker(self) -> bool:
        if len(self.all) < MOST_WORKERS + self._excused:
            with suppress(RuntimeError, MemoryError):  # there is no memory for its locks
                worker = Worker(self)
                self.all[worker] = None
                self.computing.add(worker)
                try:
                    start_thread(worker.thread)
                except (RuntimeError, MemoryError):  # the limit of threads: the workers that are there go on
                    self._forget(worker)
                else:
                    return True
        self.refused += 1
        return False

    def _forget(self, worker: Worker) -> None:
        self.computing.discard(worker)
        self.all.pop(worker, None)

    # -- a worker's thread

    def work(self, worker: Worker) -> None:
        """The loop of a worker."""
        here.runner = worker
        THIS_THREAD.blocking = worker
        keep_on(partial(self._run_next, worker))

    def _run_next(self, worker: Worker) -> bool:
        """Run the first cell in the line, or wait to be called; False if the worker is no longer needed."""
        if worker.taken is not None:  # there was no memory to run it
            self.ready[worker.taken] = None
            worker.taken = None
        if len(self.computing) <= SIZE:  # else others came back from the disk: one too many
            try:
                worker.taken = self.ready.popitem(last=False)[0]
            except KeyError:
                pass
        if worker.taken is None:
            return self._park(worker)
        self.run(worker.taken, worker, self._turns())
        worker.taken = None
        if worker.late and (not self.ready or monotonic() - worker.late_since > LATE):
            worker.wake_late()
        return True

    def _park(self, worker: Worker) -> bool:
        """Wait to be called; False if it is no longer needed."""
        worker.wake_late()
        if leave := not self._cells or self._closing:
            self._forget(worker)
        else:
            self.idle[worker] = None
            self.computing.discard(worker)
        if self.ready:  # mail that came before it stood in `idle` woke no thread
            self.call_worker()
        if leave:
            return False
        rang = worker.bell.acquire(timeout=LINGER)
        was_called = self.idle.pop(worker, MISSING) is MISSING
        if not rang and not was_called and self.idle:
            self._forget(worker)
            return False
        self.computing.add(worker)
        return True

    def _turns(self) -> Iterator[tuple[()]]:
        """A slice of a worker: BATCH messages, or fewer once SLICE is over and others are in the line."""
        until = monotonic() + SLICE
        for i in range(1, BATCH):
            yield ()
            if not i & 15 and self.ready and monotonic() > until:
                return

    # -- one slice

    def run(self, cell: Cell, runner: Runner, turns: Iterable[tuple[()]]) -> None:
        """Run a cell that was taken out of `ready`, unless another thread does; `turns` has an item for each message."""
        if not cell.claim.acquire(False):
            return  # it looks at the mail again when it has given the claim back
        outer, worker = runner.cell, runner if type(runner) is Worker else None
        again = False
        try:
            try:
                cell.lazy = False
                runner.cell = cell
                runner.since = monotonic()
                self.turns += 1
                if worker is not None:
                    worker.turn += 1
                if cell.server is not None:
                    cell.context.run(self._slice, cell, cell.server, turns)
                elif type(cell) is Jobs and cell.items:
                    cell.items.popleft()()
            except MemoryError:  # before or behind its callbacks, which end it: its alarm may not be set
                again = True
            except BaseException:  # of Pykka's own loop: the thread is not the actor's to end
                log.exception("a pooled actor raised outside of its callbacks")
            finally:
                if (suspension := cell.suspension) is None:
                    cell.claim.release()
                else:
                    suspension.over()
            if suspension is None:
                server = cell.server
                if again or (
                    server.actor_inbox.has_mail() if server is not None else type(cell) is Jobs and cell.items
                ):
                    self.make_ready(cell)
        finally:
            runner.cell = outer
        if worker is not None and worker.stuck:
            worker.stuck = False
            if not worker.blocks:
                self.computing.add(worker)

    def _slice(self, cell: Cell, server: Server, turns: Iterable[tuple[()]]) -> None:
        """One stretch of Pykka's actor loop."""
        inbox = server.actor_inbox
        if not cell.begun:
            cell.begun = True
            server._actor_loop_setup()  # noqa: SLF001 - Pykka's loop, in its own three steps
        server.on_receive(WAKE, turns)
        if inbox.held is not None:
            server._actor_loop_running()  # noqa: SLF001 - it handles this one and ends: a stop, or CLOSED
        if server.actor_stopped.is_set():
            cell.server = None
            cell.helpable = False
            server._actor_loop_teardown()  # noqa: SLF001
            self._ended(cell)
            self._clock.drop_alarm(cell)
        elif (due := inbox.next_timer()) is not None and not 0 < cell.alarm <= due:
            self._clock.set_alarm(cell, due)

    # -- the first and the last actor

    def launch(self, cell: Cell, server: Server, label: str) -> None:
        """Start an actor; ResourceError when there is no thread at all for it."""
        cell.server = server
        cell.helpable = server.helpable
        self._cells.add(cell)
        self._closing = False
        cell.label = label
        if self._clock.start():
            self.make_ready(cell)
            if self.all or self.call_worker() or self.ready.pop(cell, MISSING) is MISSING:
                return
        cell.server = None
        cell.helpable = False
        self._ended(cell)
        raise no_thread(RuntimeError("can't start new thread"), label)

    def _ended(self, cell: Cell) -> None:
        self._cells.discard(cell)
        if not self._cells:
            self.leave()

    def leave(self) -> None:
        """Wake the parked workers to look whether they are needed any more."""
        for worker in list(self.idle):
            ring(worker.bell)
        self._clock.wake()

    def join(self, timeout: float | None) -> None:
        """Wait for the end of the workers, `timeout` seconds each."""
        for worker in list(self.all):
            if worker.thread is not threading.current_thread():
                # RuntimeError: another thread is about to start it; it will not be needed, and end
                with suppress(RuntimeError):
                    worker.thread.join(timeout)

    def close(self) -> None:
        """End the workers once the line is empty, whether or not actors are left."""
        self._closing = True
        self.leave()

    @property
    def is_needed(self) -> bool:
        """False once the last actor has ended."""
        return bool(self._cells) and not self._closing and not self._forked

    def after_fork(self) -> None:
        """Forget all workers in a forked child: the threads are in the parent, and its actors are never run here."""
        self._forked = True
        self.ready.clear()
        self.computing.clear()
        self.idle.clear()
        self.all.clear()
        here.runner = None
        THIS_THREAD.blocking = NOTHING

    # -- an eye on those that do not move

    def watch(self) -> None:
        """Called by the wheel at each tick: let another worker in for one that has not moved since the last."""
        for worker in list(self.computing):
            if worker.thread.ident is not None and not worker.thread.is_alive():
                self._forget(worker)  # there was no memory for its first steps
            elif worker.turn == worker.seen and not worker.blocks:
                if worker.cell is None and worker.thread.ident is not None:
                    ring(worker.bell)  # it was called, and its caller was interrupted before it rang
                else:  # or before it was started
                    worker.stuck = True
                    worker.wake_late()
                    self.computing.discard(worker)
            worker.seen = worker.turn
        for helper in list(self.helping):
            if helper.since < self._looked:
                helper.give_way()
        self._looked = monotonic()
        self._excused = len(self.stuck()) if len(self.all) >= MOST_WORKERS else 0
        if self.ready and len(self.computing) < SIZE:
            self.call_worker()

    def look_for_left(self) -> None:
        """Make ready what a sender left that the handler of a signal interrupted between two lines."""
        for cell in tuple(self._cells):
            if cell.server is not None and cell not in self.ready and not cell.is_claimed():
                inbox = cell.server.actor_inbox
                if cell.items or inbox.has_signals or not cell.begun:
                    self.make_ready(cell)

    def stuck(self) -> tuple[str, ...]:
        """The actors that have been in one slice for longer than STUCK seconds."""
        now, runners = monotonic(), (*self.all, *self.helping)
        return tuple(
            cell.label for each in runners if (cell := each.cell) is not None and now - each.since > STUCK
        )
