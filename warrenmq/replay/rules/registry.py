"""The invariants, each with its number, its sentence and its source; and the machines that decide them.

Sources: MS = the message store's reference (sections, I numbers of 15.1), CQ = the classic queue's reference,
TF = the trace format's own promises.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from warrenmq.replay.drive.machines import Machine
from warrenmq.replay.rules.actors import Chain, Names, Supervisor
from warrenmq.replay.rules.blocking import Blocking
from warrenmq.replay.rules.confirms import Confirms
from warrenmq.replay.rules.expiry import Expiry
from warrenmq.replay.rules.fifo import Fifo
from warrenmq.replay.rules.files import Files
from warrenmq.replay.rules.garbage import Garbage
from warrenmq.replay.rules.ledger import Ledger
from warrenmq.replay.rules.mail import Mail
from warrenmq.replay.rules.on_disk import OnDisk, Synced
from warrenmq.replay.rules.places import DirectReads
from warrenmq.replay.rules.references import References
from warrenmq.replay.rules.rests import Rests
from warrenmq.replay.rules.settles import Settles
from warrenmq.trace.catalog import Run


class Rule(NamedTuple):
    """One invariant."""

    id: str
    name: str
    text: str
    source: str
    machines: tuple[str, ...]
    counts_itself: bool = False
    """Its machine says how often it could have been broken (JUDGED): not every row that the machine reads is a case."""


RULES: dict[str, Rule] = {
    rule.id: rule
    for rule in (
        Rule("T1", "unbroken rows", "An actor numbers its rows without a gap, and their t rises.",
             "TF 2c, 2d", ("chain",)),
        Rule("T2", "every receive has a send", "A receive names a SEND that exists, and no SEND is received twice.",
             "TF 2d", ("mail",)),
        Rule("T4", "send before receive", "The t of a SEND is below the t of its receive.", "TF 2d", ("mail",)),
        Rule("C1", "confirm after sync", "A durable confirm comes after the index sync that covers the message and, "
             "with a body in the store, after the body was synced and reported, or its write was cancelled.",
             "MS I21, 7; CQ 3.6, 10.1 (25)", ("confirms", "synced", "on_disk")),
        Rule("C2", "nothing confirmed is lost", "A confirmed persistent message is acked, dropped, recovered by the "
             "next incarnation of its queue, or still there, and its body is not found damaged; what was acked and synced does not "
             "come back, and nothing transient does.", "CQ 10.1 (8, 10, 11, 13)", ("ledger",)),
        Rule("C3", "every confirm is given", "When a queue stops cleanly, every publish that wants a confirm has it, but for those with "
             "bodies of which no store has told.", "MS I20; CQ 10.1 (12, 25)", ("confirms",)),
        Rule("C4", "no confirm is overdue", "A durable confirm is given before the second sync of the index after the one that it waited "
             "for, and after its body was reported safe.", "CQ 10.1 (26)", ("confirms",)),
        Rule("Q1", "first in, first out", "Sequence ids rise; a delivery takes the smallest ready one, of the highest priority; a "
             "message is acked or requeued only while it is unacked, and is flagged redelivered if, and only if, it was "
             "delivered before.",
             "CQ 10.1 (1-5)", ("fifo", "ledger")),
        Rule("Q2", "the oldest goes first", "What a queue drops by itself, because it has expired or is too much, has the "
             "smallest ready sequence id, of the highest priority.", "CQ 4.2, 4.3, 4.7", ("fifo",)),
        Rule("Q3", "nothing expires too soon", "A message that is dropped because it has expired had a time to live, which was "
             "over by then, whatever the broker has been through since.", "CQ 4.2, 4.3", ("expiry", "ledger")),
        Rule("Q4", "redelivered after a restart", "A message that was recovered is flagged redelivered when it is delivered for the first "
             "time, if an earlier incarnation of its queue had delivered it, or if the queue was not stopped cleanly.",
             "CQ 3.8, 10.1 (3)", ("ledger",), counts_itself=True),
        Rule("Q5", "nothing ready is stuck", "When a queue has nothing else to do, no message is ready that a consumer or a waiting get "
             "with room could have.", "CQ 4.4, 10.1 (6)", ("rests",), counts_itself=True),
        Rule("A1", "an ack is of its own delivery", "What a client acks, rejects or requeues under a delivery tag is the message that was "
             "delivered under it to that consumer; with multiple, what was delivered up to it.", "CQ 5.4", ("settles",), counts_itself=True),
        Rule("A2", "multiple only where asked", "An ack or reject of one tag settles one message.", "CQ 5.4", ("settles",), counts_itself=True),
        Rule("A3", "what a consumer leaves comes back", "When a consumer is cancelled, what it had not taken is requeued at once, and when "
             "its channel ends, whatever it held; it gets nothing more.", "CQ 4.4, 10.1 (5)", ("settles",), counts_itself=True),
        Rule("S1", "reference counts", "A reference count moves by one, is never negative, and at a clean end equals "
             "the number of queues that hold the message.", "MS I3, I28; CQ 10.1 (27)", ("references",)),
        Rule("S2", "flying decisions", "The store's decision on a write or remove is the one that the flying counter's "
             "table names for the value seen.", "MS 5.1, I11, I12", ("references",)),
        Rule("S3", "valid_total_size", "A file's valid_total_size is the sum of its live records, and a combine moves "
             "just these.", "MS I1, 8.4", ("files",)),
        Rule("S4", "locked files", "A file is locked once at a time; nothing is written to a locked one but by the "
             "collector, and the collector writes to no other. The file that is appended to is neither locked nor deleted.",
             "MS 6.4, 8, I6, I15, I24", ("files",)),
        Rule("S5", "contiguous offsets", "A record begins where the one before it in its file ended, and a compaction "
             "copies as many bytes as it says.", "MS 6.1, 8.7, I7, I19", ("files",)),
        Rule("S6", "roll at the limit", "A file is opened before it is written, and left once, when it has reached the "
             "limit, not before and not later, but for a large message that gets a file of its own and for a file that is mostly garbage.", "MS 6.1, I18", ("files",)),
        Rule("S7", "true triggers", "A flush writes what was appended since the last one, for the reason it names.",
             "MS 6.1, 7.1; TF 3d (S3)", ("files",)),
        Rule("S8", "truncation waits", "A file is cut to what its compaction made of it, when every reader has left that "
             "began before the records had their new places.", "MS 8.7, I25", ("files",)),
        Rule("S9", "no garbage is left", "A store in which nothing happened for a minute before its clean end is not mostly "
             "garbage.", "MS 8.1, 8.6; 15.2 (38)", ("garbage",)),
        Rule("D1", "direct reads find their record", "A body that a queue reads by itself is read where its store, or that store's "
             "collector, had told that its record is.", "MS 10, I8", ("places",), counts_itself=True),
        Rule("E1", "state as it was told", "After recovery and at a clean stop a queue has as many messages, a store as many "
             "messages, references and files, and each file the size, that the rows add up to; and a recovery from a clean stop finds what "
             "the stop had left: no more messages and the same next sequence id in a queue, as many messages and files in a store.",
             "CQ 9, 10.1 (22); MS 4.4, 9.1, 13.1", ("ledger", "references", "files")),
        Rule("R1", "restarts within intensity", "A supervisor restarts no more often than its intensity allows, and "
             "gives up only when it is exceeded.", "MS 13.3", ("supervisor",)),
        Rule("R2", "the dead are silent", "An incarnation writes no row after its successor has started.", "MS 13.2",
             ("names",)),
        Rule("W1", "who waits stands still", "An actor that waits for a peer's credit, or for the alarms to clear, says so once before "
             "it goes on, and goes on only when it has waited; a thread that waits for a queue's credit sends it nothing.",
             "CQ 6.3, 10.1 (30); MS 11, I27", ("waits",)),
    )
}  # fmt: skip


def all_machines(runs: Sequence[Run]) -> list[Machine]:
    """Every machine, for the runs of a catalogue."""
    return [
        machine(runs)
        for machine in (
            Chain, Mail, Supervisor, Names, Confirms, Fifo, Expiry, Ledger, Synced, OnDisk, References, Files,
            Garbage, Blocking, Settles, Rests, DirectReads,
        )
    ]  # fmt: skip
