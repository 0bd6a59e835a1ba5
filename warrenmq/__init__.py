"""warrenmq: RabbitMQ's classic-queue storage as supervised Pykka actors.

with warrenmq.open("data/") as broker:
    jobs = broker.declare_queue("jobs")
    jobs.publish(b"payload").result(timeout=5)      # on disk now
    for delivery in jobs.consume(prefetch=100):
        delivery.ack()
"""

from warrenmq.actors.sending.confirms import Confirm
from warrenmq.broker.broker import Broker, Exchange, open  # noqa: A004
from warrenmq.broker.consumer import Consumer, Delivery
from warrenmq.broker.simple_queue import Queue
from warrenmq.broker.stats import Stats
from warrenmq.errors import (
    AccessRefused,
    ArgumentTypeError,
    ArgumentValueError,
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
from warrenmq.message.properties import Properties
from warrenmq.settings import Settings
from warrenmq.version import version

__all__ = [
    "AccessRefused",
    "ArgumentTypeError",
    "ArgumentValueError",
    "Blocked",
    "Broker",
    "BrokerClosed",
    "CommandInvalid",
    "Confirm",
    "Consumer",
    "CorruptFile",
    "Delivery",
    "DirectoryInUse",
    "Error",
    "Exchange",
    "ForkedProcess",
    "Nacked",
    "NotFound",
    "PreconditionFailed",
    "ProcessDied",
    "Properties",
    "Queue",
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
