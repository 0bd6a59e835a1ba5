"""Durable actors: Pykka actors whose messages are persistent and acked when they have been handled (docs/durable-actors.md).

actor.py      DurableActor: takes messages from its queue, one at a time, with its state and its acks
address.py    DurableRef: tell and ask, from any process that has the broker
codec.py      messages and state as bytes: msgpack or JSON, with dataclasses; never pickle
snapshot.py   the file of an actor's state
"""

from warrenmq.durable_actors.actor import DurableActor
from warrenmq.durable_actors.address import DurableRef

__all__ = ["DurableActor", "DurableRef"]
