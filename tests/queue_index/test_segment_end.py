"""A flush appends entries to a segment file that mean the same wherever in the file they come to lie."""

from __future__ import annotations

from warrenmq.queue_index.v1.reader import read_segment
from warrenmq.queue_index.v1.segment import Segment
from warrenmq.seams.disk import SECTOR

RECORD = b"\x01" * 8 + b"\x02" * 8 + bytes(8) + (5).to_bytes(4, "big") + bytes(4)
"""A message of five bytes whose body is in the store."""


def test_a_message_is_not_acked_by_where_its_record_ends() -> None:
    acked = []
    for offset in range(SECTOR):
        segment = Segment(0, unacked=1, published={0: RECORD})
        data, _ = segment.entries([0], 1 << 20, offset)
        facts, _ = read_segment(data, 8)
        if 0 not in facts.live():
            acked.append(offset)
    assert acked == []
