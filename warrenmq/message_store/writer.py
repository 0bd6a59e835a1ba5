"""Group commit and roll-over: when the write buffer is flushed and synced, and when the next file begins
(rabbit_msg_store:write_message, internal_sync, maybe_roll_to_new_file).

    | what happens                             | flush | sync | confirms | trigger       |
    | ---------------------------------------- | ----- | ---- | -------- | ------------- |
    | more than 1 MiB is buffered              | yes   | no   | no       | BUFFER_FULL   |
    | the mailbox is empty and confirms wait   | yes   | yes  | all      | MAILBOX_EMPTY |
    | confirms waited for 25 ms                | yes   | yes  | all      | TIMER         |
    | the file has reached the limit           | yes   | yes  | all      | ROLL_OVER     |
    | a large message comes, or came           | yes   | yes  | all      | ROLL_OVER     |
    | the system lets the file grow no further | yes   | yes  | all      | ROLL_OVER     |
    | most of an idle file is garbage          | yes   | yes  | all      | ROLL_OVER     |
    | the store stops                          | yes   | yes  | all      | CLOSE         |

A large message, in stores that compact in place, gets a file of its own (RabbitMQ from 4.0), so that it never has
to be moved; unless the disk is too full to begin one.

A file is synced when it stops being the current one, whether or not a confirm waits; so a message in an older file is
safe, and its next write is confirmed at once.

A full disk (`is_full`) stops nothing but appending: the buffer is kept, nothing is confirmed, and `retry` is
tried until there is space.  A want of file descriptors does the same, unless it is for the next file: then
this one takes more, since queues that wait for its confirms keep the descriptors that they have.  Every other
error, and every other error of a sync, is raised: after a failed sync the kernel may have dropped what it
should have saved, and only a restart that reads the files again can know.
"""

from __future__ import annotations

from warrenmq.message_store.current_file import CurrentFile
from warrenmq.message_store.effects import Confirm, Effect
from warrenmq.message_store.rdq import LARGE_MESSAGE, OVERHEAD
from warrenmq.message_store.tables import Client, StoreTables, trace_number
from warrenmq.message_store.trace import checksum_in_row
from warrenmq.seams.disk import Disk
from warrenmq.seams.disk_errors import NoRoomToSync, is_longest, is_short_of_descriptors, lack_of
from warrenmq.settings import Settings
from warrenmq.trace.events import (
    IGNORED,
    ROLL_FOR_LARGE,
    ROLL_FULL,
    ROLL_GARBAGE,
    ROLL_LARGE,
    ROLL_LONGEST,
    WRITTEN,
    Append,
    Roll,
    StoreConfirm,
    Trigger,
)
from warrenmq.trace.recorder import ActorTrace
from warrenmq.trace.writers import writer

_write_append, _write_roll, _write_store_confirm = writer(Append), writer(Roll), writer(StoreConfirm)


class StoreWriter:
    """The current file, and the clients that wait for it to be safe."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        tables: StoreTables,
        settings: Settings,
        effects: list[Effect],
        trace: ActorTrace | None,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._tables = tables
        self._limit = settings.msg_store_file_size_limit
        self._write_buffer = settings.msg_store_write_buffer
        self._effects = effects
        self._trace = trace
        self._waiting: dict[bytes, Client] = {}
        self.file = CurrentFile(disk, directory, tables.files.current, trace)
        self._full = 0
        """The reason why a new file is to be begun (a flag of ROLL), for which there was no room or
        descriptor; 0 = there is none.
        """
        self._too_long = False
        """True while writes wait for a file to be allowed to grow further."""
        self.left: list[int] = []
        """Files that were rolled over and not yet checked for garbage."""

    @property
    def disk_full(self) -> bool:
        """The last attempt to write found no space, or no descriptor."""
        return self._tables.disk_full

    # appending

    def append(self, client: Client, msg_id: bytes, body: bytes) -> None:
        """Write a record for a message that has no entry, with its first reference, which is this client's."""
        file, files = self.file, self._tables.files
        total = len(body) + OVERHEAD
        alone = len(body) >= LARGE_MESSAGE and files.in_place
        if alone and file.offset:
            alone = self._roll_over(ROLL_FOR_LARGE)
            file = self.file
        if file.offset and not self._full and file.offset + total > self._tables.longest():
            self._roll_over(ROLL_LONGEST)
            file = self.file
        self.wait_for_sync(client, msg_id)  # not before: leaving a file confirms everything that waits
        offset = file.append(msg_id, body)
        if self._trace is not None:  # first: once the index has it, a queue may read it and say so
            number = trace_number(msg_id)
            _write_append(self._trace, number, checksum_in_row(number, body), file.number, offset, total)
        self._tables.index.insert(msg_id, (1, file.number, offset, total))
        files.appended(msg_id, total)
        if not self._full and (offset + total >= self._limit or alone):
            self._full = ROLL_FULL if offset + total >= self._limit else ROLL_LARGE
            self._roll_over(self._full)
        elif file.buffered > self._write_buffer and self.flush(Trigger.BUFFER_FULL):
            self._leave_full()

    def flush(self, trigger: Trigger) -> bool:
        """Hand the buffer to the kernel; False if the disk is full."""
        try:
            self.file.flush(trigger)
        except OSError as error:
            self._wait_for_room(error)
            return False
        self._tables.disk_full = False
        return True

    def _wait_for_room(self, error: OSError) -> None:
        """Note what is lacking until `retry` finds it; every other error is raised again."""
        if (lack := lack_of(error)) is None:
            raise error
        self._tables.disk_full, self._tables.lack = True, lack
        self._too_long = is_longest(error)
        if self._too_long:
            for client in self._waiting.values():
                client.unconfirmed.clear()
                self.put_off(client)
            self._waiting.clear()

    def put_off(self, client: Client) -> None:
        """Writes of a client wait for room; under a limit of the system nobody waits for that."""
        if self._too_long and client.wants_confirms:
            self._effects.append(Confirm(client, [], "too long"))

    def _sync_file(self, trigger: Trigger) -> bool:
        """Sync the current file, which was flushed; False if that has to wait."""
        try:
            self.file.sync(trigger)
        except OSError as error:
            if not (is_short_of_descriptors(error) or isinstance(error, NoRoomToSync)):
                raise
            self._wait_for_room(error)
            return False
        return True

    def retry(self) -> bool:
        """Try again what found no space; False if there is still no space."""
        if self._full:
            self._roll_over(self._full)
        elif self.confirms_wait:
            self.sync(Trigger.TIMER)
        else:
            self.flush(Trigger.TIMER)
        return not self.disk_full

    def leave(self) -> None:
        """Begin a new file, though this one is not full: it is mostly garbage, which is collected only elsewhere."""
        if not self.disk_full:
            self._roll_over(ROLL_GARBAGE)

    def _roll_over(self, why: int) -> bool:
        old, files = self.file, self._tables.files
        if not self._make_safe(Trigger.ROLL_OVER):
            return False
        try:
            self.file = CurrentFile(self._disk, self._directory, old.number + 1, self._trace)
        except OSError as error:
            if not is_short_of_descriptors(error):
                self._wait_for_room(error)
            return False
        self._full = 0
        old.close()
        self.left.append(old.number)
        files.add(self.file.number)
        self._tables.cache.roll_over()
        if self._trace is not None:
            _write_roll(self._trace, why, new_file=self.file.number, old_file=old.number, old_size=old.offset)
        return True

    # confirms

    @property
    def confirms_wait(self) -> bool:
        return bool(self._waiting)

    def wait_for_sync(self, client: Client, msg_id: bytes) -> None:
        """Confirm this message to the client once the current file is synced."""
        if client.wants_confirms:
            client.unconfirmed[msg_id] = None
            self._waiting[client.cref] = client

    def cancel(self, client: Client, msg_id: bytes) -> None:
        """A message that waits for the sync was removed."""
        del client.unconfirmed[msg_id]
        if not client.unconfirmed:
            del self._waiting[client.cref]

    def sync(self, trigger: Trigger) -> None:
        """Make the current file safe and confirm what waits for it."""
        if self._make_safe(trigger):
            self._leave_full()

    def _make_safe(self, trigger: Trigger) -> bool:
        if safe := self.flush(trigger) and self._sync_file(trigger):
            self._confirm_all()
        return safe

    def _leave_full(self) -> None:
        """Begin the file for which there was no descriptor."""
        if self._full:
            self._roll_over(self._full)

    def confirm(self, client: Client, msg_ids: list[bytes], reason: str) -> None:
        """Tell a client at once."""
        if not msg_ids or not client.wants_confirms:
            return
        if (trace := self._trace) is not None:
            flag = WRITTEN if reason == "written" else IGNORED
            for msg_id in msg_ids:
                _write_store_confirm(trace, flag, trace_number(msg_id), client.trace_id)
        self._effects.append(Confirm(client, msg_ids, reason))

    def forget(self, client: Client) -> None:
        """Drop what waits to be confirmed to this client."""
        self._waiting.pop(client.cref, None)
        client.unconfirmed.clear()

    def _confirm_all(self) -> None:
        for client in self._waiting.values():
            msg_ids = list(client.unconfirmed)
            client.unconfirmed.clear()
            self.confirm(client, msg_ids, "written")
        self._waiting.clear()

    def close(self) -> bool:
        """Make everything safe and close; False if the disk is full, and what was buffered is lost."""
        self._make_safe(Trigger.CLOSE)
        self.file.close()
        return not self.disk_full
