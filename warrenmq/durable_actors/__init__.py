"""Durable actors: Pykka actors whose messages are persistent and acked when they have been handled (docs/durable-actors.md).

In the order of reading:

    actor       DurableActor: takes messages from its queue, one at a time, with its state and its acks
    address     DurableRef: tell and ask, from any process that has the broker
    replies     the answers to the asks of a process
    ownership   one incarnation of an actor at a time takes and settles messages
    refusals    which refused writes are tried again, and when: what a full disk means
    codec       messages and state as bytes: msgpack or JSON, with dataclasses; never pickle
    snapshot    the file of an actor's state
"""

from warrenmq.durable_actors.actor import DurableActor
from warrenmq.durable_actors.address import DurableRef

__all__ = ["DurableActor", "DurableRef"]
