"""Exchanges and bindings: which queues a message goes to.  Pure functions and data, no actor."""

from warrenmq.routing.declared import PREDECLARED, Binding, Destination, ExchangeSpec
from warrenmq.routing.exchange_types import TYPES
from warrenmq.routing.router import Router

__all__ = ["PREDECLARED", "TYPES", "Binding", "Destination", "ExchangeSpec", "Router"]
