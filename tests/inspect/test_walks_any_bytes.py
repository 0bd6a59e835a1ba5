"""The readers of files on bytes that were damaged anywhere: they end, never raise, and find what was not hit."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.inspect.made_directory import journal_ack, journal_publish, make, segment_publish
from tests.inspect.walked import Bytes
from warrenmq.message_store.scan import whole_records
from warrenmq.queue_index.v1.reader import Policy, read_journal, read_segment
from warrenmq.queue_index.v1.segment import Facts

MADE = [make(n, size) for n, size in enumerate((0, 1, 40, 300, 300, 800, 4096, 5000, 20, 2000, 600, 77))]
FEW = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


@st.composite
def damages(draw, size):
    """(kind, where, how much, with what) on a file of `size` bytes."""
    where = draw(st.integers(0, max(0, size - 1)))
    kind = draw(st.sampled_from(["flip", "zero", "cut", "insert", "noise"]))
    length = draw(st.integers(1, 600))
    return kind, where, length, draw(st.binary(min_size=1, max_size=64))


def apply(data, damage):
    """The damaged bytes, and the range of the old ones that was hit."""
    kind, where, length, noise = damage
    if kind == "flip":
        changed = bytearray(data)
        changed[where] ^= noise[0] or 1
        return bytes(changed), (where, where + 1)
    if kind == "zero":
        length = min(length, len(data) - where)
        return data[:where] + bytes(length) + data[where + length :], (where, where + length)
    if kind == "cut":
        return data[:where], (where, len(data))
    if kind == "insert":
        return data[:where] + noise + data[where:], (where, where)
    noise = noise[: len(data) - where]
    return data[:where] + noise + data[where + len(noise) :], (where, where + len(noise))


def untouched(start, end, hit):
    """True if a record at [start, end) has all its bytes, one after the other."""
    return end <= hit[0] or start >= hit[1] if hit[0] < hit[1] else not start < hit[0] < end


@FEW
@given(
    st.data(),
    st.lists(st.sampled_from(range(len(MADE))), min_size=1, max_size=12, unique=True),
    st.sets(st.integers(0, 11)),
)
def test_a_scan_finds_every_wanted_record_that_was_not_hit(data, order, dead):
    parts = [MADE[n].record for n in order]
    clean = b"".join(parts)
    damaged, hit = apply(clean, data.draw(damages(len(clean))))
    wanted = {MADE[n].msg_id for n in order if n not in dead}
    found = {
        msg_id: damaged[offset : offset + total]
        for msg_id, offset, total in whole_records(Bytes(damaged), wanted)
    }
    start = 0
    for n, part in zip(order, parts, strict=True):
        if n not in dead and untouched(start, start + len(part), hit):
            assert found.get(MADE[n].msg_id) == part
        start += len(part)


@FEW
@given(
    st.data(),
    st.booleans(),
    st.lists(st.booleans(), min_size=12, max_size=12),
    st.booleans(),
    st.sets(st.integers(0, 11)),
    st.sampled_from(Policy),
)
def test_an_index_file_gives_every_publish_that_was_not_hit(data, journal, embedded, deliver, acked, policy):
    parts, acks = [], []
    for n, each in enumerate(MADE):
        inside = embedded[n] and len(each.body) < 4096
        if journal:
            parts.append(journal_publish(n, each, embedded=inside, deliver=deliver))
            acks.append(journal_ack(n) if n in acked else b"")
        else:
            parts.append(segment_publish(n, each, embedded=inside, deliver=deliver))
            acks.append((0x4000 | n).to_bytes(2, "big") * (1 if deliver else 2) if n in acked else b"")
    clean = b"".join([*parts, *acks])
    damaged, hit = apply(clean, data.draw(damages(len(clean))))
    facts, broken = read(damaged, journal, policy)
    whole, _ = read(clean, journal, policy)
    assert whole.published.keys() == set(range(len(MADE)))
    assert whole.acked == acked
    start = 0
    moved = len(damaged) - len(clean)
    kept = 0
    for n, part in enumerate(parts):
        behind = 8 if journal else 2
        if untouched(start, start + len(part) + (0 if deliver else behind), hit):
            offset = start + (moved if start >= hit[0] else 0)
            if facts.places.get(n) != offset:
                kept += 1
            else:
                assert damaged.startswith(part[:-behind] if deliver else part, offset)
        start += len(part)
    if deliver:
        assert kept <= (hit[1] - hit[0] <= 64)  # one that was hit may have got the sequence id of another
    if damaged == clean:
        assert not broken


def read(data, journal, policy):
    if not journal:
        return read_segment(data, 2048, policy)
    reading = read_journal(data, 2048, policy)
    return reading.facts.get(0, Facts()), reading.damage


@FEW
@given(st.binary(max_size=3000))
def test_an_index_file_of_anything_is_read_to_its_end(data):
    for policy in Policy:
        assert read_journal(data, 2048, policy).end <= len(data)
        read_segment(data, 2048, policy)
