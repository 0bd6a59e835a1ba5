"""`warrenmq repair DIR`: mend a damaged directory in place, so that its broker starts and gives back all that is readable.

    1  look at everything as a dry run does: is there anything to do in this virtual host?
    2  if so, first remove what a clean stop left behind: it describes files that are about to change, and a broker
       without it reads the files
    3  mend indexes (index_files.py), then message stores (store_files.py), then what names and declares queues: a run that ends
       between the two has forgotten a message whose bytes are no message, and the next one finds its record to be garbage

Each step leaves a directory that is no worse than before, and everything that is changed is copied first (changes.py), so a
run that is interrupted is simply run again.  A second run finds nothing to do.

    what                                what is done
    definitions.log (ours)              invalid frames left out; queues whose folders have their names declared
    .queue_name                         written anew where the name is known otherwise
    message records, index entries      see the modules
    a message of which no bytes are     nothing; a start of the broker drops it
    left
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field

from warrenmq.directory.definitions import Declared, snapshot
from warrenmq.directory.foreign import is_rabbitmqs
from warrenmq.directory.layout import QUEUE_NAME
from warrenmq.directory.recovery_terms import FILE_NAME as TERMS
from warrenmq.inspect.entries import Where
from warrenmq.inspect.inspection import UNREADABLE, Inspection, VhostInspection
from warrenmq.inspect.layout import RABBITMQ_TERMS, TRANSIENT, QueueFolder
from warrenmq.inspect.reading import Damage
from warrenmq.inspect.store import InspectedStore
from warrenmq.mend.changes import Change, Changes
from warrenmq.mend.index_files import Version1, Version2
from warrenmq.mend.living import held, make_safe, node_of
from warrenmq.mend.store_files import StoreFiles
from warrenmq.message_store.dump import CLEAN, INDEX, SUMMARY
from warrenmq.message_store.scan import Trust
from warrenmq.seams.disk import Disk
from warrenmq.seams.real_disk import RealDisk
from warrenmq.vhost.queue_folders import parse, records_of


@dataclass
class Repaired:
    """The result of one run, or of a dry run."""

    changes: list[Change] = field(default_factory=list)
    left: list[Damage] = field(default_factory=list)
    """The damage that could not be mended."""
    backup: str | None = None
    rabbitmqs: bool = False
    """True if its broker is RabbitMQ, which locks nothing: whether it runs is not certain."""


def repair(path: str, *, dry_run: bool, disk: Disk | None = None) -> Repaired:
    """Mend a directory.  Raises DirectoryInUse or PreconditionFailed if its broker runs, CallerError if it is
    not a data directory.
    """
    path = os.path.abspath(path)
    disk = disk or RealDisk()
    node = node_of(path)
    with held(node, disk, changes=not dry_run) as owned:
        done = Repaired()
        real = Changes(disk, path, "repair", dry_run=dry_run)
        inspection = Inspection(path, now_us=0)
        inspection.findings.check_permissions()  # a folder that may not be listed looks like an empty one
        if not dry_run:
            make_safe(disk, node)
        for number, part in enumerate(inspection.vhosts):
            ours = part.vhost.ours or (owned and not is_rabbitmqs(disk, part.vhost.path, owned=owned))
            done.rabbitmqs |= not ours
            trial = Changes(disk, path, "repair", dry_run=True)
            looked = _VhostRepair(path, number, ours)
            looked.mend(trial)
            if not trial.made and not (ours and part.believes_no_stop):
                continue
            for artefact in clean_stop_files(disk, part):
                real.remove(artefact, "it tells of a clean stop, after which files were changed; removed")
            if dry_run:
                real.made += trial.made
            else:
                _VhostRepair(path, number, ours, looked.damaged).mend(real)
        done.changes, done.backup = real.made, real.backup
        done.left = _left(path)
    return done


def clean_stop_files(disk: Disk, part: VhostInspection) -> Iterator[str]:
    """The files that a clean stop left in a virtual host: they must not outlive a change of the other files."""
    for store in part.vhost.stores:
        for name in (CLEAN, INDEX, SUMMARY):  # the one that says the others are good goes first
            if disk.exists(f"{store}/{name}"):
                yield f"{store}/{name}"
    if disk.exists(f"{part.vhost.path}/{RABBITMQ_TERMS}"):
        yield f"{part.vhost.path}/{RABBITMQ_TERMS}"
    for queue in part.vhost.queues:
        if disk.exists(f"{queue.path}/{TERMS}"):
            yield f"{queue.path}/{TERMS}"


def _left(path: str) -> list[Damage]:
    """The damage that a second inspection still finds."""
    inspection = Inspection(path, now_us=0)
    for part, queue in inspection.queues():
        for _ in part.rows(queue):
            pass
    return inspection.findings.damaged()


class _VhostRepair:
    """One virtual host; looks at it anew, since the run before may have changed it."""

    def __init__(self, path: str, number: int, ours: bool, damaged: set[str] | None = None) -> None:
        """`damaged`: the files that were told as damage while what a clean stop left was there to compare them with."""
        inspection = Inspection(path, now_us=0)
        self._part = inspection.vhosts[number]
        self._findings = inspection.findings
        self._ours = ours
        self.damaged = damaged
        self._unreadable: dict[str, set[int]] = {}
        """Sequence ids, by queue folder, of messages whose bytes are invalid."""
        self._wanted: set[bytes] = set()
        self._true_ids: dict[tuple[str, int], bytes] = {}

    def mend(self, changes: Changes) -> None:
        self._look()
        self._findings.check_permissions()
        for queue in self._part.queues:
            unreadable = self._unreadable.get(queue.path, set())
            Version2(self._findings, queue.path).mend(changes, unreadable)
            Version1(self._findings, queue.path, self._part.vhost.entry_count).mend(changes, unreadable)
            self._mend_name(changes, queue)
        if self._ours and self.damaged is None:
            self.damaged = {each.file for each in self._findings.damaged()}
        for store in self._part.vhost.stores:
            if os.path.basename(store) != TRANSIENT:  # no start keeps it
                StoreFiles(self._findings, store, self._wanted, self._true_ids, self.damaged).mend(changes)
        if self._ours:
            self._mend_definitions(changes)

    def _look(self) -> None:
        # read also if no message asks for them, so that their damage is known
        stores = [*self._part.stores.values()]
        for queue in self._part.vhost.queues:
            for row in self._part.rows(queue):
                entry = row.entry
                if entry.where == Where.STORE and entry.persistent:
                    self._wanted.add(entry.msg_id)
                    self._note_true_id(stores, entry.msg_id)
                if (
                    row.message is None
                    and row.reason is not None
                    and (row.reason.startswith(UNREADABLE) or entry.where == Where.QUEUE_STORE)
                ):
                    self._unreadable.setdefault(queue.path, set()).add(entry.seq_id)

    def _note_true_id(self, stores: list[InspectedStore], msg_id: bytes) -> None:
        for store in stores:
            for place in store.places(msg_id):
                if place.trust == Trust.BAD_ID:
                    self._true_ids[place.file, place.offset] = msg_id

    def _mend_name(self, changes: Changes, queue: QueueFolder) -> None:
        path = f"{queue.path}/{QUEUE_NAME}"
        text = self._findings.read(path)
        if text is None or queue.name is None or queue.vhost is None:
            return
        named = parse(text)
        if named is not None and (named.vhost, named.name, named.priority) == (
            queue.vhost,
            queue.name,
            queue.priority,
        ):
            return
        priority = b"" if queue.priority is None else bytes((0, queue.priority))
        index = b"INDEX: v2\n" if queue.version == 2 and not self._ours else b""
        anew = b"VHOST: %b\nQUEUE: %b%b\n%b" % (queue.vhost.encode(), queue.name.encode(), priority, index)
        changes.replace(path, [anew], "it did not tell the queue's name; written anew")

    def _mend_definitions(self, changes: Changes) -> None:
        path = f"{self._part.vhost.path}/definitions.log"
        log = self._findings.read(path)
        declared = Declared()
        damage = declared.replay(log or b"")
        again = records_of(each.undeclared for each in self._part.vhost.queues if each.undeclared is not None)
        if log is not None and not damage and not again:
            return
        why = [f"byte {each.offset}: {each.reason}" for each in damage] or ["it is gone"] * (log is None)
        for record in again:
            declared.queues[record.name] = record
            why.append(f"queue {record.name!r} declared, for its folder is there")
        if damage:
            declared.gone.clear()  # the damaged bytes may be later changes to these
        changes.replace(path, snapshot(declared), "; ".join([*why, "written anew"]))
