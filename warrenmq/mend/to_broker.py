"""`warrenmq recover SOURCE --to amqp://...`: the messages of a dead broker's directory, published to a running one.

SOURCE is read only.  Exchanges, queues and bindings are declared first, as far as SOURCE has them; then each queue's
messages are published to it by its name, persistent and mandatory, a batch at a time, each batch written into a ledger
before it is sent and crossed off when it is confirmed:

    killed before      the next run
    the ledger's sync  publishes the batch
    the confirms       publishes it again: the other broker may have it twice, which cannot be seen from here
    the cross          the same

So a run that ended, or broke off between batches, repeats nothing, and one that was killed repeats a batch at most.  The
ledger is a folder of its own beside SOURCE; delete it when SOURCE is gone.

The other broker treats the messages as newly published: the exchange is the default one and the routing key
the queue's name, nothing is marked as redelivered, and properties that say who may see it, or where else it goes, would
be obeyed once more:

    property    what would happen                               so it
    user_id     refused, unless it is the user of the URL       is left out
    CC          the message goes to those queues, too           is left out
    expiration  waits that long from now on                     is what was left of the time to live
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from warrenmq.directory.definitions import QueueRecord
from warrenmq.directory.layout import vhost_folder
from warrenmq.erlang.amqp_table_writer import bytes_of_properties
from warrenmq.errors import CallerError
from warrenmq.inspect.inspection import Inspection, VhostInspection
from warrenmq.inspect.layout import QueueFolder
from warrenmq.mend.definitions import declare, have_queue
from warrenmq.mend.ledger import Ledger, hold
from warrenmq.mend.living import held, node_of
from warrenmq.mend.moving import BATCH, BATCH_BYTES, Candidate, candidates
from warrenmq.mend.recover import QueueReport, Report, by_name, by_vhost, definitions_of
from warrenmq.remote import Remote, parameters_of
from warrenmq.routing.delayed import is_store
from warrenmq.seams.real_disk import RealDisk

LEDGER = ".recovered"
"""The suffix of the ledgers' folder, which follows the source's name unless another folder is named."""
DESTINATIONS = "to"
"""The file in that folder which names the brokers that messages were moved to."""
WAITING = "delayed: it waits for its time, which a recovery --to DIRECTORY keeps"
DEFAULT_PORT = {"amqp": 5672, "amqps": 5671}
_PERSISTENT = 2


def recover_to_broker(
    source: str,
    url: str,
    now_us: int,
    ledgers: str | None = None,
    progress: Callable[[str], object] = lambda _: None,
) -> Report:
    """Publish the messages of `source` to the broker at `url`; `now_us` decides which have expired,
    `progress` gets each queue's name.
    """
    source = os.path.abspath(source)
    ledgers = os.path.abspath(ledgers or source + LEDGER)
    node = node_of(source)
    with ExitStack() as stack:
        stack.enter_context(held(node, RealDisk(), changes=False))
        inspection = Inspection(source, now_us)
        parameters_of(url)
        address = urlsplit(url)
        report = Report(
            source, f"{address.scheme}://{address.hostname}:{address.port or DEFAULT_PORT[address.scheme]}"
        )
        vhosts = by_vhost(inspection)
        said = definitions_of(inspection, vhosts, report)
        names = list({**vhosts, **said})
        there = destinations(names, unquote(address.path.removeprefix("/")))
        for vhost in names[:1]:  # nothing is made on the disk for a broker that cannot be reached
            Remote(url, there[vhost]).close()
        stack.callback(hold(ledgers).release)
        _compare_destinations(ledgers, report)
        for vhost in names:
            queues = by_name(vhosts.get(vhost, []))
            with closing(Remote(url, there[vhost])) as remote:
                called: dict[str, str] = {}
                for definitions in said.get(vhost, []):
                    called |= declare(remote, definitions, report.notes)
                    if kept := [f"{kind} {name!r}" for kind, name in definitions.parameters]:
                        report.notes.append(
                            f"{', '.join(kept)} of {vhost!r} cannot be set over AMQP; see `warrenmq ctl set_policy`"
                        )
                for name, folders in queues.items():
                    progress(name)
                    if is_store(name):
                        report.queues.append(_left_waiting(vhost, name, folders, source))
                        continue
                    if name not in called:
                        called[name] = have_queue(remote, QueueRecord(name), report.notes)
                    move = _Move(remote, called[name], QueueReport(vhost=vhost, name=called[name]), now_us)
                    for part, folder in folders:
                        move.report.directories.append(os.path.relpath(folder.path, source))
                        move.folder(part, folder, f"{ledgers}/{vhost_folder(vhost)}")
                    report.queues.append(move.report)
        report.damaged = inspection.findings.damaged()
    return report


def _compare_destinations(ledgers: str, report: Report) -> None:
    """Note it if earlier runs moved messages to other addresses: those are not moved again."""
    disk, path = RealDisk(), f"{ledgers}/{DESTINATIONS}"
    known = disk.read(path).decode(errors="replace").split() if disk.exists(path) else []
    if others := [each for each in known if each != report.to]:
        report.notes.append(
            f"an earlier run moved messages to {', '.join(others)}, and they are not moved again; if that is another "
            f"broker, move all of them to {report.to} with a new ledger: --ledger DIR"
        )
    if report.to not in known:
        disk.replace(path, "".join(f"{each}\n" for each in (*known, report.to)).encode())


def _left_waiting(
    vhost: str, name: str, folders: list[tuple[VhostInspection, QueueFolder]], source: str
) -> QueueReport:
    """The report on delayed messages, which no method of AMQP brings into another broker without changing them."""
    report = QueueReport(vhost=vhost, name=name)
    for part, folder in folders:
        report.directories.append(os.path.relpath(folder.path, source))
        if count := sum(1 for _ in part.ready(folder)):
            report.not_recovered[WAITING] += count
    return report


def destinations(names: list[str], asked: str) -> dict[str, str]:
    """Map the source's virtual hosts to the broker's.  Raises CallerError if the URL asks for an impossible mapping.

    | source's   | the URL's | goes to  |
    | ---------- | --------- | -------- |
    | any        | (none)    | its name |
    | one        | other     | other    |
    | several    | other     | error    |
    """
    if not asked:
        return {name: name for name in names}
    if len(names) > 1:
        raise CallerError(
            f"SOURCE has several virtual hosts ({', '.join(names)}); leave {asked!r} out of the URL, and each goes to one of its name."
        )
    return dict.fromkeys(names, asked)


# -- one queue


class _Prepared(NamedTuple):
    """A message as it goes out."""

    key: bytes
    fingerprint: bytes
    body: bytes
    properties: bytes


class _Move:
    """A queue's messages on their way."""

    def __init__(self, remote: Remote, queue: str, report: QueueReport, now_us: int) -> None:
        self.report = report
        self._remote = remote
        self._queue = queue
        self._now_us = now_us
        self._batches = 0

    def folder(self, part: VhostInspection, folder: QueueFolder, ledgers: str) -> None:
        """Publish what an earlier run has not."""
        path = f"{ledgers}/{os.path.basename(os.path.realpath(folder.path))}.log"
        with closing(Ledger(RealDisk(), path)) as ledger:
            if ledger.doubtful:
                self.report.altered[
                    "it may have been moved by an earlier run already, and then is there twice"
                ] += len(ledger.doubtful)
                ledger.resolve([])
            batch: list[_Prepared] = []
            size = 0
            for each in candidates(part.rows(folder), ledger, self.report, self._now_us):
                batch.append(self._prepared(each))
                size += len(each.message.body)
                if len(batch) >= BATCH or size >= BATCH_BYTES:
                    self._send(batch, ledger)
                    batch, size = [], 0
            self._send(batch, ledger)

    def _prepared(self, each: Candidate) -> _Prepared:
        user = self._remote.parameters.credentials.username
        properties, altered = as_published(each.message.properties, user, each.milliseconds)
        self.report.altered.update(altered)
        if each.redelivered:
            self.report.altered["it had been delivered before, and comes as a new one"] += 1
        return _Prepared(each.key, each.fingerprint, each.message.body, bytes_of_properties(properties))

    def _send(self, batch: list[_Prepared], ledger: Ledger) -> None:
        if not batch:
            return
        number = self._batches
        self._batches += 1
        ledger.moving(number, [each.key for each in batch], [each.fingerprint for each in batch])
        for each in batch:
            self._remote.publish(self._queue, each.body, each.properties)
        self._remote.flush()
        ledger.done(number)
        self.report.moved += len(batch)


def as_published(plain: dict[str, Any], user: str, left: int | None) -> tuple[dict[str, Any], list[str]]:
    """The properties to publish with, in the plain form, and what of them is not as it was.

    | property                | published with                          |
    | ----------------------- | --------------------------------------- |
    | delivery_mode           | 2                                       |
    | user_id = user          | the same                                |
    | user_id, another        | none, altered                           |
    | headers with CC         | headers without it, altered             |
    | 1500 ms are left        | expiration "1500"                       |
    | anything else           | the same                                |
    """
    found, altered = dict(plain, delivery_mode=_PERSISTENT), []
    if left is not None:
        found["expiration"] = str(max(left, 0))
    if found.get("user_id", user) != user:
        del found["user_id"]
        altered.append("its user_id is left out: a broker takes only the publisher's own")
    headers = found.get("headers") or []
    if any(name == "CC" for name, *_ in headers):
        found["headers"] = [each for each in headers if each[0] != "CC"]
        altered.append("its CC header is left out: the broker would send it to those queues as well")
    return found, altered
