"""The broker's supervision tree, as data (rabbit_vhost_sup_wrapper, rabbit_vhost_sup;
docs/reference/message-store.md#supervision-trees).

    rabbit_sup                     one_for_all   0
     ├ rabbit_restartable_sup      one_for_one   10 in 10 s
     │  ├ rabbit_alarm             sets and clears alarms, which block publishers
     │  ├ vm_memory_monitor        looks at the memory
     │  ├ rabbit_disk_monitor      looks at the disk
     │  └ rabbit_memory_monitor    tells the queues how much they may keep in memory
     └ vhost_sup_wrapper           one_for_all   2 in 300 s (vhost_restart_intensity)
        ├ vhost_sup                one_for_all   0
        │  ├ msg_store_transient       and its GC, linked
        │  ├ msg_store_persistent      and its GC, linked
        │  └ queue_sup             simple_one_for_one   10 in 10 s
        │     └ one process a queue       transient: not started again when it was deleted
        └ vhost_process            recovers the vhost: starts the queues, answers declarations

A queue that crashes is started again alone.  A store (or its GC, which is linked to it) that crashes takes the
vhost with it: the queues hold references into its tables, so all of it recovers from disk together; that is what
intensity 0 of vhost_sup means.  The wrapper then starts the vhost again, and after too many crashes gives up, and
the broker is down until it is opened anew.

A monitor that crashes is started again alone.  (RabbitMQ has a rabbit_restartable_sup around each of the four.)

RabbitMQ has one more supervisor around each queue (rabbit_amqqueue_sup, 5 in 10 s); here a thread a queue is
worth more than a second limit, so all queues share the limit of the one above (docs/architecture.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from warrenmq.actors.node.alarm import RABBIT_ALARM, RabbitAlarm
from warrenmq.actors.node.disk_monitor import RABBIT_DISK_MONITOR, DiskMonitor
from warrenmq.actors.node.memory_monitor import RABBIT_MEMORY_MONITOR, MemoryMonitor
from warrenmq.actors.node.vm_memory_monitor import VM_MEMORY_MONITOR, VmMemoryMonitor
from warrenmq.actors.queue.process import QueueProcess
from warrenmq.actors.store.process import MsgStore
from warrenmq.actors.vhost.process import VhostProcess
from warrenmq.actors.vhost.vhost import Vhost
from warrenmq.node.resources import Resources
from warrenmq.supervisors.child_spec import ChildSpec
from warrenmq.supervisors.supervisor import Supervisor

TRANSIENT_STORE = "msg_store_transient"
PERSISTENT_STORE = "msg_store_persistent"
VHOST_SUP = "vhost_sup"
VHOST_PROCESS = "vhost_process"
QUEUE_SUP = "queue_sup"
WRAPPER = "vhost_sup_wrapper"
RESTARTABLE_SUP = "rabbit_restartable_sup"
RABBIT_SUP = "rabbit_sup"


class QueueSup(Supervisor):
    """rabbit_amqqueue_sup_sup: one child a queue, started by the vhost process."""

    helpable = True
    strategy = "simple_one_for_one"
    intensity = 10
    period = 10.0

    def children(self, vhost: Vhost) -> Iterable[ChildSpec]:
        """The template; each queue adds its QueueSpec and its name."""
        shutdown = vhost.settings.classic_queue_shutdown_timeout / 1000
        return [ChildSpec("queue", QueueProcess, restart="transient", shutdown=shutdown)]


class VhostSup(Supervisor):
    """rabbit_vhost_sup: the stores first, transient before persistent, then the queues."""

    strategy = "one_for_all"
    intensity = 0
    period = 1.0

    def children(self, vhost: Vhost) -> Iterable[ChildSpec]:
        """Both stores are one class; the persistent one counts references from the queues' indexes."""
        shutdown = vhost.settings.msg_store_shutdown_timeout / 1000
        vhost.look_at_folders()

        def messages_of(name: str) -> Iterator[list[bytes]]:
            if name not in vhost.asleep:
                yield from vhost.last_stops.claims(vhost.folders(vhost.definitions.queues[name]))

        def references() -> Iterator[tuple[str, Iterator[list[bytes]]]]:
            for name in vhost.definitions.queues:
                yield name, messages_of(name)
            for folder in vhost.kept_folders:  # no queue is called like a path
                yield f"folder {folder}", vhost.last_stops.claims((folder,))

        def store(name: str, refs: Any) -> ChildSpec:
            args = (name, vhost.directory.store(name), vhost.disk, vhost.settings, refs, vhost.directory.quarantine,
                    vhost.damage)  # fmt: skip
            return ChildSpec(name, MsgStore, args=args, name=name, shutdown=shutdown)

        return [
            store(TRANSIENT_STORE, None),
            store(PERSISTENT_STORE, references),
            ChildSpec(QUEUE_SUP, QueueSup, args=(vhost,), name=QUEUE_SUP, shutdown=None),
        ]


class VhostSupWrapper(Supervisor):
    """rabbit_vhost_sup_wrapper: around the vhost, with the limit of its restarts."""

    strategy = "one_for_all"

    def init(self, vhost: Vhost) -> None:
        """The limit is a setting, the rest is fixed."""
        intensity, period = vhost.settings.vhost_restart_intensity
        super().init(vhost, intensity=intensity, period=period)

    def children(self, vhost: Vhost) -> Iterable[ChildSpec]:
        """The vhost's supervisor, then the process that recovers it."""
        return [
            ChildSpec(VHOST_SUP, VhostSup, args=(vhost,), name=VHOST_SUP, shutdown=None),
            ChildSpec(
                VHOST_PROCESS,
                VhostProcess,
                args=(vhost, QUEUE_SUP, PERSISTENT_STORE, TRANSIENT_STORE),
                name=VHOST_PROCESS,
                shutdown=vhost.settings.msg_store_shutdown_timeout / 1000,
            ),
        ]


class RestartableSup(Supervisor):
    """rabbit_restartable_sup: what is the node's own and can be started again by itself."""

    strategy = "one_for_one"
    intensity = 10
    period = 10.0

    def children(self, resources: Resources) -> Iterable[ChildSpec]:
        """The alarms first: the monitors look at once, and tell them."""
        return [
            ChildSpec(RABBIT_ALARM, RabbitAlarm, args=(resources.alarms,), name=RABBIT_ALARM),
            ChildSpec(VM_MEMORY_MONITOR, VmMemoryMonitor, args=(resources,), name=VM_MEMORY_MONITOR),
            ChildSpec(RABBIT_DISK_MONITOR, DiskMonitor, args=(resources,), name=RABBIT_DISK_MONITOR),
            ChildSpec(RABBIT_MEMORY_MONITOR, MemoryMonitor, args=(resources,), name=RABBIT_MEMORY_MONITOR),
        ]


class RabbitSup(Supervisor):
    """rabbit_sup: the root of the tree."""

    strategy = "one_for_all"
    intensity = 0
    period = 1.0

    def children(self, vhost: Vhost) -> Iterable[ChildSpec]:
        """The node's own processes, then the vhost."""
        return [
            ChildSpec(
                RESTARTABLE_SUP, RestartableSup, args=(vhost.resources,), name=RESTARTABLE_SUP, shutdown=None
            ),
            ChildSpec(WRAPPER, VhostSupWrapper, args=(vhost,), name=WRAPPER, shutdown=None),
        ]
