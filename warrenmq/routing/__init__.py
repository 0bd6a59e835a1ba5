"""Exchanges and bindings: which queues a message goes to.  Pure functions and data, no actor."""

from warrenmq.routing.router import EXCHANGE_TYPES, PREDECLARED, Binding, ExchangeSpec, Router

__all__ = ["EXCHANGE_TYPES", "PREDECLARED", "Binding", "ExchangeSpec", "Router"]
