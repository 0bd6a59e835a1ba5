"""A block of an index file or a store's file that also stands in another place: what no changed byte touches is found.

The block may end in half a record, which claims the bytes of the records behind it for its own.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.inspect.made_directory import journal_ack, journal_publish, make, segment_publish
from tests.inspect.walked import Bytes
from tests.support.damage import Damage, apply, examples
from warrenmq.message.stored import encode, encode_head
from warrenmq.message_store.scan import whole_records
from warrenmq.queue_index.record import HEADER_BYTES
from warrenmq.queue_index.v1.reader import Policy, read_journal, read_segment
from warrenmq.queue_index.v1.segment import Facts

MANY = examples(300)
SIZES = (0, 1, 40, 300, 300, 800, 4000, 20, 2000, 600, 77, 30)
MADE = [make(n, size) for n, size in enumerate(SIZES)]
HEAD = encode_head("", ["orders"], None)
OURS = [made._replace(term=encode(HEAD, made.body)) for made in MADE]
ENTRY_COUNT = 16
numbers = st.lists(st.sampled_from(range(len(MADE))), min_size=2, max_size=len(MADE), unique=True)


def read(data: bytes, journal: bool, policy: Policy) -> Facts:
    if journal:
        return read_journal(data, ENTRY_COUNT, policy).facts.get(0, Facts())
    return read_segment(data, ENTRY_COUNT, policy)[0]


@st.composite
def copied(draw: st.DrawFn, data: bytes) -> Damage:
    """A block of the file put over another place of it, or between."""
    at, other = draw(st.integers(0, len(data) - 1)), draw(st.integers(0, len(data) - 1))
    kind = draw(st.sampled_from(["stray", "stray", "double"]))
    return Damage(kind, "file", at, draw(st.integers(1, 1500)), other)


@pytest.mark.parametrize("ours", [False, True])
@pytest.mark.parametrize("journal", [False, True])
@MANY
@given(
    data=st.data(),
    order=numbers,
    embedded=st.lists(st.booleans(), min_size=12, max_size=12),
    acked=st.sets(st.integers(0, 11)),
)
def test_a_copied_block_costs_an_index_file_nothing_but_what_it_covers(
    journal: bool, ours: bool, data: st.DataObject, order: list[int], embedded: list[bool], acked: set[int]
) -> None:
    publish, made = journal_publish if journal else segment_publish, OURS if ours else MADE
    parts = [publish(n, made[n], embedded=embedded[n]) for n in order]
    acks = [journal_ack(n) if journal else (0x4000 | n).to_bytes(2, "big") for n in sorted(acked & {*order})]
    clean = b"".join([*parts, *acks])
    damage = data.draw(copied(clean))
    after = apply({"file": clean}, [damage])["file"]
    inspected, recovered = (read(after, journal, policy) for policy in (Policy.INSPECT, Policy.RECOVER))
    begins_at = 0
    inserted = len(after) - len(clean)
    covers = damage.at, damage.at + (0 if inserted else damage.size)
    for n, part in zip(order, parts, strict=True):
        start, end = begins_at, begins_at + len(part)
        begins_at = end
        if (start < covers[1] and covers[0] < end) or (inserted and start < covers[0] < end):
            continue
        record = part[8:-8] if journal else part[2:-2]  # without its prefix and its deliver mark
        assert n in inspected.published, f"{n} is lost"
        assert inspected.published[n] == record[:HEADER_BYTES]
        assert after[inspected.places[n] :].startswith(part[: len(part) - len(record)])
        assert n in recovered.published, f"{n} is lost to a start"


@MANY
@given(data=st.data(), order=numbers, fill=st.sampled_from([b"", b"\xff"]))
def test_a_copied_block_costs_a_stores_file_nothing_but_what_it_covers(
    data: st.DataObject, order: list[int], fill: bytes
) -> None:
    made = [make(n, SIZES[n], fill=fill) for n in order]
    clean = b"".join(each.record for each in made)
    damage = data.draw(copied(clean))
    after = apply({"file": clean}, [damage])["file"]
    ids = {each.msg_id for each in made}
    found = [each[:2] for each in whole_records(Bytes(after), ids)]
    begins_at = 0
    inserted = len(after) - len(clean)
    for each in made:
        start, end = begins_at, begins_at + len(each.record)
        begins_at = end
        if inserted:
            if start < damage.at < end:
                continue
            start += inserted if start >= damage.at else 0
        elif start < damage.at + damage.size and damage.at < end:
            continue
        assert (each.msg_id, start) in found
