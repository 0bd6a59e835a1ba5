"""Records of many messages are those of each alone, whichever way they are made."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from warrenmq.message.queue_message import FEW, Publication, alike_checksums, records_of
from warrenmq.message.stored import encode_head

HEAD = encode_head("", ["q"], None)
EMBED_BELOW = 60

BODIES = st.one_of(
    st.lists(st.binary(max_size=80), min_size=1, max_size=2 * FEW),
    st.sampled_from([0, 1, EMBED_BELOW - 1, EMBED_BELOW, 80]).flatmap(
        lambda size: st.lists(st.binary(min_size=size, max_size=size), min_size=FEW, max_size=2 * FEW)
    ),
)


@given(BODIES, st.sampled_from([0, (1 << 32) - 3, 1 << 40]), st.sampled_from([0, 1 << 50]), st.booleans())
def test_records_of_many_messages_are_those_of_each(
    bodies: list[bytes], first: int, expiry: int, early: bool
) -> None:
    many = Publication(b"warrenmq", (1 << 40) - 5, HEAD, 0, bodies, persistent=True)
    if early:
        many = replace(many, checksums=alike_checksums(HEAD, bodies))
    each = [records_of([many.one(i)], first + i, EMBED_BELOW, [expiry]) for i in range(len(bodies))]
    alone = [replace(many.one(i), checksums=b"") for i in range(len(bodies))]
    assert each == [records_of([one], first + i, EMBED_BELOW, [expiry]) for i, one in enumerate(alone)]
    assert records_of([many], first, EMBED_BELOW, [expiry]) == (
        [records[0] for records, _ in each],
        {i: stored[0] for i, (_, stored) in enumerate(each) if stored},
    )
