"""ChildSpec: what a supervisor needs to know of a child (OTP's child_spec()), and its checks."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from pykka import Actor

from warrenmq.checks import converted, exact, is_a, number_of_seconds, seconds, shown
from warrenmq.errors import ArgumentTypeError, ArgumentValueError
from warrenmq.runtime import Name
from warrenmq.runtime.reasons import is_normal
from warrenmq.supervisors.strategy import AutoShutdown

Restart = Literal["permanent", "transient", "temporary"]
RESTARTS = get_args(Restart)
ID_TAKEN = "two children have the id {!r}; each needs its own"


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """A child specification: how to start the child, when to restart it, how long to wait for its end."""

    id: Hashable
    actor: type[Actor]
    """A Server, or any Pykka actor."""
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    restart: Restart = "permanent"
    shutdown: float | None = 5.0
    """Seconds to end in when told to, before it is given up; None to wait for ever (right for supervisors)."""
    name: Name | None = None
    """The name it has in every incarnation."""
    significant: bool = False
    """Its end for good ends its supervisor, as `auto_shutdown` there says; not for permanent children."""

    def __post_init__(self) -> None:
        child = shown(self.id)
        if not (is_a(self.actor, type) and issubclass(self.actor, Actor)):
            raise ArgumentTypeError(f"child {child}: {shown(self.actor)} is not a Pykka actor class")
        if exact(self.restart) not in RESTARTS:
            msg = f"child {child}: restart is {shown(self.restart)}, but must be one of {', '.join(RESTARTS)}"
            raise ArgumentValueError(msg)
        if not is_a(self.significant, bool) or (self.significant and self.restart == "permanent"):
            msg = (
                f"child {child}: significant is {shown(self.significant)}; give True or False, "
                "and True only to transient and temporary children, as a permanent one never ends for good"
            )
            raise ArgumentValueError(msg)
        shutdown = number_of_seconds(f"child {child}: shutdown", self.shutdown)
        if shutdown is not None and shutdown < 0:
            msg = f"child {child}: shutdown is {shown(self.shutdown)}, but must be seconds, or None for no limit"
            raise ArgumentValueError(msg)
        if not (is_a(self.args, tuple) and is_a(self.kwargs, Mapping)):
            msg = f"child {child}: args is {shown(self.args)} and kwargs is {shown(self.kwargs)}; give a tuple and a dict"
            raise ArgumentTypeError(msg)
        for what, value in (("id", self.id), ("name", self.name)):
            if converted(hash, value) is None:
                msg = f"child {child}: {what} is {shown(value)}; give something that can be hashed, as a str"
                raise ArgumentTypeError(msg)
        object.__setattr__(self, "shutdown", seconds("shutdown", shutdown))


def restarts(restart: Restart, reason: Any) -> bool:
    """True if a child that ended for `reason` is started again.

    | restart   | normal, shutdown | anything else |
    | --------- | ---------------- | ------------- |
    | permanent | yes              | yes           |
    | transient | no               | yes           |
    | temporary | no               | no            |
    """
    return restart == "permanent" or (restart == "transient" and not is_normal(reason))


def check_significant(spec: ChildSpec, auto_shutdown: AutoShutdown) -> None:
    """Refuse a significant child of a supervisor that would take no notice of its end."""
    if spec.significant and auto_shutdown == "never":
        msg = f"child {shown(spec.id)} is significant; give its supervisor auto_shutdown any_significant or all_significant"
        raise ArgumentValueError(msg)


def check_children(specs: Sequence[ChildSpec], auto_shutdown: AutoShutdown = "never") -> None:
    """Check that each id occurs once, and that significant children have a supervisor that takes notice of them."""
    seen: set[Hashable] = set()
    for spec in specs:
        if not is_a(spec, ChildSpec):
            raise ArgumentTypeError(f"a child is {shown(spec)}; give a ChildSpec")
        check_significant(spec, auto_shutdown)
        if spec.id in seen:
            raise ValueError(ID_TAKEN.format(spec.id))
        seen.add(spec.id)
