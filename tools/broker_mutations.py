"""Mutations of the broker's code, by name: what each breaks, and the text that it puts in the place of another (tools/mutants.py)."""

from __future__ import annotations

from typing import NamedTuple


class Mutation(NamedTuple):
    """A change of one module that makes the broker wrong."""

    name: str
    does: str
    """The fault, in the words of a user of the broker."""
    module: str
    """Path below the package."""
    old: str
    """It must be there exactly once."""
    new: str


MUTATIONS = (
    # -- what a store loses
    Mutation(
        "compaction-cuts-last", "a compaction cuts off the end of the last record",
        "message_store/compact.py",
        "        file.truncate(size)\n", "        file.truncate(size - 1)\n",
    ),
    Mutation(
        "compaction-no-marker", "a compaction leaves the last copy without its marker",
        "message_store/compact.py",
        "            for offset, marker in markers:\n", "            for offset, marker in markers[:-1]:\n",
    ),
    Mutation(
        "compaction-old-place", "after a compaction the index names the old place of the last record that moved",
        "message_store/gc.py",
        "        for move in job.plan.moves:\n", "        for move in job.plan.moves[:-1]:\n",
    ),
    Mutation(
        "combine-drops-last", "a combine leaves out the last record of a file with several",
        "message_store/combine.py",
        "    for _, offset, total in survivors:\n", "    for _, offset, total in survivors[: max(1, len(survivors) - 1)]:\n",
    ),
    Mutation(
        "store-no-sync", "a store confirms without a sync",
        "message_store/writer.py",
        "            self.file.sync(trigger)\n            self._confirm_all()\n", "            self._confirm_all()\n",
    ),
    Mutation(
        "store-no-sync-at-roll-over", "a store leaves a full file without a sync",
        "message_store/writer.py",
        "        old.sync(Trigger.ROLL_OVER)\n", "",
    ),
    Mutation(
        "store-one-reference", "the second queue's reference to a message is not counted",
        "message_store/state.py",
        "        refs = self.tables.index.count(msg_id, 1)\n", "        refs = self.tables.index.count(msg_id, 0 if self._entry(msg_id)[0] else 1)\n",
    ),
    Mutation(
        "recovery-one-reference", "a store that recovers counts one reference for each message, however many queues hold it",
        "message_store/recovery.py",
        "        self._entries[msg_id] = (self._refs[msg_id], number, offset, total)\n        self._files.rows",
        "        self._entries[msg_id] = (1, number, offset, total)\n        self._files.rows",
    ),
    Mutation(
        "store-crash-loop", "a store that was not stopped cleanly cannot start as long as its last file holds anything",
        "message_store/recovery.py",
        "        if not row.file_size:\n            return\n",
        '        if not row.file_size:\n            return\n        raise OSError("the last file cannot be written anew")\n',
    ),
    Mutation(
        "flying-ignored", "a write that its remove has overtaken is written all the same",
        "message_store/state.py",
        "            if value is None or value <= 0:\n", "            if value is None or value < 0:\n",
    ),
    Mutation(
        "removed-before-ack-is-safe", "a body is removed from the store before the ack of its message is on the disk",
        "backing_queue/variable_queue.py",
        "                    self.to_remove += ids\n", "                    self._persistent_store.remove(ids)\n",
    ),
    # -- what a queue's index loses
    Mutation(
        "journal-no-sync", "version 1 of the index confirms without a sync of the journal",
        "queue_index/v1/index.py",
        "        self._journal.datasync()\n        size, actions", "        size, actions",
    ),
    Mutation(
        "journal-acks-lost", "version 1 of the index does not write acks to the journal",
        "queue_index/v1/index.py",
        "        self._journal.ack_range(first_seq_id, count)\n", "",
    ),
    Mutation(
        "flush-drops-last", "a flush of the journal leaves the last entry of a segment behind",
        "queue_index/v1/index.py",
        "flush.positions or segment.to_append()\n", "flush.positions or segment.to_append()[:-1]\n",
    ),
    Mutation(
        "transient-recovered", "version 1 of the index brings transient messages back after a restart",
        "queue_index/v1/recovery.py",
        "            if relative in effective.transient:\n", "            if relative in ():\n",
    ),
    Mutation(
        "index-no-sync", "version 2 of the index confirms without a sync of its files",
        "queue_index/v2/index.py",
        "            self._files.sync()\n", "            pass\n",
    ),
    Mutation(
        "index-acks-lost", "version 2 of the index never writes the ack of the newest message that waits for it",
        "queue_index/v2/index.py",
        "sorted(buffer), sorted(self._acks), self", "sorted(buffer), sorted(self._acks)[:-1], self",
    ),
    Mutation(
        "segment-deleted-too-soon", "version 2 of the index deletes a segment that still has one message",
        "queue_index/v2/index.py",
        "            self._segments[number].unacked -= room\n", "            self._segments[number].unacked = max(0, self._segments[number].unacked - room - 1)\n",
    ),
    # -- confirms
    Mutation(
        "confirm-before-index", "a queue confirms before its index is written",
        "queue/state.py",
        "            self.vq.index.sync(trigger)\n", "            pass\n",
    ),
    Mutation(
        "confirm-before-body", "a queue confirms before the store has a body safe",
        "queue/unconfirmed.py",
        "_Parts(publication, 1 + len(in_store))", "_Parts(publication, 1)",
    ),
    Mutation(
        "confirm-by-one", "a message to several queues is confirmed by the first that has it safe",
        "actors/sending/confirms.py",
        "            shares.pop()\n            if shares:\n                return\n", "            shares.pop()\n",
    ),
    Mutation(
        "no-nack", "a queue that dies never nacks what it has not confirmed",
        "actors/queue/process.py",
        "        self._state.nack_all(why_ended(reason))\n", "        return\n",
    ),
    Mutation(
        "no-credit", "a queue never grants its publishers more credit",
        "queue/publish_buffer.py",
        "            if credit := ack(message.publisher, count):\n", "            if (credit := ack(message.publisher, count)) and False:\n",
    ),
    # -- routing and transactions
    Mutation(
        "fan-out-misses", "a fan-out misses the last of its queues",
        "routing/router.py",
        '                return queues.get("", ())\n', '                return queues.get("", ())[:1]\n',
    ),
    Mutation(
        "bindings-forgotten", "bindings are gone after a restart",
        "actors/vhost/exchange_declarations.py",
        "                router.bind(binding)\n", "                pass\n",
    ),
    Mutation(
        "rollback-commits", "a transaction that is rolled back is committed",
        "broker/publisher.py",
        '            promise.nack("the transaction was rolled back")\n', '            promise.nack("the transaction was rolled back")\n        self.commit()\n',
    ),
    Mutation(
        "deleted-queue-returns", "a queue that was deleted is there again after a restart",
        "actors/queue/process.py",
        "            request.commit()\n", "            pass\n",
    ),
    # -- deliveries
    Mutation(
        "dropped-as-lost", "of bodies that are read at once all but two are dropped as lost",
        "backing_queue/variable_queue.py",
        "                        bodies = self._read_bodies(missing)\n", "                        bodies = self._read_bodies(missing[:2])\n",
    ),
    Mutation(
        "another-body", "a delivery has the body of another message that was read with it",
        "backing_queue/variable_queue.py",
        "                    body = bodies.get(record[:16])\n                if body", "                    body = next(iter(bodies.values()), None)\n                if body",
    ),
    Mutation(
        "redelivered-forgotten", "the redelivered flag is lost over a restart",
        "actors/queue/recovery.py",
        "        next_deliver = clean.next_deliver_seq_id if clean is not None and clean_stop else found.next_seq_id\n", "        next_deliver = 0\n",
    ),
    Mutation(
        "requeued-unmarked", "a message that was put back is delivered again without the redelivered flag",
        "backing_queue/variable_queue.py",
        "        self._requeued.update(message[0] for message in back)\n", "",
    ),
    Mutation(
        "requeued-behind", "in the modern profile a message that was put back comes after those that are in memory",
        "backing_queue/read_ahead.py",
        "            self.q_head = deque(heapq.merge(self.q_head, back))\n", "            self.q_head.extend(back)\n",
    ),
    Mutation(
        "untaken-kept", "what a cancelled consumer never took does not come back",
        "queue/output.py",
        "        self._put_back(self._consumers.cancel(request), taken=False)\n", "        self._consumers.cancel(request)\n",
    ),
    Mutation(
        "prefetch-exceeded", "a consumer gets one message more than its prefetch count",
        "queue/channel_record.py",
        "            granted = min(most, self.prefetch - len(self.unacked) - self.claimed)\n", "            granted = min(most, self.prefetch + 1 - len(self.unacked) - self.claimed)\n",
    ),
    Mutation(
        "priorities-upside-down", "a queue with priorities delivers the lowest one first",
        "backing_queue/priority_queue.py",
        "        for priority, queue in self._downwards:\n            if queue.ready:\n                base", "        for priority, queue in reversed(self._downwards):\n            if queue.ready:\n                base",
    ),
    # -- messages that leave
    Mutation(
        "ack-of-the-oldest", "the ack of one delivery settles the oldest one that the consumer holds",
        "queue/consumers.py",
        "        seqs = {seq: tag for tag in tags if (seq := pop(tag, None)) is not None}\n",
        "        seqs = {pop(oldest): oldest for oldest in sorted(consumer.unacked)[: len(tags)]}\n",
    ),
    Mutation(
        "reject-of-the-oldest", "the reject of one delivery settles the oldest one that the consumer holds",
        "queue/channel_record.py",
        "            seq = unacked.pop(tag, None)\n", "            seq = unacked.pop(min(unacked, default=tag), None)\n",
    ),
    Mutation(
        "purge-leaves-one", "a purge leaves the last message",
        "backing_queue/variable_queue.py",
        "        while seqs := self._drop(PURGE_BATCH, Wanted.HEADERS):\n", "        while seqs := self._drop(min(PURGE_BATCH, self.ready - 1), Wanted.HEADERS):\n",
    ),
    Mutation(
        "dead-letter-dropped", "a rejected message never comes to the dead-letter queue",
        "queue/drops.py",
        "        self._send_on(fetched, REJECTED)\n", "",
    ),
    Mutation(
        "ttl-ignored", "messages of a queue with x-message-ttl live for ever",
        "queue/expiry_and_limits.py",
        "        found = expiries(self.ttl, [", "        found = expiries(None, [",
    ),
    Mutation(
        "ttl-halved", "messages of a queue with x-message-ttl live half as long",
        "queue/expiry_and_limits.py",
        "        found = expiries(self.ttl, [", "        found = expiries(self.ttl // 2 if self.ttl else None, [",
    ),
    # -- alarms
    Mutation(
        "alarm-ignored", "publishers go on while an alarm is set",
        "broker/publisher.py",
        "            if self._alarms.active:\n                self._wait_and_tell", "            if False:\n                self._wait_and_tell",
    ),
    Mutation(
        "full-disk-accepted", "a queue takes publishes while the disk is full",
        "queue/state.py",
        "        if not index_sync.takes(buffer.size):\n", "        if not index_sync.takes(buffer.size) and False:\n",
    ),
)  # fmt: skip
"""Every mutation, by what it breaks."""
