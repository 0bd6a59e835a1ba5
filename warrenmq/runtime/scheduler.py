"""Scheduler: tasks on one thread, a seed that decides which runs next, and time that passes only here.

A task is a greenlet: an actor's loop, or a function of the test.  It runs until it waits or comes to a
checkpoint where the seed says that another one's turn has come.  The code that made the scheduler is a task as
well ("outside"): when it waits, it drives the others.

Time: each checkpoint costs a little; when nothing can run, time jumps to the next deadline.  How restless the
schedule is and how slow the machine, each seed draws for itself, so that a few hundred seeds hold runs that
switch at every point as well as runs with long bursts, and timers that fire amid the work as well as after it.

Rules for maintainers: nothing here may depend on wall time, `hash`, `id` or the order of a set; a draw from the
seed is made at the same places in every run.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from threading import get_ident
from typing import Any, Protocol

from warrenmq.errors import CallerError

START_NS = 1_000_000_000
RESTLESSNESS = (0.05, 0.3, 1.0)
"""The probabilities that another task gets its turn at a checkpoint."""
STEP_NS = (1_000, 10_000, 100_000)
"""Virtual time of a checkpoint; so a 25 ms timer fires after 25,000, 2,500 or 250 of them in a busy system."""


BACKGROUND_TURNS = 10_000
"""Turns of background tasks alone, after which nothing else can be expected to happen."""


class Deadlock(Exception):
    """Raised when no task can run and no timer will change that; lists each task with what it waits for."""


class Releasable(Protocol):
    """A lock that can be taken away from a task that will never run again."""

    def release_of(self, task: Task) -> None: ...


class Task:
    """One flow of control."""

    __slots__ = (
        "actor", "background", "gone", "greenlet", "locks", "name", "shares", "ticket", "timed_out", "waits_for",
        "woken_among",
    )  # fmt: skip

    def __init__(self, name: str, *, actor: bool, background: bool = False) -> None:
        self.name = name
        self.shares: Task | None = None
        """The task whose objects (PerTask) it uses in place of its own."""
        self.actor = actor
        self.background = background
        """True if its timers alone do not keep a simulation going."""
        self.greenlet: Any = None
        self.gone = False
        """Given up: it will never run again."""
        self.waits_for: object = None
        """A description of what it waits for; None while it can run."""
        self.ticket = 0
        """Counts its waits, so that the deadline of an earlier one is known to be stale."""
        self.timed_out = False
        self.woken_among: list[Task] | None = None
        """Tasks that it waited with, between being woken and going on."""
        self.locks: list[Releasable] = []
        """Locks that it holds."""


class Scheduler:
    """Runs tasks, one at a time."""

    def __init__(self, seed: object) -> None:
        try:
            import greenlet  # type: ignore[import-untyped]  # noqa: PLC0415 - an optional dependency

            from warrenmq.runtime.carriers import carrier  # noqa: PLC0415 - needs it, too
        except ImportError as error:
            msg = "simulation needs the greenlet package: pip install 'warrenmq[simulation]'"
            raise ImportError(msg) from error
        self._greenlet = greenlet.greenlet
        self._carrier = carrier
        self.exit: type[BaseException] = greenlet.GreenletExit
        """Raised in a task that is given up, should it ever run again."""
        rng = Random(f"schedule {seed}")
        self._draw = rng.random
        self._restlessness = rng.choice(RESTLESSNESS)
        """The chance that a checkpoint is a change of tasks."""
        self._step_ns = rng.choice(STEP_NS)
        """The virtual time that passes at each checkpoint."""
        self.now = START_NS
        self._ready: list[Task] = []
        """Tasks that could run; the seed chooses among them."""
        self._deadlines: list[tuple[int, int, Task, int]] = []
        """A heap of (due, a count that breaks ties, task, its ticket then): a ticket that has changed makes it stale."""
        self._count = 0
        self._one_turn = False
        """The next checkpoint ends the turn."""
        self._background_turns = 0
        """The number of jumps to a background task's deadline since any other task could run."""
        self._tasks: dict[Task, None] = {}
        self.outside = self.current = Task("outside", actor=False)
        self._hub = greenlet.getcurrent()
        """The greenlet of the task `outside`."""
        self._thread = get_ident()

    # -- for tasks

    def spawn(self, name: str, run: Callable[[], Any], *, actor: bool, background: bool = False) -> Task:
        """Add a task; it has its first turn when the seed says so."""
        self._check_thread()
        task = Task(name, actor=actor, background=background)

        def main() -> None:
            try:
                run()
            finally:
                self._forget(task)

        task.greenlet = self._carrier(main, self._hub)
        self._tasks[task] = None
        self._ready.append(task)
        return task

    def checkpoint(self) -> None:
        """Perhaps another task runs now."""
        task = self.current
        if task.gone:
            raise self.exit
        self.now = now = self.now + self._step_ns
        deadlines = self._deadlines
        if deadlines and deadlines[0][0] <= now:
            self._ring()
        ready = self._ready
        if self._one_turn:
            self._check_thread()
            ready.append(task)
            self._switch(task)
        elif ready and self._draw() < self._restlessness:
            self._check_thread()
            ready.append(task)
            if task is self.outside:
                self._switch(task)
                return
            # as _switch and _pick do, without four calls: somebody can run, and no deadline is due
            at = int(self._draw() * len(ready))
            turn, ready[at] = ready[at], ready[-1]
            ready.pop()
            if turn is not task:
                self.current = turn
                (self._hub if turn is self.outside else turn.greenlet).switch()

    def wait(self, waiters: list[Task], waits_for: object, timeout: float | None) -> bool:
        """Wait among `waiters` until woken; False when `timeout` seconds pass first."""
        self._check_thread()
        task = self.current
        if task.gone:
            raise self.exit
        task.waits_for = waits_for
        task.timed_out = False
        waiters.append(task)
        if timeout is not None:
            self._count += 1
            due = self.now + max(0, round(timeout * 1e9))
            heappush(self._deadlines, (due, self._count, task, task.ticket))
        try:
            if task is self.outside:
                self._switch(task)
            else:
                self._hand_over(task)
        finally:
            task.woken_among = None
            if task in waiters:  # not woken: time is up, or something was raised here
                waiters.remove(task)
        return not task.timed_out

    def wake(self, waiters: list[Task]) -> None:
        """Wake the task that has waited longest."""
        while waiters:
            task = waiters.pop(0)
            if not task.gone and task.waits_for is not None:
                task.woken_among = waiters
                self._resume(task)
                return

    # -- for the main task, when a test or a lens chooses which task runs

    def can_run(self) -> list[Task]:
        """The tasks whose turn may come now, in the order of their start."""
        self._ring()
        ready = set(self._ready)
        return [task for task in self._tasks if task in ready]

    def turn(self, chosen: Task | None = None) -> None:
        """Let one task run up to its next checkpoint or wait: `chosen`, which must be able to, or one that the seed chooses.

        If nothing can run, time jumps to the next deadline; Deadlock if there is none.
        """
        if chosen is None:
            chosen = self._pick()
        else:
            self._ready.remove(chosen)
        self._one_turn, self.current = True, chosen
        try:
            chosen.greenlet.switch()
        finally:
            self._one_turn, self.current = False, self.outside

    def outside_until(self, run: Callable[[], Any], is_over: Callable[[], bool]) -> bool:
        """Run code as the outside until it returns, or until `is_over()` where a task could give its turn
        away; False if it returned.

        Where it is over everything stands still: the code never goes on, and whoever called this is the outside from now on.
        """
        caller, before, over = self._hub, self.outside, False

        def look(then: Callable[..., Any]) -> Callable[..., Any]:
            def looked(*args: Any) -> Any:
                nonlocal over
                if not over and is_over():
                    over = True
                    if self.current is not before:
                        self._ready.append(self.current)
                    caller.switch()
                return then(*args)

            return looked

        self._hub = self._greenlet(run, parent=caller)
        methods = {name: look(getattr(self, name)) for name in ("checkpoint", "wait")}
        vars(self).update(methods)
        try:
            self._hub.switch()
        finally:
            for name in methods:
                delattr(self, name)
            for task in self._tasks:
                task.greenlet.parent = caller
            if over:
                before.greenlet = self._hub
                self._tasks[before] = None  # so that it is unwound with the others
                self.outside = self.current = Task("outside", actor=False)
                self._one_turn = False
                self.abandon(before)
            self._hub = caller
        return over

    # -- for the simulation

    def abandon(self, task: Task) -> None:
        """Never let it run again; what it holds is free."""
        task.gone = True
        task.ticket += 1
        if task in self._ready:
            self._ready.remove(task)
        if task.woken_among is not None:  # another task may take what it was woken for
            self.wake(task.woken_among)
        self.free(task)

    def free(self, task: Task) -> None:
        """Release the locks that it holds."""
        for lock in list(task.locks):
            lock.release_of(task)

    def tasks(self) -> list[Task]:
        """All tasks but the main one, in order of their start, given-up ones included."""
        return list(self._tasks)

    def leave(self, error: BaseException | None = None) -> None:
        """Go from an abandoned task to the outside for ever; with an error, raise it there."""
        task = self.current
        if task is self.outside:
            if error is not None:
                raise error
            return
        if error is None:
            self._hub.switch()
        else:
            self._hub.throw(error)

    def unwind(self, task: Task) -> None:
        """Let an abandoned task's frames go, so that nothing keeps them alive."""
        self.current = task
        try:
            task.greenlet.throw(self.exit)
        except BaseException:  # noqa: BLE001, S110 - it is given up, and so is what it has to say
            pass
        finally:
            self.current = self.outside
            self._forget(task)

    # -- inside

    def _check_thread(self) -> None:
        if get_ident() != self._thread:
            msg = (
                "a simulation runs in the thread that made it, and this is another one; "
                "in place of a thread give it a task, with `sim.spawn(function)`"
            )
            raise CallerError(msg)

    def _forget(self, task: Task) -> None:
        """Let go of a task that is over, and of its greenlet, which holds it in turn."""
        self._tasks.pop(task, None)
        task.greenlet = None

    def _switch(self, task: Task) -> None:
        """Let others run until the turn of `task`, the current one, comes again."""
        if task is not self.outside:
            self._hand_over(task)
            return
        try:
            while (turn := self._pick()) is not task:
                self.current = turn
                turn.greenlet.switch()  # until a task ends, or one hands over to the outside
                if self.current is task:
                    return
        except BaseException:  # of another task, or Deadlock: it goes on with that
            task.ticket += 1
            task.waits_for = None
            if task in self._ready:
                self._ready.remove(task)
            raise
        finally:
            self.current = task

    def _hand_over(self, task: Task) -> None:
        """Switch from a task to the next one directly, which takes half the time of the way through the outside."""
        if self._one_turn:
            self._hub.switch()
            return
        try:
            turn = self._pick()
        except Deadlock as error:
            self._hub.throw(error)
            return
        if turn is not task:
            self.current = turn
            (self._hub if turn is self.outside else turn.greenlet).switch()

    def _pick(self) -> Task:
        deadlines, ready = self._deadlines, self._ready
        if deadlines and deadlines[0][0] <= self.now:
            self._ring()
        while not ready:
            self._jump()
        at = int(self._draw() * len(ready))
        turn, ready[at] = ready[at], ready[-1]
        ready.pop()
        return turn

    def _ring(self) -> None:
        deadlines = self._deadlines
        while deadlines and deadlines[0][0] <= self.now:
            _due, _count, task, ticket = heappop(deadlines)
            if task.ticket == ticket:
                task.timed_out = True
                self._resume(task)

    def _jump(self) -> None:
        while self._deadlines:
            due, _count, task, ticket = self._deadlines[0]
            if task.ticket == ticket:
                if task.background:
                    self._background_turns += 1
                    if self._background_turns > BACKGROUND_TURNS and self._only_background():
                        self._background_turns = 0
                        break
                self.now = due
                self._ring()
                return
            heappop(self._deadlines)
        raise Deadlock(self._who_waits())

    def _only_background(self) -> bool:
        return all(task.background or task.ticket != ticket for _due, _count, task, ticket in self._deadlines)

    def _resume(self, task: Task) -> None:
        if not task.background:
            self._background_turns = 0
        task.ticket += 1
        task.waits_for = None
        self._ready.append(task)

    def _who_waits(self) -> str:
        waiting = [
            task for task in [self.outside, *self._tasks] if task.waits_for is not None and not task.gone
        ]
        lines = [f"  {task.name} waits for {_in_words(task)}" for task in waiting]
        return "nothing can run, and no timer will change that:\n" + "\n".join(lines)


def _in_words(task: Task) -> str:
    match task.waits_for:
        case ("reply", dest, request):
            return f"the reply of {dest} to {type(request).__name__}"
        case "a channel" if task.actor:
            return "mail"
        case words:
            return str(words)
