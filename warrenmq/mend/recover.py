"""`warrenmq recover SOURCE --to DIR`: the messages of a dead broker's directory, published into one of ours.

SOURCE is read only.  Its messages go through a broker that is opened on DIR, one virtual host after the other:
each keeps its name, so `warrenmq.open(DIR, vhost=...)` serves it.

    DIR is              the messages are put into         a kill in the middle
    not there, empty    DIR.recovering/data, which is     leaves no DIR; the next run throws DIR.recovering away and
                        renamed to DIR when all is done   begins again
    ours                DIR itself, behind what is there  leaves a part there; the next run goes on where this one ended

In both cases DIR/recovered remembers what was moved (ledger.py), so a run that is repeated moves nothing twice, not even
when DIR's messages have been consumed since.  Delete it when SOURCE is gone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Self

from warrenmq.broker.broker import Broker
from warrenmq.broker.embedded import open as open_broker
from warrenmq.commit_log.disk import remove_log
from warrenmq.directory.definitions import QueueRecord
from warrenmq.directory.layout import USERS, VHOSTS, queue_folder, vhost_folder
from warrenmq.directory.owner_lock import FILE_NAME as OWNER
from warrenmq.directory.owner_lock import OwnerLock
from warrenmq.errors import PreconditionFailed
from warrenmq.inspect.inspection import NORMAL, Inspection, VhostInspection
from warrenmq.inspect.layout import QueueFolder
from warrenmq.inspect.reading import Damage
from warrenmq.mend.definitions import Definitions, declare, have_queue, of_vhost, set_parameters
from warrenmq.mend.doubts import settle
from warrenmq.mend.ledger import Ledger, hold
from warrenmq.mend.living import held, node_of
from warrenmq.mend.moving import Outcome, move
from warrenmq.mend.redelivery import mark
from warrenmq.routing.delayed import exchange_of, is_store
from warrenmq.seams.real_disk import RealDisk

RECOVERED = "recovered"
"""The folder of the ledgers in the target."""
WORK = ".recovering"
"""The suffix of the folder in which a new target is made."""
_MARK = "warrenmq.recovering"
"""The file in that folder which says that it is ours to throw away."""


@dataclass
class QueueReport(Outcome):
    """The result for one queue."""

    vhost: str = "/"
    name: str = ""
    """The queue's name in the target."""
    directories: list[str] = field(default_factory=list)
    """The source's queue folders, in order of delivery."""
    unmarked: int = 0
    """Messages that had been delivered before, and come as new ones."""

    @property
    def lost(self) -> int:
        """Messages that should have been given back, and could not be."""
        return sum(count for reason, count in self.not_recovered.items() if reason not in NORMAL)


@dataclass
class Report:
    """The result of a whole run."""

    source: str
    to: str
    queues: list[QueueReport] = field(default_factory=list)
    damaged: list[Damage] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Other things that are not as they were, a sentence each."""

    @property
    def fine(self) -> bool:
        """True if nothing was lost, and no damaged bytes may have been messages."""
        return not self.damaged and not any(queue.lost for queue in self.queues)


def recover(
    source: str, target: str, now_us: int, progress: Callable[[str], object] = lambda _: None
) -> Report:
    """Move the messages of `source` into `target`; `now_us` decides which have expired, `progress` gets each queue's name."""
    source, target = os.path.abspath(source), os.path.abspath(target)
    if os.path.islink(target):  # a new directory can take the place of what it leads to, not its own
        target = os.path.realpath(target)
    _refuse_overlap(source, target)
    node = node_of(source)
    with ExitStack() as stack:
        stack.enter_context(held(node, RealDisk(), changes=False))
        inspection = Inspection(source, now_us)
        fresh = not os.path.isdir(target) or not os.listdir(target)
        if fresh:
            _refuse_mount(target)
            data = stack.enter_context(_Workplace(target)).data
        else:
            _refuse_stranger(target)
            # a run may have been killed behind its rename: what is cleared must not be what a power cut brings back
            RealDisk().sync_dir(os.path.dirname(target))
            _Workplace.clear(target)
            data = target
            owner = OwnerLock(data)
            try:
                remove_log(RealDisk(), data)  # its files are read before a broker is opened
            finally:
                owner.release()
        ledgers = f"{data}/{RECOVERED}"
        stack.callback(hold(ledgers).release)
        report = Report(source, target)
        vhosts = by_vhost(inspection)
        said = definitions_of(inspection, vhosts, report)
        for vhost in {**vhosts, **said}:
            inspected = vhosts.get(vhost, [])
            queues = [_Queue(vhost, name, folders, data) for name, folders in by_name(inspected).items()]
            for queue in queues:  # while the files are not open
                queue.settle_doubts()
            with closing(open_broker(data, vhost=vhost)) as broker:
                for definitions in said.get(vhost, []):
                    declare(broker, definitions, report.notes)
                broker.inside.local_client.hold_delayed()  # messages that are due are released when the directory is opened the next time
                for queue in queues:
                    progress(queue.name)
                    report.queues.append(queue.move(broker, source, now_us))
                for definitions in said.get(vhost, []):
                    set_parameters(broker, definitions, report.notes)
            for queue in queues:
                queue.mark_redelivered()
        report.damaged = inspection.findings.damaged()
        _carry_users(node, data, report.notes)
        if fresh:
            os.unlink(f"{ledgers}/{OWNER}")
            os.rename(data, target)
            RealDisk().sync_dir(os.path.dirname(target))
    return report


# -- may it be done


def _refuse_overlap(source: str, target: str) -> None:
    real_source, real_target = os.path.realpath(source), os.path.realpath(target)
    if os.path.commonpath([real_source, real_target]) in {real_source, real_target}:
        raise PreconditionFailed(
            f"{target} and {source} are the same directory, or one lies in the other; choose another one for the messages."
        )


def _refuse_stranger(target: str) -> None:
    names = os.listdir(target)
    if not any(name in names for name in (OWNER, "msg_stores", "rabbit_serial")):
        raise PreconditionFailed(
            f"{target} is neither new nor a data directory of warrenmq; choose another one."
        )


def _refuse_mount(target: str) -> None:
    if os.path.ismount(target):
        raise PreconditionFailed(
            f"{target} is a mount point, whose place a new directory cannot take; name a directory in it: {target}/data"
        )


class _Workplace:
    """The folder in which a new target is made; gone when this ends, whether it was renamed to the target or not."""

    def __init__(self, target: str) -> None:
        self._folder = target + WORK
        self.data = f"{self._folder}/data"
        disk = RealDisk()
        if (
            os.path.isdir(self._folder)
            and os.listdir(self._folder)
            and not os.path.exists(f"{self._folder}/{_MARK}")
        ):
            raise PreconditionFailed(f"{self._folder} is in the way; remove it, or choose another directory.")
        disk.mkdir(self._folder)
        disk.replace(
            f"{self._folder}/{_MARK}", b"what warrenmq recover had not finished; it may be removed\n"
        )
        self._lock = OwnerLock(self._folder)
        disk.rmtree(self.data)
        disk.mkdir(self.data)

    @classmethod
    def clear(cls, target: str) -> None:
        """Remove one that was left behind, by a run that was killed after it had renamed the target."""
        if os.path.exists(f"{target}{WORK}/{_MARK}"):
            with cls(target):
                pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        RealDisk().rmtree(self._folder)
        self._lock.release()


def _carry_users(source: str, data: str, notes: list[str]) -> None:
    """Copy the users that were changed over the management API, which the directory of a server keeps."""
    mine, theirs = f"{source}/{USERS}", f"{data}/{USERS}"
    if not os.path.isfile(mine):
        return
    disk = RealDisk()
    try:
        users = disk.read(mine)
    except OSError as error:
        notes.append(f"the users cannot be read ({error}); make them again")
        return
    if not disk.exists(theirs):
        new = f"{theirs}.new"  # as it holds password hashes, nobody else may read it for a moment
        with suppress(FileNotFoundError):
            os.unlink(new)
        os.close(os.open(new, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        file = disk.open(new)
        try:
            file.append(users)
            file.datasync()
        finally:
            file.close()
        disk.rename(new, theirs)
    elif disk.read(theirs) != users:
        notes.append(
            f"the users of {mine} stay behind, as {theirs} has its own; import them with `warrenmq serve --users`"
        )
    # the rename may be that of a run that was killed behind it
    disk.sync_dir(data)


# -- what there is


def by_vhost(inspection: Inspection) -> dict[str, list[tuple[VhostInspection, list[QueueFolder]]]]:
    """Virtual hosts by name; a directory without a name is taken for "/"."""
    found: dict[str, list[tuple[VhostInspection, list[QueueFolder]]]] = {}
    for part in inspection.vhosts:
        names: dict[str, list[QueueFolder]] = {part.vhost.name: []} if part.vhost.name is not None else {}
        for queue in part.queues:
            names.setdefault(queue.vhost or part.vhost.name or "/", []).append(queue)
        for name, queues in names.items():
            if queues or part.vhost.ours:
                found.setdefault(name, []).append((part, queues))
    return found


def by_name(
    parts: list[tuple[VhostInspection, list[QueueFolder]]],
) -> dict[str, list[tuple[VhostInspection, QueueFolder]]]:
    """A queue's folders by its name: several for a queue with priorities, the highest first."""
    found: dict[str, list[tuple[VhostInspection, QueueFolder]]] = {}
    for part, queues in parts:
        for queue in queues:
            name = (
                queue.name
                if queue.name is not None
                else f"recovered-{os.path.basename(os.path.realpath(queue.path))}"
            )
            found.setdefault(name, []).append((part, queue))
    return found


def definitions_of(
    inspection: Inspection, vhosts: Container[str], report: Report
) -> dict[str, list[Definitions]]:
    """The definitions of the chosen virtual hosts; those that cannot be moved are reported at once."""
    found: dict[str, list[Definitions]] = {}
    kind = inspection.layout.kind
    for part in inspection.vhosts if kind != "store" else ():
        for name, said in of_vhost(inspection.findings, part.vhost).items():
            asked = {queue.name for queue in part.queues}
            mine = (
                said
                if kind != "queue"
                else Definitions({each: said.queues[each] for each in said.queues if each in asked})
            )
            report.notes += [note for note in mine.notes if note not in report.notes]
            if mine.queues or mine.exchanges or mine.bindings or name in vhosts:
                found.setdefault(name, []).append(mine)
    return found


# -- one queue


class _Queue:
    """A queue of the source, on its way."""

    def __init__(
        self, vhost: str, name: str, folders: list[tuple[VhostInspection, QueueFolder]], data: str
    ) -> None:
        self.name = name
        self._vhost = vhost
        self._folders = folders
        self._report = QueueReport(vhost=vhost)
        self._was_empty = False
        self._target = f"{data}/{VHOSTS}/{vhost_folder(vhost)}"
        self._ledgers = f"{data}/{RECOVERED}/{vhost_folder(vhost)}"

    def settle_doubts(self) -> None:
        """Look into the target's queue if an earlier run was killed while it was publishing to it."""
        for _, folder in self._folders:
            if os.path.exists(path := self._ledger_path(folder)):
                with closing(Ledger(RealDisk(), path)) as ledger:
                    for name in (self.name, f"recovered-{self.name}"):
                        settle(RealDisk(), ledger, partial(self._target_folder, name))

    def _target_folder(self, name: str, priority: int) -> str:
        """The folder of the target's queue; that of the priority, if it has priorities."""
        folders = [
            f"{self._target}/queues/{queue_folder(self._vhost, name, each)}" for each in (None, priority)
        ]
        return folders[not os.path.isdir(folders[0])]

    def move(self, broker: Broker, source: str, now_us: int) -> QueueReport:
        """Publish what is not there yet."""
        report = self._report
        if is_store(self.name) and broker.inside.local_client.have_delayed(exchange_of(self.name)):
            report.name = self.name
        else:
            report.name = have_queue(broker, QueueRecord(self.name), [])
            info = broker.queue(report.name).info()
            self._was_empty = not (info.ready or info.unacked)
        for part, folder in self._folders:
            report.directories.append(os.path.relpath(folder.path, source))
            with closing(Ledger(RealDisk(), self._ledger_path(folder))) as ledger:
                move(broker, report.name, part.rows(folder), ledger, report, now_us)
        return report

    def mark_redelivered(self) -> None:
        """Mark the messages that had been delivered before as redelivered; the queue's broker must not run."""
        report = self._report
        if is_store(report.name):  # they are delivered as new messages when their time has come
            return
        folder = f"{self._target}/queues/{queue_folder(self._vhost, report.name)}"
        if report.redelivered and not (
            self._was_empty and mark(RealDisk(), folder, report.redelivered_below)
        ):
            report.unmarked, report.marked_too = report.redelivered, 0

    def _ledger_path(self, folder: QueueFolder) -> str:
        return f"{self._ledgers}/{os.path.basename(os.path.realpath(folder.path))}.log"
