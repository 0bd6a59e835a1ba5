"""A message store as actors, with small queues that do what a test tells them."""

from __future__ import annotations

from collections import Counter

from tests.message_store.kit import FOLDER, QUARANTINE, SMALL, body_of, check_at_rest, msg_id
from tests.support.limits import LIMIT
from warrenmq.actors.store import process as msg_store
from warrenmq.actors.store.client import BumpCredit, MsgStoreClient
from warrenmq.actors.store.messages import Statistics
from warrenmq.actors.store.process import MsgStore
from warrenmq.directory.damage_log import DamageLog
from warrenmq.runtime import Server

STORE = "msg_store_persistent"


class Watched(MsgStore):
    """A store whose newest incarnation a test can look into."""

    newest: MsgStore

    def init(self, *args, **kwargs):
        Watched.newest = self  # a runtime may have made a class of its own of this one
        super().init(*args, **kwargs)


class StoreQueue(Server):
    """A queue process, as far as a store can tell: a request is a function of it."""

    def init(self, owner, holds=(), store=STORE, on_disk=True):
        self.confirms = {"written": Counter(), "ignored": Counter()}
        self.awaited = None
        self.client = MsgStoreClient(
            self, store, owner, self.runtime.token_bytes(16), self.on_disk if on_disk else None
        )
        self.present = self.client.register([msg_id(number) for number in holds])

    def on_disk(self, msg_ids, reason):
        """In the store's thread: only counting, which a test looks at when it knows that it is over."""
        self.confirms[reason].update(msg_ids)

    def handle_cast(self, message):
        if isinstance(message, BumpCredit):
            assert message.store == STORE
            self.client.handle_bump(message.credit)
        else:
            message(self)

    def handle_call(self, request, sender):
        return request(self)

    def terminate(self, reason):
        if reason == "shutdown":
            self.client.terminate()

    def write(self, *numbers):
        for number in numbers:
            self.client.write(msg_id(number), body_of(number))
        self.client.send()

    def remove(self, *numbers):
        self.client.remove([msg_id(number) for number in numbers])
        self.client.send()


class StoreHost:
    """Starts the store and its queues on one disk; ask and tell run a function in a queue."""

    def __init__(self, runtime, disk, settings=SMALL, folder=FOLDER):
        self.runtime = runtime
        self.disk = disk
        self.settings = settings
        self.folder = folder
        self.claims = {}
        self.asked = 0
        self.store = None

    def start(self, kind=STORE, *, keeps=True):
        args = (
            kind,
            self.folder,
            self.disk,
            self.settings,
            self.references if keeps else None,
            QUARANTINE,
            DamageLog(),
        )
        self.store = self.runtime.start(Watched, *args, name=kind)
        return self.store

    def references(self):
        first = True
        for owner, numbers in self.claims.items():
            yield owner, self.claimed(numbers, first)
            first = False

    def claimed(self, numbers, is_first):
        self.asked += is_first
        yield [msg_id(number) for number in numbers]

    def queue(self, owner, holds=(), **kwargs):
        self.claims.setdefault(owner, ())
        return self.runtime.start(StoreQueue, owner, holds, **kwargs)

    def ask(self, queue, function):
        return self.runtime.call(queue, function, timeout=LIMIT)

    def write(self, queue, *numbers):
        self.ask(queue, lambda q: q.write(*numbers))

    def remove(self, queue, *numbers):
        self.ask(queue, lambda q: q.remove(*numbers))

    def read(self, queue, number):
        return self.ask(queue, lambda q: q.client.read(msg_id(number)))

    def confirms(self, queue, reason="written"):
        counted = self.ask(queue, lambda q: q.confirms[reason])
        return sorted(int.from_bytes(m[8:], "big") for m in counted.elements())

    def statistics(self):
        return self.runtime.call(STORE, Statistics(), timeout=LIMIT)

    def bytes(self):
        """(in files, of living messages)"""
        files = self.statistics().files
        return sum(row[1] for row in files), sum(row[2] for row in files)

    def little_garbage(self):
        """True if no more than half of the files' bytes are garbage."""
        size, valid = self.bytes()
        return size <= 2 * valid

    def in_file(self, number, of=range(60)):
        """Filter the messages that are in a file."""
        lookup = Watched.newest._state.tables.index.lookup
        return [n for n in of if (entry := lookup(msg_id(n))) is not None and entry[1] == number]

    def until(self, what):
        """Wait for what cannot be waited for otherwise."""
        for _ in range(10_000):
            if what():
                return
            self.runtime.event().wait(0.001)
        msg = "it did not come true"
        raise AssertionError(msg)

    def confirmed(self, queue, *numbers):
        """Wait until these were confirmed as written."""
        self.until(lambda: set(numbers) <= set(self.confirms(queue)))

    def rest(self):
        """Wait until nothing is under way; where a test lets its clock run fast, until nothing is looked for either."""
        store = Watched.newest
        state = store._state
        slow = msg_store.CHECK_INTERVAL > 1
        self.until(
            lambda: (
                self.statistics()
                and not state.gc.pending
                and not state.writer.confirms_wait
                and (slow or store._interval is None)
            )
        )
        return state

    def at_rest(self, *queues):
        """Let everything settle, these queues too, and check all tables."""
        state = self.rest()
        for queue in queues:
            self.ask(queue, lambda q: None)
        self.until(lambda: not state.gc.pending)
        self.statistics()
        check_at_rest(state, self.disk, self.folder)
        return state

    def gate(self, op, suffix):
        """Stop the next process that does this operation on such a file; returns (an event that it has stopped, an event
        that lets it go on).
        """
        arrived, go = self.runtime.event(), self.runtime.event()

        def before_op(found, path):
            if found == op and path.endswith(suffix) and not arrived.is_set():
                arrived.set()
                go.wait(LIMIT)

        self.disk.before_op = before_op
        return arrived, go

    def hold_read(self, queue, number):
        """Have a queue in the middle of reading this message from the first file; returns (its answer's channel, let it go)."""
        arrived, go = self.gate("pread", "/0.rdq")
        answers = self.runtime.channel()
        self.runtime.cast(queue, lambda q: answers.put(q.client.read(msg_id(number))))
        assert arrived.wait(LIMIT)
        return answers, go
