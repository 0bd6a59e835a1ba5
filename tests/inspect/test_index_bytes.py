"""A message's records in the index files, field by field, are the bytes of the files, and mean what the readers say."""

from datetime import UTC, datetime

import pytest

import warrenmq
from warrenmq.inspect.index_bytes import BODY, records_of
from warrenmq.inspect.index_v1 import IndexV1
from warrenmq.inspect.index_v2 import IndexV2
from warrenmq.inspect.layout import recognise
from warrenmq.inspect.reading import Findings
from warrenmq.lens.record_bytes import RecordReader
from warrenmq.settings import Settings

COUNT = 40
SETTINGS = {
    1: Settings(profile="classic", queue_index_segment_entry_count=16, queue_index_max_journal_entries=60),
    2: Settings(classic_queue_index_v2_segment_entry_count=16),
}
LARGE = 5_000


@pytest.fixture(scope="module", params=SETTINGS)
def kept(request, tmp_path_factory):
    """(version, directory): small, large and transient messages, of which the first are settled, after a clean stop."""
    path = tmp_path_factory.mktemp("index") / "data"
    with warrenmq.open(path, settings=SETTINGS[request.param]) as broker:
        queue = broker.declare_queue("orders")
        for number in range(COUNT):
            size = LARGE if number % 3 == 0 else 20 + number
            queue.publish(
                b"%d " % number + b"x" * size, expiration="3600000" if number == 7 else None
            ).result()
        for _ in range(5):
            queue.get().ack()
    return request.param, path


def _queue(path):
    findings = Findings(str(path))
    (vhost,) = recognise(findings).vhosts
    (queue,) = vhost.queues
    return findings, vhost, queue


def test_the_fields_are_the_bytes_of_the_files_one_after_the_other(kept):
    _, path = kept
    findings, vhost, queue = _queue(path)
    for seq_id in range(COUNT):
        for record in records_of(findings, queue, vhost.entry_count, seq_id):
            data = findings.read(f"{queue.path}/{record.file}")
            at = record.offset
            for field in record.fields:
                assert field.offset == at
                assert data[at : at + len(field.data)] == field.data
                at += len(field.data)


def test_each_live_entry_is_where_the_readers_find_it(kept):
    version, path = kept
    findings, vhost, queue = _queue(path)
    if version == 1:
        entries = [
            each
            for part in IndexV1(findings, queue.path, vhost.entry_count, may_be_killed=False).segments()
            for each in part.entries
        ]
    else:
        index = IndexV2(findings, queue.path)
        entries = [each for number in index.numbers for each in index.entries(number)[0]]
    assert len(entries) == COUNT - 5
    for entry in entries:
        records = records_of(findings, queue, vhost.entry_count, entry.seq_id)
        told = {field.name: field for record in reversed(records) for field in record.fields}
        assert int.from_bytes(told["size"].data, "big") == entry.size or version == 2
        if entry.msg_id and "message id" in told:
            assert told["message id"].data == entry.msg_id
        assert (BODY in told) is (entry.size < LARGE)
        if entry.size < LARGE:
            assert told["version"].data == b"\x95\xd7\x02"
            assert told[BODY].data.endswith(b"x" * 20)
        expires = datetime.fromtimestamp(entry.expiry / 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S")
        assert told["expiry"].says == (f"expires {expires} UTC" if entry.expiry else "never expires")
    assert any(entry.expiry for entry in entries)


def test_a_settled_message_is_told(kept):
    version, path = kept
    findings, vhost, queue = _queue(path)
    records = records_of(findings, queue, vhost.entry_count, 0)
    said = " ".join(record.note for record in records) + " ".join(
        f.says for each in records for f in each.fields
    )
    assert "acknowledged" in said
    assert records_of(findings, queue, vhost.entry_count, 10_000) == []
    files = {
        record.file
        for number in range(COUNT)
        for record in records_of(findings, queue, vhost.entry_count, number)
    }
    v1 = {"journal.jif", "0.idx", "1.idx"}
    v2 = {f"{number}.{kind}" for number in range(3) for kind in ("qi", "qs")}
    assert files >= (v1 if version == 1 else v2)


def test_a_journal_that_no_flush_has_moved_yet_is_read(tmp_path):
    with warrenmq.open(tmp_path / "data", settings=SETTINGS[1]) as broker:
        broker.declare_queue("orders").publish(b"small").result()
        findings, vhost, queue = _queue(tmp_path / "data")
        (record,) = records_of(findings, queue, vhost.entry_count, 0)
    assert record.file == "journal.jif"
    assert [field.name for field in record.fields] == [
        "publish", "message id", "expiry", "size", "embedded", "version", "checksum", "body size", BODY, "deliver",
    ]  # fmt: skip
    assert sum(len(field.data) for field in record.fields) == len(findings.read(f"{queue.path}/journal.jif"))


def test_a_message_behind_the_end_of_its_file_is_told_as_unwritten(tmp_path):
    with warrenmq.open(tmp_path / "data") as broker:
        broker.declare_queue("orders").publish(b"small").result()
        findings, vhost, queue = _queue(tmp_path / "data")
        record, header = records_of(findings, queue, vhost.entry_count, 1)
    assert (record.file, record.offset) == ("0.qi", 64 + 32)
    assert record.note == "It is not written yet."
    assert header.offset == 0


def test_damage_is_told_and_breaks_nothing(kept, tmp_path):
    version, path = kept
    findings, vhost, queue = _queue(path)
    for name in findings.names(queue.path):
        data = findings.read(f"{queue.path}/{name}") or b""
        for at in range(0, min(len(data), 400), 7):
            broken = data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]
            (tmp_path / name).write_bytes(broken)
            for seq_id in (0, 5, 6, 7, 15):
                queue.path = str(tmp_path)
                records_of(Findings(str(tmp_path)), queue, vhost.entry_count, seq_id)
        (tmp_path / name).write_bytes(data)
        queue.path = _queue(path)[2].path
    if version == 2:
        broken = bytearray((tmp_path / "0.qi").read_bytes())
        broken[64 + 32 * 6] = 9
        (tmp_path / "0.qi").write_bytes(broken)
        queue.path = str(tmp_path)
        assert "damaged" in records_of(Findings(str(tmp_path)), queue, 16, 6)[0].note


def test_the_inspector_shows_bodies_only_where_that_was_asked_for(kept):
    _, path = kept
    for bodies in (False, True):
        shown = RecordReader(str(path), bodies=bodies).index("orders", 0, 7)["records"]
        bytes_of_body = [bytes(f["data"]) for each in shown for f in each["fields"] if f["name"] == BODY]
        assert [b"xxx" in each for each in bytes_of_body] == [bodies]
    assert "no folder" in RecordReader(str(path)).index("nobody", 0, 0)["error"]
