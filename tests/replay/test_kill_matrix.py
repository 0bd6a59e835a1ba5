"""The checkers, checked: wrongs of every kind, done at many places of consistent traces, and the rules that notice.

docs/kill-matrix.md is the outcome.  A wrong that a rule should notice is noticed by that rule; one that survives is named there
with the reason.  `python -m tests.replay.test_kill_matrix` from the root writes the page anew.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path

import pytest

from tests.replay.trace_mutations import mutated, mutations
from tests.support.source_tree import ROOT
from tests.support.trace_writer import write_trace
from warrenmq.replay.drive.engine import replay_memory
from warrenmq.replay.rules.registry import RULES
from warrenmq.trace.events import Ev

PAGE = Path(ROOT, "docs", "kill-matrix.md")
STEPS = 20
PLACES = 16
"""Of each mutation on the page; the test repeats the first few of them."""
REPEATED = 1

BELIEVED = """
Some wrongs survive because no other row could show them, or because no rule is about them. Believed without proof are:

- bytes and records of QI_WRITE and QI_SYNC, and why the index or a file was synced: mailboxes and timers leave no rows;
- where the store itself, or the cache, read a body (READ), which client a write or remove was for, and what a SEND carried;
- which consumers there are (A3 looks at those that went, A4 at how many messages each holds), what is dropped because of a limit in bytes;
- the number of consumers in QUEUE_RESTS; intensity and period of a supervisor that restarted only once.
""".rstrip().splitlines()

_UNHEARD = "its queue was killed before it received the report"
_AGAIN = "it says again what is so already"
_MAIL = "its neighbour is mail, or about something else"
_PEOPLE = "for pages and the lens only; no rule compares it"
_WHY = "timers and mailboxes have no rows that would tell another reason"
_INDEX = "what goes to the index has no other rows; tests/queue_index compares the files"
_MEMORY = "which messages are in memory has no other rows"
_BINDING = "X1 asks for no binding that is not known, or not old enough"
_ALARM = "which alarms are set is believed; W1 judges those who wait for them"
_SETTINGS = "settings are believed: rules take limits and sizes from here"
_ENDED = "the queue or its run ended before another row depended on it"
_OTHER_MESSAGE = "its neighbour is about another message"
_OTHER_FILE = "its neighbour is about another file, or about none"
_RECOVERY = "the rows of a recovery have no order among themselves"
_ANSWER = "its neighbour is the collector's mail to or from the store"
_SIDE = "the flying counter is on the same side of 0, so S2's table says the same"
_IGNORED = "it was an ignored one, which changes no count"
EVERY = "*"
REASONS: dict[str, dict[str, str]] = {
    "ACTOR_START": {
        "drop": "of an actor that is no supervisor's child: nothing else says that it started",
        "late": "the next row came before its supervisor's CHILD_START, too",
        "a": "a start that failed takes a number, too, so numbers may be left out; only the same one twice is wrong",
    },
    "ACTOR_STOP": {
        "drop": "of a killed actor, whose thread may never come to its last row, or of one without a supervisor",
        "flag": "changed to or from killed, which actor and supervisor may see differently, or of an actor without a supervisor",
    },
    "SEND": {
        "drop": "this mail was never received, so no row names it",
        "twice": "a SEND without a receive may lie in a mailbox",
        "late": "neither row was received in between, nor does a wait begin or end with them",
        "msg": "the PUBLISH that receives it says which message it is; of a SEND W1 asks only whether it carries one",
        "peer": "this mail was never received, so nobody contradicts the receiver",
        "pseq": "sizes are added up in figures, no rule compares them",
        **dict.fromkeys("ab", "the PUBLISH that receives it says which and how many, and Q1 checks that; this copy is for the lens"),
        "c": "to how many queues a publish went is for the lens",
    },
    "RECV": {"drop": "mail that was not received may lie in a mailbox", "late": "what the actor does next does not name its mail, and the SEND is long before"},
    "UNDELIVERED": {"drop": "mail to a dead actor that does not come back looks as if it lay in a mailbox", "late": "mail that comes back has no order"},
    "CHILD_START": {"drop": "its run was killed: no end of the child follows that would miss the start", "late": "its neighbour is not about this child"},
    "CHILD_EXIT": {"flag": "changed to or from killed, which the child itself may see differently"},
    "RESTART": {
        "drop": "no later RESTART of this supervisor counts it",
        "peer": "the actor that is named now is another child of it that had ended",
        **dict.fromkeys("bc", "the only RESTART of its supervisor: no other row tells its limits"),
    },
    "PUBLISH": {
        "late": "its neighbour is about other messages, or about mail",
        "flag": "the message left the queue before a sync, a store or a restart depended on this bit",
        "msg": "a body that is in the queue's own files is known by its sequence id alone",
        "a": "the run was killed before a row named the ids that it left out and took instead",
        "b": "no later row names the id that it took in addition",
    },
    "QI_WRITE": {EVERY: _INDEX},
    "QI_SYNC": {
        "drop": "another sync came before the next confirm",
        "twice": "what was safe is safe",
        "late": "neither a publish nor a confirm stands between the two rows",
        "flag": _WHY, "a": _INDEX, "b": _INDEX,
    },
    "CONFIRM": {
        "drop": "the queue had no two syncs after it (C4) and no clean stop (C3): it may have owed the confirm when it ended",
        "late": "its neighbour is not what the confirm had to wait for",
        "flag": "what the kind that it says now demands had happened, too",
        "msg": "a confirm is of sequence ids; their PUBLISH says which messages they are",
    },
    "DELIVER": {
        "drop": _ENDED,
        "late": _OTHER_MESSAGE,
        "flag": "nothing more is told of the message, so nothing contradicts this bit",
        "peer": "the messages were settled without a word of a consumer, or not at all; A1 has nothing to compare",
        "pseq": "no PUBLISH of this process covers the same messages",
        "b": "no later row names the last of these messages",
        "c": "the messages were settled without a word of a tag, or not at all; A1 has nothing to compare",
    },
    "ACK": {
        "drop": "the queue was killed before a sync: an ack may be undone then",
        "late": _OTHER_MESSAGE,
        "flag": "with or without MULTIPLE it settles the same: nothing older was out",
        "peer": "the actor that is named now has sent this queue a row of this number, too",
        "c": "with MULTIPLE, and nothing is out under the next tag either",
    },
    "REQUEUE": {
        "drop": _ENDED,
        "late": _OTHER_MESSAGE,
        "flag": "nothing older was out, so with or without MULTIPLE it settles the same",
        "c": "a consumer that is gone gives back whatever it holds, and names no tag",
    },
    "DROP": {
        "drop": _ENDED,
        "late": _OTHER_MESSAGE,
        "flag": "a surplus message and one whose time was over are the oldest alike (Q2); Q7 asks whether it was too long only where it drops by number",
        "pseq": "MULTIPLE counts for rejected messages only, and there up to a tag under which one message is out is that message",
        "c": "for expired messages a microsecond later is after their time as well; for others the time is not compared",
    },
    "QI_FLUSH": {EVERY: _INDEX},
    "SEGMENT_DELETE": {EVERY: "no rule compares the ids of a segment with those that are gone; tests/queue_index/test_model.py reads the files"},
    "QUEUE_RECOVERED": {
        "drop": "E1 and Q4 have nothing to compare",
        "twice": "the first one counts", "late": "what follows a recovery does not depend on it",
        "flag": "Q4 asks only whether the stop was clean, and no message of this queue was delivered that shows it",
        "b": "after a crash E1 has no QUEUE_CLOSED to compare it with, and ids may begin again",
        "c": "after a crash E1 has no bound for it, and after a clean stop one more is still within it",
    },
    "RECOVERED": {"late": _RECOVERY, "msg": "which message it is may be left unsaid; S1 and C2 go by its sequence id and its PUBLISH"},
    "QUEUE_CLOSED": {"drop": "without it E1, C2 and C3 take the queue for one that was killed", "twice": _AGAIN, "late": "only its ACTOR_STOP, or mail, follows"},
    "ON_DISK": {"late": "its neighbour is not the confirm that waited for it"},
    "PAGE_OUT": {EVERY: _MEMORY},
    "PAGE_IN": {EVERY: _MEMORY},
    "EXPIRY": {
        "drop": "the messages did not expire, they left otherwise",
        "twice": _AGAIN, "late": "nothing expired between the two rows",
        "a": "the message that lost its time to live did not expire", "b": "the message that has one now did not expire",
        "c": "a microsecond later is still before the DROP",
    },
    "CONSUMER_ADDED": {"late": "its neighbour is not the RECV of the request", EVERY: "which consumers there are, and how they consume, is believed; A3 looks at those that went, A4 at consumers that hold too many messages"},
    "CONSUMER_GONE": {
        "drop": "a consumer that seems to be there may hold what it holds", "twice": _AGAIN, "late": "what it held came back after both rows",
        "flag": "why it went decides nothing", "peer": "the consumer that is named now held nothing either",
        "a": "what was delivered under this tag was settled before, or came back all the same", "b": "A3 counts what it held itself",
    },
    "STORE_WRITE": {
        "drop": _IGNORED, "twice": _IGNORED, "msg": _IGNORED, "b": _IGNORED,
        "late": "the decision and the APPEND that carries it out are one step of the store, in which no rule asks for an order",
        "peer": "which client wrote matters to S2 only while that client is being deleted",
        "pseq": "the file of an old record matters only to a write that refers to it again, of which these traces have none here",
        "a": _SIDE, "c": "for this value of the counter the table says the same without an entry",
    },
    "APPEND": {
        "drop": "the run was killed before another record or a flush of this file",
        "late": "its neighbour is the decision about the next message",
        "msg": "no row weighed the file's live records afterwards (S3), and no queue read the record directly (D1)",
        "pseq": "its message has no PUBLISH of its own with a checksum, and was not read, or has no checksum",
        "c": "the run was killed before another record or a flush of this file",
    },
    "STORE_REMOVE": {
        **dict.fromkeys(("drop", "twice", "flag", "msg", "b"), "it was an ignored or a deferred one, which changes no count"),
        "late": "its neighbour is about another message",
        "peer": "which client removed matters to S2 only while that client is being deleted",
        "pseq": "the file was not weighed, combined or deleted any more after its record had gone",
        "a": _SIDE, "c": "for this value of the counter the table says the same without an entry",
    },
    "FILE_WRITE": {"late": "its neighbour is not the sync of this file", "flag": f"{_WHY}; S7 knows only those of a full buffer and of a roll-over"},
    "FILE_SYNC": {"flag": _WHY, "late": "its neighbour is the roll-over to the next file, and nothing was reported safe in between", "a": "nothing was reported safe that only this sync covers"},
    "STORE_CONFIRM": {
        "drop": _UNHEARD, "twice": "its queue may have died before it received the second",
        "late": "the sync that covers the record is further away",
        "msg": _UNHEARD, "flag": _UNHEARD, "peer": _UNHEARD,
    },
    "ROLL": {
        "drop": "the run was killed before a record came into the new file",
        "late": "its neighbour is about neither of its files",
        "flag": "no row tells the system's limit of a file, for which it may be left at any size",
    },
    "LOCK": {"drop": "the store stopped, or its run was killed, before the collector came to the file", "late": "its neighbour is the job for the collector"},
    "UNLOCK": {
        "drop": "nothing was done to the file any more, or what needs a lock: it was deleted",
        "late": _OTHER_FILE, "a": "the file that is named now was locked as well, and neither was touched any more",
    },
    "DEFER": {EVERY: "the decision comes once more, when it is carried out"},
    "READ": {
        "drop": "no read is owed", "twice": "no read is one too many", "late": "no record was moved in between",
        "flag": "a read from the cache, or by the store, has no place to compare",
        **dict.fromkeys(("msg", "peer", "a", "b"), "a read from the cache, or by the store, has no place to compare"),
        "pseq": "Q6 compares checksums where there is one; S8 asks only of readers with an older mark than a cut waits for", "c": "sizes of reads are for figures",
    },
    "FILE_DELETE": {"drop": "its run was killed: no count of files at a clean stop misses it", "late": _OTHER_FILE, "b": _PEOPLE},
    "FILE_STATE": {
        "drop": "the file was not written in this run, or its first record says where it begins", "twice": _AGAIN, "late": _RECOVERY,
        "a": "of an empty file, or of the transient store, of which E1 counts nothing",
        "c": "the file was neither written, combined nor cut any more; E1 counts files, not their sizes",
    },
    "STORE_RECOVERED": {
        "drop": "E1 has nothing to compare", "twice": "the first one counts", "late": _RECOVERY, "flag": "E1 compares files and messages with the stop before only if that was clean, and here they agree or it was not",
        "b": "after a crash E1 has no STORE_CLOSED to compare it with", "c": "counted as an incident",
    },
    "REF_RECOVERED": {"late": _RECOVERY, "b": "no queue read the record directly"},
    "REF_DROPPED": {
        "drop": "of the transient store, which E1 does not count, or its run was killed",
        "late": _RECOVERY, "peer": "whose reference it was is believed", "pseq": "a reference was left, so no file lost a record",
    },
    "STORE_CLOSED": {"late": "its neighbour is mail that came back from a dead collector, which may come at any time", "drop": "without it E1 takes the store for one that was killed", "twice": _AGAIN},
    "GC_START": {"a": "the run was killed before a record was moved", "twice": "no record had been moved", "late": "no record was moved between the two rows", "b": "each record that is moved names its file"},
    "GC_MOVE": {
        "drop": "of the last record of a file, before its run was killed", "msg": "the run was killed before the record was looked for",
        "a": "the run was killed before the end of the combine",
    },
    "GC_DONE": {"late": _ANSWER, "b": "the run was killed before the source was deleted, or it was combined alone", "c": _PEOPLE},
    "COMPACT_START": {"twice": "no record had been moved", "b": _PEOPLE, "c": _PEOPLE},
    "COMPACT_MOVE": {
        "msg": "S5 goes by places; which record it is D1 asks only of records that are read directly", "pseq": "a byte further behind is still behind its new place",
        "b": "a byte further behind there is still room, and no queue read the record directly",
    },
    "COMPACT_DONE": {"late": _ANSWER},
    "TRUNCATE": {"late": _ANSWER, "twice": _AGAIN, "pseq": "no reader with this mark read afterwards", "c": _PEOPLE},
    "QUEUE_LIMITS": {
        "drop": "Q7 asks nothing of a queue that has told no limit", "twice": _AGAIN, "late": _OTHER_MESSAGE,
        EVERY: "limits are believed; Q7 asks whether the queue's rows keep to them, and these keep to the other one, too",
    },
    "QUEUE_RESTS": {
        "a": "one message more is ready, and no consumer has room", "drop": "there is at most one a second, so a missing one proves nothing",
        "twice": _AGAIN, "late": _MAIL, "c": _PEOPLE,
    },
    "UNROUTED": {
        "drop": "it is no queue's dead letter that a later sync would miss", "twice": "a dead letter that nobody got, or a publish without a queue, more is wrong in no other row",
        "late": _MAIL, EVERY: "X1 asks for no exchange or binding that is not known, or not old enough",
    },
    "CHANNEL_LIMIT": {EVERY: "what is claimed of a limit that consumers share has no row"},
    "ROUTED": {EVERY: "X1 asks for a number of queues, and only where a binding is old enough"},
    "EXCHANGE_DECLARED": {EVERY: _BINDING}, "BOUND": {EVERY: _BINDING}, "UNBOUND": {EVERY: _BINDING},
    "NACKED": {EVERY: "nacks of publishes that were never taken in cover for it"},
    "QUEUE_DELETED": {EVERY: "a queue that is being deleted may be there after a restart or not"},
    "ALARM_SET": {EVERY: _ALARM}, "ALARM_CLEAR": {EVERY: _ALARM},
    "ALARM_BLOCKED": {"twice": "coroutines of one thread may wait together"},
    "ALARM_UNBLOCKED": {"drop": "a thread may wait to the end", "late": "nothing that it sent came between"},
    "CREDIT_BLOCKED": {"late": "its neighbour is the other queue's, or not a SEND of messages"},
    "CREDIT_UNBLOCKED": {"drop": "it sent this queue nothing more", "late": "its neighbour is not a SEND of messages to this queue", "flag": _PEOPLE},
    "RUN_START": {EVERY: _SETTINGS},
    "RUN_END": {EVERY: "a run without one was killed, which no rule forbids"},
}  # fmt: skip
"""Why a wrong may go unnoticed, at those places where it does: event -> wrong, or EVERY other one -> why."""


def reason(what: str, event: Ev) -> str:
    """The reason for which a mutation may survive."""
    its = REASONS[event.name]
    return its.get(what) or its[EVERY]


@dataclass
class Fate:
    """The outcome of one mutation at its places."""

    places: int = 0
    killed: Counter[str] = field(default_factory=Counter)
    """By rule."""
    survived: int = 0
    undecided: int = 0


def fate(mutation: tuple[str, Ev], places: int) -> Fate:
    found = Fate()
    for seed in range(2 * places):
        runs = mutated(mutation, seed, STEPS)
        if runs is None or found.places == places:
            continue
        found.places += 1
        result = replay_memory(write_trace(runs))
        found.killed.update({finding.rule for finding in result.violations})
        found.survived += result.verdict == "ok"
        found.undecided += result.verdict == "indeterminate"
    return found


def line(mutation: tuple[str, Ev], found: Fate) -> str:
    """One line of the page."""
    what, event = mutation
    kills = ", ".join(
        f"{rule} {n}" for rule, n in sorted(found.killed.items(), key=lambda pair: (-pair[1], pair[0]))
    )
    cells = [
        event.name,
        what,
        found.places,
        kills or "-",
        found.survived or "-",
        reason(what, event) if found.survived else "",
    ]
    return f"| {' | '.join(map(str, cells))} |"


def page() -> Iterator[str]:
    yield "# Kill matrix"
    yield ""
    yield f"One row of a consistent trace is made wrong, at up to {PLACES} places; then the trace is replayed."
    yield "`tests/replay/trace_mutations.py` describes the wrongs. A rule kills a wrong when it calls the trace violated;"
    yield "one change often breaks several. A wrong that no rule notices is listed with the reason. Events that no rule reads and that"
    yield "the traces of the tests lack are left out. What simulated runs, rules and tests kill of mutations of the broker's code has"
    yield "[tables of its own](proof.md)."
    yield from BELIEVED
    yield ""
    yield "| event | wrong | places | killed by | survived | why that is all right |"
    yield "| --- | --- | --- | --- | --- | --- |"
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as processes:
        fates = processes.map(partial(fate, places=PLACES), mutations())
        yield from (
            line(mutation, found) for mutation, found in zip(mutations(), fates, strict=True) if found.places
        )


@cache
def promised() -> dict[tuple[str, Ev], tuple[set[str], bool]]:
    """From the page: the rules that kill, and whether any survives."""
    rows = re.findall(r"^\| (\w+) \| (\w+) \| \d+ \| ([^|]+) \| (\d+|-) \|", PAGE.read_text(), re.MULTILINE)
    return {
        (what, Ev[event]): (set(re.findall(r"([A-Z]\d) \d+", kills)), survived != "-")
        for event, what, kills, survived in rows
    }


TESTED = [mutation for mutation in mutations() if mutation in promised()] if PAGE.exists() else []


@pytest.mark.parametrize("event", sorted({event for _, event in TESTED}), ids=lambda event: event.name)
def test_each_mutation_is_killed_by_the_rules_that_the_page_names(event: Ev) -> None:
    for mutation in TESTED:
        if mutation[1] != event:
            continue
        rules, may_survive = promised()[mutation]
        found = fate(mutation, REPEATED)
        assert set(found.killed) <= rules, mutation
        assert may_survive or not found.survived, mutation


def test_every_mutation_of_an_event_that_traces_have_is_on_the_page() -> None:
    rare = {Ev.ESCALATE, Ev.RAM_TARGET}
    rare |= {Ev.EXCHANGE_DELETED, Ev.UNBOUND, Ev.MARK, Ev.QUEUE_DELETED}
    at_the_end = {("late", Ev.ACTOR_STOP), ("late", Ev.RUN_END)}
    assert {each for each in mutations() if each[1] not in rare} - at_the_end == set(TESTED)


def test_every_rule_about_single_rows_kills_something() -> None:
    killers = set().union(*(rules for rules, _ in promised().values()))
    assert set(RULES) - killers <= {"T1", "S9", "X1"}, (
        "these need more than one wrong row; planted_violations.py has them"
    )


if __name__ == "__main__":
    PAGE.write_text("\n".join(page()) + "\n")
