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
    """Listens to a Router."""

    def __init__(self, recorder: Recorder, trace: ActorTrace) -> None:
        self._text = recorder.text
        self._trace = trace

    def exchange_added(self, spec: ExchangeSpec) -> None:
        """An exchange is there."""
        if spec.name not in _ALWAYS_THERE:
            alternate = 0 if spec.alternate is None else self._text(spec.alternate)
            kind = ExchangeType[spec.type.upper().replace("-", "_")]
            _write_declared(self._trace, kind, self._text(spec.name), alternate)

    def exchange_removed(self, name: str) -> None:
        """An exchange is gone."""
        _write_deleted(self._trace, self._text(name))

    def bound(self, binding: Binding) -> None:
        """A binding is there."""
        _write_bound(self._trace, *self._ends_of(binding))

    def unbound(self, binding: Binding) -> None:
        """A binding is gone."""
        _write_unbound(self._trace, *self._ends_of(binding))

    def _ends_of(self, binding: Binding) -> tuple[int, int, int, int]:
        text, to = self._text, Bound[binding.destination_type.upper()]
        return to, text(binding.source), text(binding.destination), text(binding.routing_key)
