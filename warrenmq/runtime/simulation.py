"""Simulation: the same actors on one thread, in an order that a seed decides, in virtual time.

Same seed, same run: the same messages in the same order at the same times, whatever machine it runs on.
Pykka's own actor loop runs in a greenlet; nothing of an actor's code changes.  Where one actor may be
interrupted by another: at each cast, between any two messages, wherever it waits, and at `checkpoint()`.

    sim = Simulation(seed)
    sim.run(workload)            # the workload calls, casts and waits like any app
    sim.kill(ref); sim.crash()   # one actor, or the whole process, is gone at once
    sim.close()

The limits of simulation are listed in docs/runtime.md.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from random import Random
from typing import Any, Self, TypeVar
from weakref import WeakSet

from pykka import Actor, ActorRef, ActorRegistry, Future

from warrenmq.checks import wrong_type
from warrenmq.errors import CallerError
from warrenmq.runtime.base import Name, Runtime
from warrenmq.runtime.life import inbox_of
from warrenmq.runtime.reasons import KILLED, Killed
from warrenmq.runtime.scheduler import Scheduler, Task
from warrenmq.runtime.simulated_blocking import (
    PerTask,
    SimChannel,
    SimEvent,
    SimFuture,
    SimLock,
    SimSuspension,
)

T = TypeVar("T")
EPOCH_NS = 1_700_000_000_000_000_000


_MOMENT = 20e-6
"""Seconds of a pause."""


class _Stopped:
    """The flag that Pykka's loop looks at: a threading.Event has a lock, and no thread ever waits here."""

    __slots__ = ("_set",)

    def __init__(self) -> None:
        self._set = False

    def set(self) -> None:
        self._set = True

    def is_set(self) -> bool:
        return self._set


class _Begins(Actor):
    """Pykka's beginning of an actor, with a number for a name where Pykka asks the system for a random one."""

    _number = count(1).__next__

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        self.actor_urn = f"urn:simulated:{self._number()}"
        self.actor_inbox = self._create_actor_inbox()
        self.actor_stopped = _Stopped()  # type: ignore[assignment]
        self._actor_ref = ActorRef(self)


class _Classes:
    """The subclasses of actors whose futures belong to one simulation, as Pykka makes a future from an actor's class alone.

    A simulation that is closed leaves them to the next one: classes are dear to make, and the interpreter is fastest with
    those that it knows.
    """

    def __init__(self, exit_: type[BaseException]) -> None:
        class FutureOfOne(SimFuture):
            """A future of this simulation."""

        self.future = FutureOfOne
        self._exit = exit_
        self._made: dict[type[Actor], type[Actor]] = {}

    @classmethod
    def take(cls, scheduler: Scheduler) -> _Classes:
        """Take the classes that a closed simulation left, or make new ones."""
        try:
            taken = _FREE.pop()
        except IndexError:
            taken = cls(scheduler.exit)
        taken.future.scheduler = scheduler
        return taken

    def leave(self) -> None:
        """Leave the classes to the next simulation, and let go of this one's scheduler."""
        del self.future.scheduler
        _FREE.append(self)

    def of(self, actor: type[Actor]) -> type[Actor]:
        """The subclass of this class of actors."""
        if (known := self._made.get(actor)) is None:
            exit_ = self._exit

            def handle_receive(self: Actor, message: Any) -> Any:
                try:
                    return actor._handle_receive(self, message)  # noqa: SLF001 - Pykka calls it, too
                except exit_:  # it was given up; from here Pykka would stop all actors of the process
                    return None
                except Exception as error:
                    if isinstance(error.__cause__, exit_):  # what a plain actor makes of it
                        return None
                    raise

            members = {
                "_create_future": staticmethod(self.future),
                "_handle_receive": handle_receive,
                "__module__": actor.__module__,
            }
            known = self._made[actor] = type(actor.__name__, (actor, _Begins), members)
        return known


_FREE: list[_Classes] = []
"""Classes of closed simulations."""


class SimulationCrashed(Exception):
    """Raised by `run` when another task called `crash`: its function is gone."""


class Simulation(Runtime):
    """A runtime on one thread; all its methods are for that thread.

    Calls, waits and starts made outside of `run` work, too: the code that made the simulation is a task of it.
    """

    def __init__(self, seed: int = 0) -> None:
        self._scheduler = Scheduler(seed)
        self.seed = seed
        self._tokens = Random(f"tokens {seed}")
        """Each kind of chance has a source of its own, so that a change of one does not shift the others."""
        self._suspends = Random(f"suspensions {seed}")
        self._wall_shift_ns = 0
        """By how much the wall clock was put forward, or back."""
        self._actor_tasks: dict[ActorRef[Any], Task] = {}
        """The task of each actor that runs."""
        self._actors: WeakSet[Actor] = WeakSet()
        """Every actor that was started and is still in memory."""
        self._application: Task | None = None
        """The task of the `run` that is going on."""
        self._classes: _Classes | None = None
        self._is_closed = False
        self.checkpoint = self._scheduler.checkpoint  # type: ignore[method-assign]
        super().__init__()

    @property
    def has_ended(self) -> bool:
        return self._is_closed or super().has_ended

    # -- what a scheduler is

    def launch(self, ref: ActorRef[Any], label: str, loop: Callable[[], None]) -> None:
        background = getattr(ref.actor_class, "background", False)
        if isinstance(actor := getattr(loop, "__self__", None), Actor):
            self._actors.add(actor)

        def run() -> None:
            loop()
            self._actor_tasks.pop(ref, None)

        try:
            self._actor_tasks[ref] = self._scheduler.spawn(label, run, actor=True, background=background)
        except CallerError:
            ActorRegistry.unregister(ref)
            raise

    def runs_here(self, ref: ActorRef[Any]) -> bool:
        return self._actor_tasks.get(ref) is self._scheduler.current

    def actor_class(self, actor: type[Actor]) -> type[Actor]:
        return self._own_classes().of(super().actor_class(actor))

    def _own_classes(self) -> _Classes:
        if self._classes is None:
            self._classes = _Classes.take(self._scheduler)
        return self._classes

    def channel(self) -> SimChannel:
        return SimChannel(self._scheduler)

    def reply_box(self, dest: ActorRef[Any] | Name, request: Any) -> SimChannel:
        return SimChannel(self._scheduler, ("reply", dest, request))

    def event(self) -> SimEvent:
        return SimEvent(self._scheduler)

    def lock(self) -> SimLock:
        return SimLock(self._scheduler)

    def future(self) -> Future[Any]:
        return self._own_classes().future()

    def per_thread(self, make: Callable[[], T]) -> PerTask[T]:
        return PerTask(self._scheduler, make)

    def monotonic_ns(self) -> int:
        return self._scheduler.now

    def wall_ns(self) -> int:
        return EPOCH_NS + self._scheduler.now + self._wall_shift_ns

    def shift_wall_clock(self, seconds: float) -> None:
        """Set the wall clock forwards, or with a negative number back, as an administrator does; virtual time
        goes on as it was.
        """
        self._wall_shift_ns += round(seconds * 1e9)

    def pause(self) -> None:
        self._scheduler.wait([], "others for a moment", _MOMENT)

    def suspension(self) -> SimSuspension | None:
        """A suspension of one wait in four: whether there are others to run is up to the speed of things."""
        return None if self._suspends.randrange(4) else SimSuspension(self._do_job, self.event())

    def _do_job(self, job: Callable[[], object]) -> None:
        def run() -> None:
            try:
                job()
            except BaseException as error:
                self.caught(error)
                raise

        self._scheduler.spawn("job", run, actor=False)

    def token_bytes(self, n: int) -> bytes:
        return self._tokens.randbytes(n)

    # -- the application

    def run(self, application: Callable[[], T]) -> T:
        """Run a function together with all actors until it returns; Deadlock if it never can.

        Raises the exception of any application task, and one that ends an actor without being an Exception or a
        SystemExit (a simulated power cut, Ctrl-C), in the latter case as after `crash`.
        """
        result: list[T] = []
        done = self.event()

        def body() -> None:
            result.append(application())
            done.set()

        before = self._application
        task = self._application = self._scheduler.spawn("application", body, actor=False)
        try:
            done.wait()
        except BaseException:
            self._scheduler.abandon(task)
            raise
        finally:
            self._application = before
        return result[0]

    def spawn(self, function: Callable[[], object], name: str = "", *, as_outside: bool = False) -> None:
        """Run one more function beside `run`'s; what it raises is raised by `run`.

        `as_outside`: what there is once for each task (`per_thread`) it shares with the code outside of `run`.
        """
        task = self._scheduler.spawn(name or getattr(function, "__name__", "task"), function, actor=False)
        if as_outside:
            task.shares = self._scheduler.outside

    @property
    def running(self) -> str:
        """The name of the actor or application task that runs now."""
        return self._scheduler.current.name

    # -- one turn at a time

    def can_run(self) -> list[str]:
        """The actors and application tasks whose turn may come now, in the order of their start."""
        return [task.name for task in self._scheduler.can_run()]

    def turn(self, name: str | None = None) -> bool:
        """Let one of them run up to its next checkpoint or wait, and no other; for code outside of `run` alone.

        Without a name the seed chooses, and time jumps to the next timer if nothing can run; Deadlock if
        there is none.  False if the one that is named cannot run.
        """
        if name is None:
            self._scheduler.turn()
            return True
        for task in self._scheduler.can_run():
            if task.name == name:
                self._scheduler.turn(task)
                return True
        return False

    def outside_until(self, function: Callable[[], object], is_over: Callable[[], bool]) -> bool:
        """Call a function here, outside of `run`, until it returns or `is_over()` is true at the end of a
        turn; False if it returned.

        Where it is over the function is given up, as a task that is killed, and the actors stand where they are.
        """
        checkpoint = self.checkpoint
        self.checkpoint = lambda: self._scheduler.checkpoint()  # type: ignore[method-assign]  # noqa: PLW0108 - the one of now
        try:
            return self._scheduler.outside_until(function, is_over)
        finally:
            self.checkpoint = checkpoint  # type: ignore[method-assign]

    # -- sudden ends

    def kill(self, ref: ActorRef[Any]) -> None:
        """End an actor where it stands: it never runs again, not even its `finally`."""
        if not isinstance(ref, ActorRef):
            raise wrong_type("ref", ref, "an ActorRef, as whereis(name) returns it")
        task = self._actor_tasks.get(ref)
        if task is None or task.gone:
            return
        itself = task is self._scheduler.current
        if itself:
            self._scheduler.free(task)  # its fence, too: a write that it is about to do never happens
        else:
            self._scheduler.abandon(task)
        if (life := self._living.get(ref)) is not None:
            life.close_trace(KILLED)
        self.disown(ref)
        inbox = inbox_of(ref)  # its end may have been under way: finish that in its place
        inbox.drain()
        ActorRegistry.unregister(ref)
        ref.actor_stopped.set()
        inbox.notify_closed()
        if itself:
            self._scheduler.abandon(task)
            self._scheduler.leave()

    def crash(self) -> None:
        """End the process, as SIGKILL does: actors and application tasks are gone, and no callback runs.

        Only the caller goes on, if it is `run`'s function or outside of `run`; else `run` raises SimulationCrashed.  Start
        anew on this simulation, or on another.
        """
        self._wipe_out()
        if (me := self._scheduler.current) not in (self._scheduler.outside, self._application):
            self._scheduler.leave(SimulationCrashed(f"{me.name} called crash()"))

    def _wipe_out(self) -> None:
        for ref, life in list(self._living.items()):
            life.over = True
            inbox = inbox_of(ref)
            inbox.vanish()
            inbox.fence.cut = True
            ref.actor_stopped.set()
        for ref in self._actor_tasks:  # also of those that Pykka knows and that have not begun to live
            ActorRegistry.unregister(ref)
        self._living.clear()
        self._names.clear()
        self._actor_tasks.clear()
        for task in self._scheduler.tasks():
            if task is not self._application or task is not self._scheduler.current:
                self._scheduler.abandon(task)

    def passes(self, error: BaseException) -> bool:
        return not isinstance(error, (Exception, SystemExit))

    def caught(self, error: BaseException) -> None:
        if not isinstance(error, (Exception, SystemExit, Killed, self._scheduler.exit)):
            self._wipe_out()
            self._scheduler.leave(error)

    def close(self) -> None:
        """Take down what is left and free its frames; nothing of it runs but `finally` blocks, fenced off.

        Actors refer to what refers to them.  Without their attributes all of it is freed at once, where the
        garbage collector would take longer than to run most of them.
        """
        self.crash()
        self._is_closed = True
        for task in self._scheduler.tasks():
            self._scheduler.unwind(task)
        for actor in self._actors:
            vars(actor.actor_inbox).clear()
            vars(actor).clear()
        if self._classes is not None:
            self._classes.leave()
            self._classes = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
