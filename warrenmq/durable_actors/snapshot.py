"""The state of a durable actor on disk: one file, replaced whole, with the ids of the messages that are in it.

    msgpack of [version, address, ids, state], and its CRC-32 (u32, big-endian) behind it

In place of the id of a question that may be asked again stands [id, body, type], with the answer that was given.

The file is on disk before the messages are acked.  A kill between the two makes them come again, and their ids say that the
state has them already.  The last REMEMBERED ids are kept: acks are safe 200 ms after they were given, so what can come again
was handled a moment before the kill.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, TypeAlias
from zlib import crc32

import msgpack  # type: ignore[import-untyped]

from warrenmq.broker.broker import Broker
from warrenmq.directory.layout import base36_md5
from warrenmq.errors import CorruptFile

Answer: TypeAlias = tuple[bytes, str | None]
"""An answer as it is sent: its body, and the name of its dataclass, if it is one."""
FOLDER = "durable_actors"
REMEMBERED = 4_096
_VERSION = 1
_CHECKSUM_BYTES = 4


class Snapshot:
    """The state of one address with the ids of the messages that are in it, and the file that it is written to.

    state         the bytes of the state behind the last message that was handled; None if the actor has none
    _has_changed  since it was written a message has changed the state, which another one may have changed back, or must be
                  known when it comes again, as others know of it
    """

    def __init__(self, broker: Broker, address: str) -> None:
        """Read the file, if there is one; CorruptFile if it is invalid, which must not be taken for an empty state."""
        self._disk = broker.inside.vhost.disk
        self._folder = f"{broker.inside.vhost.directory.path}/{FOLDER}"
        self._path = f"{self._folder}/{base36_md5(address)}.snapshot"
        self._address = address
        self._ids: OrderedDict[str, Answer | None] = OrderedDict()
        self.state: bytes | None = None
        self._has_changed = False
        if self._disk.exists(self._path):
            self._read(self._disk.read(self._path))
            # a kill may have come between its rename and this, and messages are acked because it has their ids
            self._disk.sync_dir(self._folder)

    def __contains__(self, message_id: object) -> bool:
        return message_id in self._ids

    def add(
        self,
        message_id: str | None,
        state: bytes | None,
        answer: Answer | None = None,
        *,
        has_told: bool = False,
    ) -> None:
        """Add a message that was handled, and the state behind it; `answer` is kept for who asks again, and
        with `has_told` others were told or asked something.

        None is the id of a message that has none, and of the state that the actor begins with.
        """
        self._has_changed |= state != self.state
        self.state = state
        if state is None or message_id is None:
            return
        self._has_changed |= has_told or answer is not None
        self._ids[message_id] = answer
        if len(self._ids) > REMEMBERED:
            self._ids.popitem(last=False)

    def answer(self, message_id: str) -> Answer | None:
        """The answer that was kept for a question with this id."""
        return self._ids.get(message_id)

    def write(self) -> None:
        """Write the state and the ids to disk, if they have changed."""
        if not self._has_changed:
            return
        ids = [each if answer is None else [each, *answer] for each, answer in self._ids.items()]
        data: bytes = msgpack.packb([_VERSION, self._address, ids, self.state])
        self._disk.mkdir(self._folder)
        self._disk.replace(self._path, data + crc32(data).to_bytes(_CHECKSUM_BYTES, "big"))
        self._has_changed = False

    def _read(self, found: bytes) -> None:
        data, checksum = found[:-_CHECKSUM_BYTES], found[-_CHECKSUM_BYTES:]
        fields: Any = None
        if crc32(data).to_bytes(_CHECKSUM_BYTES, "big") == checksum:
            fields = msgpack.unpackb(data)
        if not isinstance(fields, list) or fields[:2] != [_VERSION, self._address]:
            raise CorruptFile(
                self._path,
                0,
                f"it is not the state of the durable actor {self._address!r}; move it away to begin anew",
            )
        _, _, ids, self.state = fields
        for each in ids:
            if isinstance(each, str):
                self._ids[each] = None
            else:
                self._ids[each[0]] = each[1], each[2]
