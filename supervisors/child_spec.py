"""ChildSpec: what a supervisor needs to know of a child (OTP's child_spec()), and its checks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

from pykka import Actor

from warrenmq.runtime.messages import is_normal

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from warrenmq.runtime import Name

Restart = Literal["permanent", "transient", "temporary"]
RESTARTS = get_args(Restart)
ID_TAKEN = "two children have the id {!r}; each needs its own"


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """How to start a child, when to start it again, and how long to wait for its end."""

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

    def __post_init__(self) -> None:
        if not (isinstance(self.actor, type) and issubclass(self.actor, Actor)):
            msg = f"child {self.id!r}: {self.actor!r} is not a Pykka actor class"
            raise TypeError(msg)
        if self.restart not in RESTARTS:
            msg = f"child {self.id!r}: restart is {self.restart!r}, but must be one of {', '.join(RESTARTS)}"
            raise ValueError(msg)
        if self.shutdown is not None and self.shutdown < 0:
            msg = (
                f"child {self.id!r}: shutdown is {self.shutdown!r}, but must be seconds, or None for no limit"
            )
            raise ValueError(msg)


def restarts(restart: Restart, reason: Any) -> bool:
    """Is a child that ended for `reason` started again?

    | restart   | normal, shutdown | anything else |
    | --------- | ---------------- | ------------- |
    | permanent | yes              | yes           |
    | transient | no               | yes           |
    | temporary | no               | no            |
    """
    return restart == "permanent" or (restart == "transient" and not is_normal(reason))


def check_ids(specs: Sequence[ChildSpec]) -> None:
    """Each id once."""
    seen: set[Hashable] = set()
    for spec in specs:
        if spec.id in seen:
            raise ValueError(ID_TAKEN.format(spec.id))
        seen.add(spec.id)
