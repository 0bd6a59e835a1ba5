"""The merge rules, row by row (docs/reference/classic-queue.md#merge-rules)."""

from __future__ import annotations

import itertools

import pytest

from warrenmq.queue_index.v1.merge import journal_minus_segment, segment_plus_journal
from warrenmq.queue_index.v1.segment import Facts

RECORD = b"the record of message 7"
ENTRIES = {
    "none": "",
    "{P,-,-}": "P",
    "{P,del,-}": "Pd",
    "{P,-,ack}": "Pa",
    "{P,del,ack}": "Pda",
    "{-,del,-}": "d",
    "{-,-,ack}": "a",
    "{-,del,ack}": "da",
}


def facts(entry: str, *, transient: bool = False) -> Facts:
    letters = ENTRIES[entry]
    return Facts(
        {7: RECORD} if "P" in letters else {},
        {7} if "P" in letters and transient else set(),
        {7} if "d" in letters else set(),
        {7} if "a" in letters else set(),
    )


EFFECTIVE = [
    # segment, journal, effective
    ("none", "{P,-,-}", "{P,-,-}"),
    ("none", "{P,del,-}", "{P,del,-}"),
    ("none", "{P,del,ack}", "none"),
    ("{P,-,-}", "{-,del,-}", "{P,del,-}"),
    ("{P,-,-}", "{-,del,ack}", "none"),
    ("{P,del,-}", "{-,-,ack}", "none"),
    ("{P,-,-}", "{-,-,ack}", "none"),
    # the same in both, or one ahead of the other: a crash between two steps of a flush
    ("{P,del,-}", "none", "{P,del,-}"),
    ("{P,del,-}", "{P,del,-}", "{P,del,-}"),
    ("{P,del,-}", "{P,-,-}", "{P,del,-}"),
    ("{P,-,-}", "{P,del,-}", "{P,del,-}"),
    ("{P,del,-}", "{P,del,ack}", "none"),
    ("{P,del,ack}", "{P,del,-}", "none"),
    ("{P,del,ack}", "none", "none"),
    ("none", "{-,-,ack}", "none"),
    ("none", "{-,del,-}", "none"),
]


@pytest.mark.parametrize(("segment", "journal", "effective"), EFFECTIVE)
@pytest.mark.parametrize("transient", [False, True])
def test_rule_a_gives_the_effective_state(
    segment: str, journal: str, effective: str, transient: bool
) -> None:
    merged = segment_plus_journal(facts(segment, transient=transient), facts(journal, transient=transient))
    assert merged == facts(effective, transient=transient)


REMAINING = [
    # journal, segment, what is still to be flushed
    ("{P,-,-}", "{P,-,-}", "none"),
    ("{P,del,-}", "{P,del,-}", "none"),
    ("{P,-,ack}", "{P,-,ack}", "none"),
    ("{P,del,ack}", "{P,del,ack}", "none"),
    ("{P,-,-}", "none", "{P,-,-}"),
    ("{P,del,-}", "none", "{P,del,-}"),
    ("{P,del,-}", "{P,-,-}", "{-,del,-}"),
    ("{P,del,ack}", "none", "{P,del,ack}"),
    ("{P,del,ack}", "{P,-,-}", "{-,del,ack}"),
    ("{P,del,ack}", "{P,del,-}", "{-,-,ack}"),
    ("{-,del,-}", "{P,-,-}", "{-,del,-}"),
    ("{-,del,-}", "{P,del,-}", "none"),
    ("{-,-,ack}", "{P,del,-}", "{-,-,ack}"),
    ("{-,-,ack}", "{P,del,ack}", "none"),
    ("{-,del,ack}", "{P,-,-}", "{-,del,ack}"),
    ("{-,del,ack}", "{P,del,-}", "{-,-,ack}"),
    ("{-,del,ack}", "{P,del,ack}", "none"),
    ("{-,-,ack}", "none", "none"),
    ("{-,del,ack}", "none", "none"),
    ("{-,-,ack}", "{P,-,-}", "{-,del,ack}"),
    # the file is ahead of the journal
    ("{P,-,-}", "{P,del,-}", "none"),
    ("{P,del,-}", "{P,del,ack}", "none"),
]


@pytest.mark.parametrize(("journal", "segment", "remains"), REMAINING)
def test_rule_b_gives_what_is_still_to_be_flushed(journal: str, segment: str, remains: str) -> None:
    assert journal_minus_segment(facts(journal), facts(segment)) == facts(remains)


@pytest.mark.parametrize(("journal", "segment"), list(itertools.product(ENTRIES, ENTRIES)))
def test_flushing_what_remains_does_not_change_the_effective_state(journal: str, segment: str) -> None:
    before = segment_plus_journal(facts(segment), facts(journal))
    rest = journal_minus_segment(facts(journal), facts(segment))
    file = facts(segment)
    flushed = Facts(
        file.published | rest.published,
        file.transient | rest.transient,
        file.delivered | rest.delivered,
        file.acked | rest.acked,
    )
    assert segment_plus_journal(flushed, Facts()) == before
    assert segment_plus_journal(file, rest) == before
    assert journal_minus_segment(facts(journal), flushed) == Facts()
