"""The rows of the vhost process about exchanges and bindings."""

from __future__ import annotations

from warrenmq.routing import Binding, ExchangeSpec
from warrenmq.routing.declared import PREDECLARED
from warrenmq.trace.events import (
    BindingGone,
    BindingMade,
    Bound,
    ExchangeDeclared,
    ExchangeDeleted,
    ExchangeType,
)
from warrenmq.trace.recorder import ActorTrace, Recorder
from warrenmq.trace.writers import writer

_write_declared, _write_deleted = writer(ExchangeDeclared), writer(ExchangeDeleted)
_write_bound, _write_unbound = writer(BindingMade), writer(BindingGone)
_ALWAYS_THERE = frozenset(spec.name for spec in PREDECLARED)


class RoutingTrace:
    """A listener of a Router that writes a row for each of its changes."""

    def __init__(self, recorder: Recorder, trace: ActorTrace) -> None:
        self._text = recorder.text
        self._trace = trace

    def exchange_added(self, spec: ExchangeSpec) -> None:
        """Write the row of an exchange that was declared."""
        if spec.name not in _ALWAYS_THERE:
            alternate = 0 if spec.alternate is None else self._text(spec.alternate)
            kind = ExchangeType[spec.type.upper().replace("-", "_")]
            _write_declared(self._trace, kind, self._text(spec.name), alternate)

    def exchange_removed(self, name: str) -> None:
        """Write the row of an exchange that was deleted."""
        _write_deleted(self._trace, self._text(name))

    def bound(self, binding: Binding) -> None:
        """Write the row of a binding that was made."""
        _write_bound(self._trace, *self._ends_of(binding))

    def unbound(self, binding: Binding) -> None:
        """Write the row of a binding that was removed."""
        _write_unbound(self._trace, *self._ends_of(binding))

    def _ends_of(self, binding: Binding) -> tuple[int, int, int, int]:
        text, to = self._text, Bound[binding.destination_type.upper()]
        return to, text(binding.source), text(binding.destination), text(binding.routing_key)
