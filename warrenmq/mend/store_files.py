"""Mending the files of one message store, so that a broker that scans them finds every record.

A file is written anew when anything in it keeps a scan from a record: its records, one behind the other.

    in N.rdq                                        in the new one
    a sound record, also behind zeros or damage     as it is
    a record that a queue refers to, without its    with its end mark, its size or its id
    end mark, or with a damaged size or id
    a record that a queue refers to, whose bytes    left out
    are no message
    bytes that are no record, zeros between records left out

    N.rdt (what a combine was about to move)        records of which no file has a whole copy, at the end of N.rdq

Of a directory of ours only files of which `check` tells damage are mended: a start finds records behind zeros, and a kill
leaves bytes that are no message which is missed.  Zeros at the end of a file do no harm and stay.  Records that are left
out are in the backup.

Source: rabbit_msg_store, rabbit_msg_file; docs/reference/message-store.md#scan-to-312 and #crash-points-of-a-combine.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import NamedTuple

from warrenmq.errors import CorruptFile
from warrenmq.inspect import message
from warrenmq.inspect.reading import File, Findings
from warrenmq.inspect.store import by_number
from warrenmq.mend.changes import Changes, pieces_of
from warrenmq.message.stored import bound_to
from warrenmq.message_store.rdq import EXTENSION, HEAD, MARKER, RABBITMQ_TEMPORARY
from warrenmq.message_store.scan import Gap, Record, Trust, scan

_AROUND = 9


class _Kept(NamedTuple):
    """A record of the new file."""

    msg_id: bytes
    offset: int
    total: int
    mended: bool
    """True if its head and its end mark are written anew."""


class StoreFiles:
    """The files of a store; `wanted` are ids that queues refer to, `true_ids` what stands under a damaged one."""

    def __init__(
        self,
        findings: Findings,
        folder: str,
        wanted: Container[bytes],
        true_ids: Mapping[tuple[str, int], bytes],
        damaged: Container[str] | None = None,
    ) -> None:
        """`damaged`: the files to mend, of a broker that finds its way through holes; without it all that need it."""
        self._findings = findings
        self._folder = folder
        self._wanted = wanted
        self._true_ids = true_ids
        self._damaged = damaged
        names = findings.names(folder)
        self._files = sorted((name for name in names if name.endswith(EXTENSION)), key=by_number)
        self._temporaries = sorted(
            (name for name in names if name.endswith(RABBITMQ_TEMPORARY)), key=by_number
        )

    def mend(self, changes: Changes) -> None:
        rescued = self._only_in_temporaries()
        for name in [*self._files, *(name for name in rescued if name not in self._files)]:
            self._mend_file(changes, name, rescued.get(name))
        for name in self._temporaries:
            changes.remove(f"{self._folder}/{name}", "what only it had is in the message file now; removed")

    def _only_in_temporaries(self) -> dict[str, tuple[str, list[_Kept]]]:
        """Find records that only an .rdt file has whole: by the message file that they belong to, the .rdt
        file and those records.
        """
        if not self._temporaries:
            return {}
        whole = {kept.msg_id for name in self._files for kept in self._records(name)[0]}
        found: dict[str, tuple[str, list[_Kept]]] = {}
        for name in self._temporaries:
            records = [
                each
                for each in self._records(name)[0]
                if each.msg_id in self._wanted and each.msg_id not in whole
            ]
            whole.update(each.msg_id for each in records)
            if records:
                found[name.removesuffix(RABBITMQ_TEMPORARY) + EXTENSION] = name, records
        return found

    def _mend_file(self, changes: Changes, name: str, rescued: tuple[str, list[_Kept]] | None) -> None:
        records, why = self._records(name) if name in self._files else ([], [])
        if rescued is not None:
            why.append(f"{len(rescued[1])} messages that were only in {rescued[0]} added")
        elif (
            self._damaged is not None
            and self._findings.relative(f"{self._folder}/{name}") not in self._damaged
        ):
            return
        if why:
            sources = [(name, records)] if records else []
            done = "; ".join([*why, "written anew with its records"])
            changes.replace(
                f"{self._folder}/{name}", self._pieces([*sources, *([rescued] if rescued else [])]), done
            )

    def _records(self, name: str) -> tuple[list[_Kept], list[str]]:
        """The records of the new file, and the damage of the old one."""
        file = self._findings.open(f"{self._folder}/{name}")
        if file is None:
            return [], []
        kept: list[_Kept] = []
        why: list[str] = []
        behind = 0
        with file:
            for found in scan(file, self._wanted):
                if isinstance(found, Gap):
                    if found.damage:
                        why.append(f"byte {found.offset}: {found.damage}")
                    continue
                for each in found.records:
                    if (record := self._record(file, name, each, found.trust)) is None:
                        why.append(f"byte {each[1]}: an unreadable message set aside")
                        continue
                    kept.append(record)
                    behind += found.trust in {Trust.BEHIND_ZEROS, Trust.BEHIND_DAMAGE}
                    if record.mended:
                        name_of = record.msg_id.hex()
                        why.append(f"byte {each[1]}: message {name_of} has a damaged frame, which was mended")
        if behind:
            why.append(f"{behind} records lay behind zeros or damage")
        return kept, why

    def _record(self, file: File, name: str, found: Record, trust: Trust) -> _Kept | None:
        """The bytes that the new file keeps of a record; None if it keeps nothing."""
        id_there, offset, total = found
        msg_id = self._true_ids.get((name, offset), id_there)
        mended = trust >= Trust.BAD_MARKER or msg_id != id_there
        if msg_id in self._wanted:
            stored = file.pread(total - HEAD.size - len(MARKER), offset + HEAD.size)
            try:
                message.decode(stored, file.path, offset, bound_to(msg_id))
            except CorruptFile:
                return None
        elif mended:
            return None
        return _Kept(msg_id, offset, total, mended)

    def _pieces(self, sources: list[tuple[str, list[_Kept]]]) -> Iterator[bytes]:
        for name, records in sources:
            file = self._findings.open(f"{self._folder}/{name}")
            if file is None:
                continue
            with file:
                for msg_id, offset, total, mended in records:
                    if not mended:
                        yield from pieces_of(file, [(offset, total)])
                        continue
                    yield HEAD.pack(total - _AROUND, msg_id)
                    yield file.pread(total - HEAD.size - len(MARKER), offset + HEAD.size)
                    yield MARKER
