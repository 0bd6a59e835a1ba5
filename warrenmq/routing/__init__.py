"""Exchanges and bindings: which queues a message goes to.  Pure functions and data, no actor.

In the order of reading:

    declared          what is declared
    router            the queues of a message
    exchange_types    how each type chooses
    topic             patterns of words
    headers           x-match
    message_options   CC, BCC, expiration
    delayed           x-delayed-message
"""

from warrenmq.routing.declared import PREDECLARED, Binding, Destination, ExchangeSpec
from warrenmq.routing.exchange_types import TYPES
from warrenmq.routing.router import Router

__all__ = ["PREDECLARED", "TYPES", "Binding", "Destination", "ExchangeSpec", "Router"]
