"""warrenmq: RabbitMQ's classic-queue storage as supervised Pykka actors.

with warrenmq.open("data/") as broker:
    jobs = broker.declare_queue("jobs")
    jobs.publish(b"payload").result(timeout=5)      # on disk now
    for delivery in jobs.consume(prefetch=100):
        delivery.ack()
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from warrenmq.errors import (
    AccessRefused,
    ArgumentTypeError,
    ArgumentValueError,
    AskFailed,
    Blocked,
    BrokerClosed,
    CommandInvalid,
    CorruptFile,
    DirectoryInUse,
    Error,
    ForkedProcess,
    Nacked,
    NotFound,
    PreconditionFailed,
    ProcessDied,
    ResourceError,
    ResourceLocked,
    Returned,
    SettingsError,
)
from warrenmq.version import version

if TYPE_CHECKING:
    from warrenmq.actors.sending.confirms import Confirm
    from warrenmq.broker.broker import Broker
    from warrenmq.broker.consumer import Consumer
    from warrenmq.broker.delivery import Delivery, Message
    from warrenmq.broker.handles import Exchange, QueueHandle
    from warrenmq.broker.simple_queue import Queue
    from warrenmq.broker.stats import Stats
    from warrenmq.durable_actors import DurableActor, DurableRef
    from warrenmq.message.properties import Properties
    from warrenmq.opening import open  # noqa: A004
    from warrenmq.settings import Settings

__all__ = [
    "AccessRefused",
    "ArgumentTypeError",
    "ArgumentValueError",
    "AskFailed",
    "Blocked",
    "Broker",
    "BrokerClosed",
    "CommandInvalid",
    "Confirm",
    "Consumer",
    "CorruptFile",
    "Delivery",
    "DirectoryInUse",
    "DurableActor",
    "DurableRef",
    "Error",
    "Exchange",
    "ForkedProcess",
    "Message",
    "Nacked",
    "NotFound",
    "PreconditionFailed",
    "ProcessDied",
    "Properties",
    "Queue",
    "QueueHandle",
    "ResourceError",
    "ResourceLocked",
    "Returned",
    "Settings",
    "SettingsError",
    "Stats",
    "__version__",
    "open",
]

__version__ = version()

_MODULES = {
    "Broker": "broker.broker",
    "Confirm": "actors.sending.confirms",
    "Consumer": "broker.consumer",
    "Delivery": "broker.delivery",
    "DurableActor": "durable_actors.actor",
    "DurableRef": "durable_actors.address",
    "Exchange": "broker.handles",
    "Message": "broker.delivery",
    "Properties": "message.properties",
    "Queue": "broker.simple_queue",
    "QueueHandle": "broker.handles",
    "Settings": "settings",
    "Stats": "broker.stats",
    "open": "opening",
}
"""Public name -> the module that has it."""


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is first asked for.

    The broker takes most of the time of `import warrenmq`, and what reads traces or directories (a verb of
    the command line, a worker of Spark) needs nothing of it.
    """
    if name in _MODULES:
        found = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    elif not name.startswith("_") and find_spec(f"{__name__}.{name}"):
        found = import_module(f"{__name__}.{name}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
