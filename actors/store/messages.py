"""The messages to a message store, to its garbage collector, and from a store to its clients.

| message         | from           | to    | kind | priority |
| --------------- | -------------- | ----- | ---- | -------- |
| Register        | client         | store | call | 0        |
| Writes, Removes | client         | store | cast | 0        |
| Read            | client         | store | call | 2        |
| ClientTerminate | client         | store | call | 0        |
| ClientDying     | client         | store | cast | 7        |
| ClientDelete    | client         | store | cast | 0        |
| OwnerDelete     | vhost process  | store | cast | 0        |
| JobDone         | GC             | store | cast | 8        |
| Statistics      | anyone         | store | call | 0        |
| SyncTimeout     | itself         | store | info | 8        |
| RetryWrite, RetryJob, Interval | itself | store | info | 0 |
| Combine, Compact, Truncate, Delete | store | GC | cast | 0 |
| NoReaders       | client, store  | GC    | cast | 0        |
| BumpCredit      | store          | queue | cast | its own  |

The jobs are storage's (message_store/gc_jobs.py).  A Read may overtake writes: a message that is not in the
cache has been handled.  A Register must not: the mail of a dead client comes before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pykka import ActorRef

from warrenmq.message_store.cur_file_cache import Batch
from warrenmq.message_store.gc_jobs import Job
from warrenmq.message_store.tables import Client, StoreTables, trace_number
from warrenmq.runtime import CreditSpec, Name


@dataclass(slots=True)
class Register:
    """Call: a queue process began, and believes that its queue holds these messages; the reply is Registered."""

    client: Client
    ref: ActorRef[Any]
    on_disk: Any
    """Called in the store's thread with (message ids, "written" or "ignored"); None = no confirms wanted."""
    holds: Sequence[bytes]


@dataclass(slots=True)
class Registered:
    """The reply to Register."""

    present: set[bytes]
    """The ids of those messages that the store has."""
    tables: StoreTables
    gc: Name
    credit: CreditSpec
    trace_id: int
    """The store's."""


CREDIT_BYTES = 1 << 14
"""Bytes of bodies that a client may send for one credit: RabbitMQ's counts messages alone, and 4,000 of 1 MB
are 4 GB in memory.
"""


@dataclass(slots=True)
class Writes:
    """The bodies are in the current-file cache, too, until the store has handled this."""

    cref: bytes
    batch: Batch

    @property
    def credit(self) -> int:
        """The credit that it takes: one a message, or more for large ones."""
        return max(len(self.batch), sum([len(stored) for _, stored in self.batch]) // CREDIT_BYTES)

    def traced(self) -> tuple[int, int, int]:
        """The SEND row's columns."""
        return trace_number(self.batch[0][0]), 0, len(self.batch)


@dataclass(slots=True)
class Removes:
    """The queue is done with these messages."""

    cref: bytes
    msg_ids: list[bytes]

    def traced(self) -> tuple[int, int, int]:
        """The SEND row's columns."""
        return trace_number(self.msg_ids[0]), 0, len(self.msg_ids)


@dataclass(slots=True)
class Read:
    """Call: a message that the client may not read itself; the reply is its body, or None."""

    msg_id: bytes


@dataclass(slots=True)
class ClientTerminate:
    """Call: the queue process ends and keeps its references; the reply comes when all its mail was handled."""

    cref: bytes


@dataclass(slots=True)
class ClientDying:
    """The queue is being deleted; overtakes what it sent before."""

    cref: bytes


@dataclass(slots=True)
class ClientDelete:
    """The queue is deleted: drop all its references."""

    cref: bytes


@dataclass(slots=True)
class OwnerDelete:
    """A queue was deleted that had no process which could say so: drop all its references."""

    owner: str
    by: int
    """Trace id of the sender."""


@dataclass(slots=True)
class JobDone:
    """The garbage collector has finished with this."""

    job: Job


@dataclass(slots=True)
class Statistics:
    """Call: the reply is a StoreStatistics."""


@dataclass(slots=True)
class SyncTimeout:
    """Confirms have waited long enough."""


@dataclass(slots=True)
class RetryWrite:
    """Timer of the writer: look whether the full disk has room again."""


@dataclass(slots=True)
class RetryJob:
    """Timer of the collector: look whether the full disk has room for it again."""


@dataclass(slots=True)
class Interval:
    """Timer message: check the store for garbage."""


@dataclass(slots=True)
class NoReaders:
    """The last direct read that the collector may wait for in this file is over."""

    file: int


@dataclass(slots=True)
class BumpCredit:
    """The client may send so many writes more."""

    store: str
    credit: int
