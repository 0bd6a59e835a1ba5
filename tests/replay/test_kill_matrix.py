"""The checkers, checked: wrongs of every kind, done at many places of consistent traces, and the rules that notice.

docs/kill-matrix.md is the outcome.  A wrong that a rule should notice is noticed by that rule; one that survives is named there
with the reason.  `python -m tests.replay.test_kill_matrix` from the root writes the page anew.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
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

SURVIVORS = {
    "drop": "no later row rests on it, or another row says the same",
    "twice": "saying it again changes nothing",
    "late": "the two rows do not depend on each other",
    "flag": "the other reason cannot be told from rows, or decides nothing here",
    "column": "it is for figures and drawings, or the new value is on the same side of the limit",
}
"""Why a wrong may go unnoticed."""


BELIEVED = """
Some wrongs survive because no other row could show them, or because no rule is about them. Believed without proof are:

- how many restarts a supervisor counted in its period (R1 compares that with the intensity);
- bytes and records of QI_WRITE and QI_SYNC, and why the index or a file was synced: mailboxes and timers leave no rows;
- where the store itself, or the cache, read a body (READ), which client a write or remove was for, and which message a SEND carried;
- which consumers there are and what limits they have (A3 looks at those that went); what was routed to no queue;
- the number of consumers with room in QUEUE_RESTS, and the tag that a client named in an ACK.
""".rstrip().splitlines()


UNREAD = {
    Ev.ACTOR_STOP: "it says how an actor ended, which decides whether others are convicted; alone it breaks nothing",
    **dict.fromkeys(
        (Ev.ROUTED, Ev.EXCHANGE_DECLARED, Ev.BOUND), "exchanges, bindings and routes are for the picture"
    ),
    **dict.fromkeys((Ev.PAGE_OUT, Ev.PAGE_IN), "which messages are in memory has no other rows"),
    **dict.fromkeys(
        (Ev.ALARM_SET, Ev.ALARM_CLEAR), "which alarms are set is believed; W1 judges those who wait for them"
    ),
    Ev.CHANNEL_LIMIT: "limits are believed: what is claimed of a shared one has no row",
    Ev.CHILD_EXIT: "counted as an incident; R1 judges the RESTART that follows",
    Ev.CHILD_START: "it is for the tree of actors",
    Ev.CONSUMER_ADDED: "which consumers there are is believed; A3 looks at those that went",
    Ev.DEFER: "the decision comes once more, when it is carried out",
    Ev.QI_FLUSH: "segments of the index have no rows to compare with",
    Ev.QI_WRITE: "what goes to the index has no rows of its own to compare with",
    Ev.QUEUE_LIMITS: "limits are believed; Q2 judges what is dropped because of them",
    Ev.QUEUE_RECOVERED: "E1 compares its numbers with others; said less often, later or for another reason they are the same",
    Ev.RUN_END: "a run without one was killed, which no rule forbids",
    Ev.RUN_START: "settings are believed; the rules take the limits from it",
    Ev.SEGMENT_DELETE: "how many ids a segment has is not in the trace",
    Ev.STORE_CLOSED: "E1 compares its numbers; without it there is nothing to compare",
    Ev.UNROUTED: "what is routed nowhere is believed: exchanges, bindings and routes are for the picture",
}
"""Events that no rule kills by, and why."""
_NO_RECEIVE, _MAILBOX = (
    "the order of mail in a mailbox is not traced",
    "a SEND without a receive may lie in a mailbox",
)
_FOR_PEOPLE, _WHY = (
    "it is shown to people only, and decides nothing",
    "timers and mailboxes leave no rows that would tell another reason",
)
_NEXT = "its neighbour only sends the collector's answer, or a job to it"
_ONCE_MORE = "once more it is the state that it was"
BELIEVED_OF = {
    "ACTOR_START": {"drop": "R2 has one incarnation fewer to compare", "twice": _ONCE_MORE, "a": "incarnations still rise"},
    "SEND": {"twice": _MAILBOX, "msg": "a receive names the row, not the message", **dict.fromkeys(("pseq", *"abc"), _FOR_PEOPLE)},
    "RECV": {"drop": _MAILBOX, "late": _NO_RECEIVE},
    "UNDELIVERED": {"drop": _MAILBOX, "late": _NO_RECEIVE},
    "RESTART": {**dict.fromkeys(("drop", "twice", "late"), "R1 believes the count in each RESTART"), "peer": _FOR_PEOPLE,
                "a": "one more is still far below the intensity",
                "b": "the intensity is believed", "c": "the period is believed"},
    "PUBLISH": {"c": "0 and 1 mean the same, and these traces have no others"},
    "QI_SYNC": {"twice": "what was safe is safe", "flag": _WHY, "a": "what goes to the index has no rows", "b": "what goes to the index has no rows"},
    "CONFIRM": {"msg": "a confirm is of sequence ids; its PUBLISH says which messages they are"},
    "DROP": {"c": "how late it was is believed, if it was late enough", "pseq": "up to a tag under which one message is left is that message"},
    "CONSUMER_GONE": {"drop": "a consumer that is there may hold what it holds", "twice": "it is gone already", "late": "nothing came between",
                      "flag": "why it went decides nothing", "a": "the tag says only which messages it may keep", "b": "A3 counts deliveries itself"},
    "QUEUE_RESTS": {"a": "one message more is ready, and no consumer has room", "drop": "there is at most one a second, so a missing one proves nothing", "twice": _ONCE_MORE, "c": _FOR_PEOPLE},
    "EXPIRY": {"twice": _ONCE_MORE, "late": "nothing expired in between", "c": "a microsecond later was still before the drop",
               "b": "a time to live of one more message, which did not expire"},
    "RECOVERED": {"msg": "which message it is may be left unsaid", "late": "no row of a recovery depends on another one"},
    "QUEUE_CLOSED": {"drop": "a queue without this row may have been killed", "twice": _ONCE_MORE, "late": "its last words"},
    "STORE_WRITE": {"late": "its neighbour is of another message", "peer": "which queue wrote is believed", "pseq": "no reference was left to revive",
                    "a": "on the same side of 0", "c": "a counter that was there, all the same"},
    "STORE_REMOVE": {"peer": "which queue removed is believed", "c": "a counter that was there, all the same"},
    "FILE_SYNC": {"flag": _WHY},
    "STORE_CONFIRM": {"twice": "a queue that died does not receive it", "late": "the sync that covers the record is further away"},
    "READ": {"twice": "no read is one too many", "late": "no record was moved in between", "drop": "no read is owed", "flag": "a read from memory has no place to compare", "pseq": "a younger reader is not waited for",
             "c": _FOR_PEOPLE},
    "FILE_DELETE": {"twice": "it is gone already", "late": "its neighbour is of another file", "b": _FOR_PEOPLE},
    "FILE_STATE": {"twice": _ONCE_MORE},
    "STORE_RECOVERED": {"drop": "E1 has nothing to compare", "twice": "the first one counts", "late": "no row of a recovery depends on another one",
                        "flag": "after a crash E1 compares less", "c": "counted as an incident"},
    "REF_DROPPED": {"peer": "whose reference it was is believed"},
    "GC_START": {"twice": "no record was moved yet", "b": "each record that is moved names its file"},
    "GC_DONE": {"late": _NEXT, "c": _FOR_PEOPLE},
    "COMPACT_START": {"twice": "no record was moved yet", "b": _FOR_PEOPLE, "c": _FOR_PEOPLE},
    "COMPACT_DONE": {"late": _NEXT},
    "APPEND": {"late": "its neighbour is of a message or of another file"},
    "LOCK": {"late": _NEXT},
    "REF_RECOVERED": {"late": "no row of a recovery depends on another one"},
    "COMPACT_MOVE": {"pseq": "still behind its new place"},
    "TRUNCATE": {"late": _NEXT, "twice": _ONCE_MORE, "c": _FOR_PEOPLE},
    "ALARM_BLOCKED": {"twice": "coroutines of one thread may wait together"},
    "ALARM_UNBLOCKED": {"drop": "a thread may wait to the end", "late": "nothing that it sent came between"},
    "CREDIT_UNBLOCKED": {"flag": _FOR_PEOPLE},
}  # fmt: skip
"""Wrongs that no rule kills, of events that rules read: event -> wrong -> why."""


def reason(what: str, event: Ev, *, killed: bool) -> str:
    """The reason for which a mutation may survive; `killed`: at other places it does not."""
    if killed:
        return SURVIVORS.get(what, SURVIVORS["column"])
    return UNREAD.get(event) or BELIEVED_OF[event.name][what]


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
        reason(what, event, killed=bool(found.killed)) if found.survived else "",
    ]
    return f"| {' | '.join(map(str, cells))} |"


def page() -> Iterator[str]:
    yield "# Kill matrix"
    yield ""
    yield f"One row of a consistent trace is made wrong, at up to {PLACES} places; then the trace is replayed."
    yield "`tests/replay/trace_mutations.py` describes the wrongs. A rule kills a wrong when it calls the trace violated;"
    yield "one change often breaks several. A wrong that no rule notices is listed with the reason. Events that no rule reads and that"
    yield "the traces of the tests lack are left out."
    yield from BELIEVED
    yield ""
    yield "| event | wrong | places | killed by | survived | why that is all right |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for mutation in mutations():
        found = fate(mutation, PLACES)
        if found.places:
            yield line(mutation, found)


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
    rare |= {Ev.EXCHANGE_DELETED, Ev.UNBOUND, Ev.MARK}
    at_the_end = {("late", Ev.ACTOR_STOP), ("late", Ev.RUN_END)}
    assert {each for each in mutations() if each[1] not in rare} - at_the_end == set(TESTED)


def test_every_rule_about_single_rows_kills_something() -> None:
    killers = set().union(*(rules for rules, _ in promised().values()))
    assert set(RULES) - killers <= {"T1", "R1", "R2", "S9"}, (
        "these need more than one wrong row; planted_violations.py has them"
    )


if __name__ == "__main__":
    PAGE.write_text("\n".join(page()) + "\n")
