"""`warrenmq compact DIR`: message files without their garbage, while no broker runs.

    1  find out which messages queues refer to, and where the best copy of each is
    2  remove what a clean stop left behind: it has offsets that will not be true any more
    3  for each file with garbage: write its live records beside it, sync, rename over it; a file without any is removed

Each file is written anew by itself, so no message is ever in two files because of this, and a crash leaves each file as it
was or done; the next run does the rest.  It takes as much free space as the largest file has live bytes.

Only what is certain is thrown away: a directory with damage, or with a combine that a crash interrupted, is for `repair`
first, and where queues are missing garbage cannot be recognised.  The transient store is left to the next start, which
wipes it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from warrenmq.errors import PreconditionFailed
from warrenmq.inspect.inspection import UNFINISHED, WITHOUT_RECORD, Inspection, VhostInspection
from warrenmq.inspect.layout import PERSISTENT
from warrenmq.inspect.reading import Findings
from warrenmq.inspect.store import InspectedStore
from warrenmq.mend.changes import Changes, pieces_of
from warrenmq.mend.living import held, make_safe, node_of
from warrenmq.message_store.combine import runs
from warrenmq.message_store.dump import CLEAN, INDEX, SUMMARY
from warrenmq.message_store.gc_jobs import Survivor
from warrenmq.message_store.rdq import EXTENSION, RABBITMQ_TEMPORARY
from warrenmq.message_store.scan import whole_records
from warrenmq.seams.disk import Disk
from warrenmq.seams.real_disk import RealDisk


class StoreSize(NamedTuple):
    """One store, before and after."""

    directory: str
    before: int
    after: int
    files_before: int
    files_after: int


@dataclass
class Compacted:
    """The result of one run."""

    stores: list[StoreSize] = field(default_factory=list)
    rabbitmqs: bool = False


def compact(path: str, disk: Disk | None = None) -> Compacted:
    """Rewrite the stores of a directory without their garbage; PreconditionFailed, DirectoryInUse when it
    must not be done.
    """
    path = os.path.abspath(path)
    disk = disk or RealDisk()
    node = node_of(path)
    with held(node, disk, changes=True):
        inspection = Inspection(path, now_us=0)
        inspection.findings.check_permissions()  # a folder that may not be listed looks like an empty one
        if inspection.layout.kind == "queue":
            raise PreconditionFailed(
                f"{path} is one queue's directory, its messages lie beside others'; name its vhost's or node's."
            )
        for part in inspection.vhosts:
            _refuse_uncertain(inspection, part, path)
        make_safe(disk, node)
        done = Compacted(rabbitmqs=not all(part.vhost.ours for part in inspection.vhosts))
        for part in inspection.vhosts:
            store = part.stores.get(PERSISTENT)
            if store is not None and inspection.layout.only in {None, store.path}:
                done.stores.append(_compact_store(disk, inspection.findings, store, path))
    return done


def _refuse_uncertain(inspection: Inspection, part: VhostInspection, path: str) -> None:
    """Raise PreconditionFailed if garbage cannot be told from messages with certainty."""
    vhost = part.vhost
    if vhost.stores and not os.path.isdir(f"{vhost.path}/queues"):
        raise PreconditionFailed(
            f"{vhost.path} has no queues that would show which messages are garbage; nothing was changed."
        )
    missing = [queue.path for queue in vhost.queues for row in part.rows(queue) if row.reason == UNFINISHED]
    part.stores  # noqa: B018  # looks at every file
    inspection.findings.check_permissions()
    damaged = inspection.findings.damaged()
    unfinished = [
        name
        for store in vhost.stores
        for name in inspection.findings.names(store)
        if name.endswith(RABBITMQ_TEMPORARY)
    ]
    missing += [each.file for each in damaged if each.reason.endswith(WITHOUT_RECORD)]
    if missing and not unfinished and all(each.reason.endswith(WITHOUT_RECORD) for each in damaged):
        raise PreconditionFailed(
            f"{path} has entries of messages that are gone ({missing[0]}), so nothing was compacted; "
            "a start of its broker drops them."
        )
    if damaged or unfinished:
        what = damaged[0].file if damaged else unfinished[0]
        raise PreconditionFailed(
            f"{path} is damaged ({what}), so nothing was compacted; mend it first with: warrenmq repair {path}"
        )


def _compact_store(disk: Disk, findings: Findings, store: InspectedStore, root: str) -> StoreSize:
    changes = Changes(disk, root, "compact", backup=False)
    changes.tidy(store.path)
    names = [name for name in disk.listdir(store.path) if name.endswith(EXTENSION)]
    before = {name: disk.size(f"{store.path}/{name}") for name in names}
    survivors = {name: _survivors(findings, store, name) for name in names}
    garbage = [name for name in names if sum(total for _, _, total in survivors[name]) < before[name]]
    if garbage:
        for name in (CLEAN, INDEX, SUMMARY):  # the one that says the others are good goes first
            if disk.exists(f"{store.path}/{name}"):
                changes.remove(f"{store.path}/{name}", "")
    for name in garbage:
        path = f"{store.path}/{name}"
        if survivors[name]:
            changes.replace(path, _live_bytes(disk, path, survivors[name]), "")
        else:
            changes.remove(path, "")
    left = [name for name in disk.listdir(store.path) if name.endswith(EXTENSION)]
    after = sum(disk.size(f"{store.path}/{name}") for name in left)
    return StoreSize(findings.relative(store.path), sum(before.values()), after, len(names), len(left))


def _survivors(findings: Findings, store: InspectedStore, name: str) -> list[Survivor]:
    """The records of a file that are the best copy of a message that some queue refers to, in its order."""
    file = findings.open(f"{store.path}/{name}")
    if file is None:
        return []
    found: list[Survivor] = []
    with file:
        for record in whole_records(file, ()):
            msg_id, offset, _ = record
            places = store.places(msg_id)
            if places and (places[0].file, places[0].offset) == (name, offset):
                found.append(record)
    return found


def _live_bytes(disk: Disk, path: str, survivors: list[Survivor]) -> Iterator[bytes]:
    file = disk.open_read(path)
    try:
        yield from pieces_of(file, runs(survivors))
    finally:
        file.close()
