"""Supervisor: starts children in order, restarts the fallen, stops the rest in reverse (OTP's supervisor).

It runs no code of its children: a crash in one cannot crash it.  It passes on what it cannot mend: more than
`intensity` restarts within `period` seconds, and it stops its children and itself, with reason "shutdown", so
that its own supervisor decides.

A child that does not end within its `shutdown` time is given up: its fence is cut before a successor starts,
so that it can write nothing when it wakes.

A restart that fails because the system has no thread, memory or file descriptor left (ResourceError), or
because the disk is full, is tried again every second and does not count: the child is not to blame, and
giving up would take down what still runs.  Nor does the end of a child that had no memory or descriptor for
what it was about to do; after too many of these its restart waits, too.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from pykka import ActorRef

from warrenmq.checks import converted, is_a, shown
from warrenmq.errors import ArgumentTypeError, ArgumentValueError, CallerError
from warrenmq.log import Log
from warrenmq.runtime import Exit, From, Name, Runtime, Server, Stop, Threads
from warrenmq.runtime.closable import ALIVE
from warrenmq.runtime.life import inbox_of, reason_number
from warrenmq.runtime.messages import Info
from warrenmq.runtime.reasons import SHUTDOWN, CallFailed, in_words
from warrenmq.runtime.shortage import may_pass, shortage
from warrenmq.supervisors.calls import (
    ChildInfo,
    DeleteChild,
    RestartChild,
    StartChild,
    StopChild,
    TryAgain,
    WhichChildren,
)
from warrenmq.supervisors.child_spec import ID_TAKEN, ChildSpec, check_children, check_significant, restarts
from warrenmq.supervisors.strategy import AutoShutdown, Intensity, Strategy, affected, check_strategy
from warrenmq.trace.events import ChildExit, ChildStart, Escalate, Restart
from warrenmq.trace.writers import writer

_write_restart, _write_escalate = writer(Restart), writer(Escalate)
_write_child_start, _write_child_exit = writer(ChildStart), writer(ChildExit)

log = Log("warrenmq.supervisors")

SHORTAGE_RETRY = 1.0
"""Seconds between tries to restart a child for which the system has no thread, memory or room on the disk."""
SIDE_BY_SIDE = 16
"""Children of a simple_one_for_one that are stopped at a time: thousands of threads that wake at once keep
each other from work.
"""


class Child:
    """A child's spec and its present incarnation."""

    __slots__ = ("again", "ref", "spec", "trace_id")

    def __init__(self, spec: ChildSpec) -> None:
        self.spec = spec
        self.ref: ActorRef[Any] | None = None
        """The child's actor; None while it does not run."""
        self.again: TryAgain | None = None
        """The restart that is to be tried (OTP's restarting); None once it was, or is not wanted any more."""
        self.trace_id = 0
        """The trace's number of the present or the last incarnation."""


class Supervisor(Server):
    """Override `children` (or pass them); set strategy, intensity, period and auto_shutdown on the class (or pass them)."""

    trap_exit = True
    strategy: Strategy = "one_for_one"
    intensity: int = 1
    period: float = 5.0
    auto_shutdown: AutoShutdown = "never"
    """The supervisor ends, for the reason "shutdown", when any or all of its significant children have ended
    for good; or never.
    """

    # State (OTP's #state{}):
    #   _children   id -> Child, in order of start (#state.children)
    #   _by_ref     running children by their reference
    #   _template   the one spec of a simple_one_for_one supervisor; its children are numbered by _born
    #   _restarts   the times of recent restarts (#state.restarts)
    #   _shortages  the times of those after which something was missing

    @classmethod
    def start_link(
        cls, *args: Any, runtime: Runtime | None = None, name: Name | None = None, **kwargs: Any
    ) -> ActorRef[Any]:
        """Start a supervision tree in `runtime`, or, for an app that has none, in one of its own."""
        return (runtime or Threads()).start(cls, *args, name=name, **kwargs)

    def children(self, *args: Any) -> Iterable[ChildSpec]:
        """The children, in the order to start them in."""
        msg = f"{type(self).__name__} has no children; override `children`, or pass them (it was given {len(args)} arguments)"
        raise ArgumentTypeError(msg)

    def init(self, *args: Any, **options: Any) -> None:
        specs = self._configure(*args, **options)
        self._children: dict[Hashable, Child] = {}
        self._by_ref: dict[ActorRef[Any], Child] = {}
        self._born = 0
        check_children(specs, self._auto_shutdown)
        if self._strategy == "simple_one_for_one":
            if len(specs) != 1:
                raise ValueError(f"simple_one_for_one takes one child as its template, not {len(specs)}")
            self._template = specs[0]
            return
        try:
            for spec in specs:
                self._add(spec)
        except BaseException:
            self._shut_down(list(self._children.values()))
            raise

    def _configure(
        self,
        *args: Any,
        children: Iterable[ChildSpec] | None = None,
        strategy: Strategy | None = None,
        intensity: int | None = None,
        period: float | None = None,
        auto_shutdown: AutoShutdown | None = None,
    ) -> list[ChildSpec]:
        self._strategy = self.strategy if strategy is None else strategy
        limit = self.intensity if intensity is None else intensity
        seconds = self.period if period is None else period
        self._auto_shutdown = self.auto_shutdown if auto_shutdown is None else auto_shutdown
        check_strategy(self._strategy, limit, seconds, self._auto_shutdown)
        self._restarts = Intensity(limit, round(seconds * 1e9))
        self._shortages = Intensity(limit, round(seconds * 1e9))
        return list(self.children(*args) if children is None else children)

    # -- what others may ask

    def handle_call(self, request: Any, _sender: From) -> Any:
        try:
            return self._serve(request), None
        except Stop:
            raise
        except Exception as error:  # noqa: BLE001 - the caller's mistake, or the child's: raised at the caller
            return None, error

    def _serve(self, request: Any) -> Any:
        match request:
            case StartChild():
                return self._add(self._spec_of(request)).ref
            case StopChild():
                child = self._child(request.id)
                if request.by is not None and child.ref is request.by:
                    msg = f"child {request.id!r} cannot wait for its own end; let it raise Stop, or another actor ask"
                    raise CallerError(msg)
                self._shut_down([child])
                if self._strategy == "simple_one_for_one" or child.spec.restart == "temporary":
                    del self._children[request.id]
                return None
            case RestartChild():
                child = self._child(request.id)
                if child.ref is not None:
                    raise ValueError(f"child {request.id!r} is running")
                self._start(child)
                return child.ref
            case DeleteChild():
                child = self._child(request.id)
                if child.ref is not None or child.again is not None:
                    doing = "is running" if child.again is None else "is about to be restarted"
                    raise ValueError(f"child {request.id!r} {doing}; stop it first")
                del self._children[request.id]
                return None
            case WhichChildren():
                return [ChildInfo(child.spec.id, child.ref, child.spec) for child in self._children.values()]
        raise NotImplementedError(request)

    def _child(self, id: Hashable) -> Child:
        child = None if converted(hash, id) is None else self._children.get(id)
        if child is None:
            raise ArgumentValueError(f"no child has the id {shown(id)}")
        return child

    def _spec_of(self, request: StartChild) -> ChildSpec:
        if self._strategy != "simple_one_for_one":
            if len(request.args) == 1 and is_a(request.args[0], ChildSpec):
                spec: ChildSpec = request.args[0]
                check_significant(spec, self._auto_shutdown)
                return spec
            msg = f"a {self._strategy} supervisor starts a child from a ChildSpec, and nothing else"
            raise ArgumentValueError(msg)
        like = self._template
        self._born += 1
        return ChildSpec(
            (like.id, self._born) if request.name is None else request.name,
            like.actor,
            (*like.args, *request.args),
            {**like.kwargs, **request.kwargs},
            like.restart,
            like.shutdown,
            request.name,
            like.significant,
        )

    def _add(self, spec: ChildSpec) -> Child:
        if (known := self._children.get(spec.id)) is not None and known.ref is not None:
            reason = inbox_of(known.ref).reason
            if reason is not ALIVE and not restarts(known.spec.restart, reason):
                self._see_off(known)  # it is about to end, or its Exit is still on its way
                self._fallen(known, reason)
        if spec.id in self._children:
            raise ValueError(ID_TAKEN.format(spec.id))
        child = Child(spec)
        self._start(child)
        self._children[spec.id] = child
        return child

    # -- deaths

    def handle_info(self, message: Any) -> None:
        match message:
            case Exit() if message.ref in self._by_ref:
                child = self._by_ref[message.ref]
                self._ended(child, message.reason)
                self._fallen(child, message.reason)
            case TryAgain(child, failed) if child.again is message:
                if failed is not None:
                    self._restart(child, failed)
                else:
                    self._start_again(child, waited=True)

    def terminate(self, reason: Any) -> None:  # noqa: ARG002
        self._shut_down(list(self._children.values()))

    def _fallen(self, child: Child, reason: Any) -> None:
        if restarts(child.spec.restart, reason):
            self._restart(child, reason)
            return
        if child.spec.restart == "temporary" or self._strategy == "simple_one_for_one":
            del self._children[child.spec.id]
        if child.spec.significant and (
            self._auto_shutdown == "any_significant"
            or not any(
                other.spec.significant and (other.ref is not None or other.again is not None)
                for other in self._children.values()
            )
        ):
            raise Stop(SHUTDOWN)

    def _restart(self, child: Child, reason: Any) -> None:
        if isinstance(reason, BaseException) and shortage(reason, "") is not None:
            self._restart_after_shortage(child, reason)
            return
        counted = self._restarts.restart(self.runtime.monotonic_ns())
        self._tell(child, counted, reason, gives_up=counted > self._restarts.limit)
        if counted > self._restarts.limit:
            if reason != SHUTDOWN:  # else it is another supervisor that gave up
                self.runtime.gave_up_after = in_words(reason)
            raise Stop(SHUTDOWN)
        self._start_again(child)

    def _restart_after_shortage(self, child: Child, reason: BaseException) -> None:
        if not self._shortages.limit and self._life.parent is not None:
            # a supervisor that restarts no child alone leaves it to its own supervisor to restart what depends on it, too
            raise Stop(reason)
        counted = self._shortages.restart(self.runtime.monotonic_ns())
        if counted > self._shortages.limit:
            self._stop_affected(child)
            self._wait_to_restart(child, reason)
        else:
            log.warning(
                "child is restarted", supervisor=self._life.label, child=child.spec.id, reason=repr(reason)
            )
            self._start_again(child)

    def _wait_to_restart(self, child: Child, reason: BaseException, *, told: bool = False) -> None:
        if not told:
            log.warning(
                "restart has to wait",
                supervisor=self._life.label,
                child=child.spec.id,
                reason=str(reason) or repr(reason),
            )
        child.again = TryAgain(child, None)
        self.send_after(SHORTAGE_RETRY, child.again)

    def _start_again(self, child: Child, *, waited: bool = False) -> None:
        for one in self._stop_affected(child):
            try:
                self._start(one)
            except Exception as error:
                if not may_pass(error):
                    log.warning(
                        "restart failed", supervisor=self._life.label, child=one.spec.id, exc_info=error
                    )
                    one.again = TryAgain(one, error)
                    self.actor_inbox.send(Info(one.again))
                    return
                self._wait_to_restart(one, error, told=waited)
                return

    def _stop_affected(self, child: Child) -> list[Child]:
        """Stop the children that share its fate; returns those to start again: a temporary one is forgotten."""
        fallen = affected(self._strategy, list(self._children.values()), child)
        self._shut_down(fallen)
        for one in fallen:
            if one.spec.restart == "temporary":
                del self._children[one.spec.id]
        return [one for one in fallen if one.spec.restart != "temporary"]

    def _tell(self, child: Child, counted: int, reason: Any, *, gives_up: bool) -> None:
        limit, period_ms = self._restarts.limit, self._restarts.period_ns // 1_000_000
        if self.trace is not None:
            write = _write_escalate if gives_up else _write_restart
            write(self.trace, child.trace_id, counted, limit, period_ms)
        say = log.error if gives_up else log.warning
        what = "too many restarts: giving up" if gives_up else "child is restarted"
        say(
            what, supervisor=self._life.label, child=child.spec.id, reason=repr(reason),
            restarts=counted, intensity=limit, period_ms=period_ms,
        )  # fmt: skip

    # -- starting and stopping

    def _start(self, child: Child) -> None:
        spec = child.spec
        try:
            ref = self.runtime.start(
                spec.actor, *spec.args, name=spec.name, parent=self.actor_ref, **spec.kwargs
            )
        except BaseException as error:
            is_end = isinstance(error, Stop) or not isinstance(error, Exception)
            if not is_end or self.runtime.passes(error):
                raise
            # the child's, not this actor's, which would end of it, too
            raise CallFailed(error.reason if isinstance(error, Stop) else error) from error
        child.ref, child.again = ref, None
        child.trace_id = inbox_of(ref).trace_id
        self._by_ref[ref] = child
        if self.trace is not None:
            _write_child_start(self.trace, child.trace_id)

    def _ended(self, child: Child, reason: Any) -> None:
        assert child.ref is not None
        del self._by_ref[child.ref]
        child.ref = None
        if self.trace is not None:
            _write_child_exit(self.trace, reason_number(reason), child.trace_id)

    def _shut_down(self, children: Sequence[Child]) -> None:
        """Stop children in reverse order, one after the other; those of a simple_one_for_one side by side,
        the oldest first.  Those that wait to be restarted are not.
        """
        for child in children:
            child.again = None
        running = [child for child in children if child.ref is not None]
        if self._strategy == "simple_one_for_one":
            self._stop_together(running)
        else:
            for child in reversed(running):
                self._see_off(child)

    def _stop_together(self, children: Sequence[Child]) -> None:
        """Stop children that do not depend on each other, `SIDE_BY_SIDE` at a time.

        Once one overruns its time all others are told to stop, so that those that hang cost twice that time at most.
        """
        clock = self.runtime.monotonic_ns
        told_at: list[int] = []
        ahead = SIDE_BY_SIDE
        for number, child in enumerate(children):
            for other in children[len(told_at) : number + ahead]:
                assert other.ref is not None
                told_at.append(clock())
                inbox_of(other.ref).signal(Exit(None, SHUTDOWN))
            if not self._see_off(child, (clock() - told_at[number]) / 1e9):
                ahead = len(children)

    def _see_off(self, child: Child, spent: float = 0.0) -> bool:
        """Wait for the end of a child that was told to stop `spent` seconds ago; False if it overran its time."""
        assert child.ref is not None
        limit = child.spec.shutdown
        in_time = self.runtime.stop_actor(
            child.ref, SHUTDOWN, None if limit is None else max(0.0, limit - spent)
        )
        if not in_time:
            log.warning("child overran its shutdown time and is given up", supervisor=self._life.label,
                        child=child.spec.id, seconds=limit)  # fmt: skip
            self.runtime.disown(child.ref)
        self._ended(child, inbox_of(child.ref).reason)
        return in_time
