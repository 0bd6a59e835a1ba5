"""Log files of RabbitMQ's tracing plugin: real, generated and torn ones, and files of another kind."""

import gzip
import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.rabbit_logs.tracing_logs import (
    LINE,
    json_line,
    json_log,
    published,
    received,
    text_log,
    text_record,
)
from tests.support.source_tree import ROOT
from warrenmq.rabbit_logs.log_files import NotATracingLog, open_logs
from warrenmq.rabbit_logs.record import BadRecord, Record, moment
from warrenmq.rabbit_logs.text_format import TextLog

GOLDEN = Path(ROOT, "tests") / "golden" / "rabbitmq-tracing-3.10"
T = 1_700_000_000_000_000
CHUNKS = (1, 7, 80, 1 << 20)


def read(*paths):
    logs = open_logs(*paths)
    return list(logs.records()), logs.files


def of_text(data, chunk=1 << 20):
    log = TextLog()
    return list(log.records(data[at : at + chunk] for at in range(0, len(data), chunk))), log


@pytest.mark.parametrize(("run", "records"), [("all", 67), ("cut", 67), ("quorum-stream", 34)])
def test_real_logs_of_one_run_say_the_same_in_both_formats(run, records):
    found = []
    for form in ("json", "text"):
        got, (file,) = read(GOLDEN / f"{run}-{form}.log")
        assert (file.format, file.records, file.damaged, file.skipped) == (form, records, 0, 0)
        found.append(
            Counter(
                repr(each._replace(t=0, properties=json.dumps(each.properties, sort_keys=True)))
                for each in got
            )
        )
    assert found[0] == found[1]


def test_real_bodies_are_what_was_published():
    records, _ = read(GOLDEN / "all-text.log")
    bodies = {
        r.properties["message_id"]: r.payload for r in records if r.published and "message_id" in r.properties
    }
    assert bodies["b-0"] == b""
    assert bodies["b-1"] == b"\n"
    assert bodies["b-3"] == bytes(range(256))
    assert bodies["b-4"].decode() == "größe 数字 🐇"
    assert bodies["b-5"] == b"\xff\xfe\xc3\x28 not utf-8"
    assert bodies["b-6"].endswith(b"Payload: \nfake payload\n"), "a record in a body"
    assert bodies["b-7"] == LINE
    assert bodies["b-8"] == b"\n" + LINE + b"\nnot a record\n"
    assert bodies["b-10"] == b"\r\nwindows\r\n"


def test_truncated_bodies_are_as_long_as_the_trace_allowed():
    records, _ = read(GOLDEN / "cut-text.log")
    assert max(len(record.payload) for record in records) == 24


text = st.text(st.characters(codec="utf-8", exclude_categories=("Cc",)), max_size=12)
line = text.filter(lambda word: "\n" not in word)
values = st.recursive(
    st.integers(-(1 << 31), (1 << 31) - 1) | st.booleans() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
bodies = st.binary(max_size=60) | st.lists(
    st.sampled_from(
        [LINE, b"", b"=" * 79, b"2023-11-14 22:13:20: Message published", b"Node:         a", b"Payload: "]
    ),
    max_size=5,
).map(b"\n".join)
records = st.builds(
    Record,
    st.integers(T, T + 10_000_000).map(lambda t: t // 1000 * 1000),
    st.booleans(),
    *[line] * 4,
    st.integers(0, 65_535),
    line,
    st.lists(st.text(max_size=12), min_size=1, max_size=3).map(tuple),
    st.lists(line, min_size=1, max_size=1).map(tuple),
    st.dictionaries(st.text(max_size=8), values, max_size=4),
    bodies,
)  # fmt: skip


@given(st.lists(records, max_size=6))
def test_json_logs_are_read_back(wanted):
    from warrenmq.rabbit_logs.log_files import LogFile

    file = LogFile("none", "json")
    assert list(file._json(json_log(wanted).splitlines(keepends=True))) == wanted
    assert file.damaged == 0


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(records, max_size=5), st.sampled_from(CHUNKS))
def test_text_logs_are_read_back_whatever_the_bodies_hold(wanted, chunk):
    found, log = of_text(text_log(wanted), chunk)
    assert found == wanted
    assert (log.damaged, log.in_bodies, log.skipped) == (0, 0, 0)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(records, st.lists(records, max_size=2), st.sampled_from(CHUNKS))
def test_an_old_log_in_a_body_is_a_body(outer, inner, chunk):
    old = [each._replace(t=each.t - 3_600_000_000) for each in inner]
    wanted = [outer._replace(payload=text_log(old)), outer]
    found, log = of_text(text_log(wanted), chunk)
    assert found == wanted
    assert log.in_bodies == len(inner)


def test_a_young_log_in_a_body_looks_like_records():
    """The limit that the page names."""
    found, _ = of_text(text_record(published(T, "q", body=text_record(published(T, "inner")))))
    assert [record.queues for record in found] == [("q",), ("inner",)]


@pytest.mark.parametrize("chunk", CHUNKS)
def test_a_text_log_that_ends_anywhere_gives_its_whole_records_and_says_that_it_is_torn(chunk):
    first, last = published(T, "a", body=b"one\n\n"), received(T, "a", body=b"two", message_id="m")
    data = text_log([first, last])
    begin = len(text_record(first))
    for end in range(begin + 1, len(data)):
        found, log = of_text(data[:end], chunk)
        if len(found) == 2:
            assert found[1] == last._replace(payload=found[1].payload)
            assert last.payload.startswith(found[1].payload)
            assert log.damaged == 1 or data[:end].endswith(b"\n"), (
                "a body that ends in a line feed looks whole"
            )
            found.pop()
        if end < begin + 81 or found != [first]:  # until the line is there, it is text of the body before
            assert found[0].payload.startswith(first.payload) or data[:end].endswith(b"\n")
        assert len(found) == 1


def test_records_after_a_torn_one_are_found():
    first, torn, last = published(T, "a"), published(T, "b", message_id="m"), received(T, "a")
    begun = text_record(torn).index(b"Node:") + len(b"Node:         ")
    for end in range(begun, len(text_record(torn))):
        found, log = of_text(text_record(first) + text_record(torn)[:end] + text_record(last))
        assert found[0] == first
        assert found[-1] == last
        assert log.damaged or found[1:-1], "what is torn is told, or whole but for its body"


def test_a_torn_line_of_json_is_counted_and_the_record_behind_it_found(tmp_path):
    first, last = published(T, "a", headers={"h": {"x": 1}}), received(T, "a")
    for end in range(1, len(json_line(first)) - 1):
        path = tmp_path / "log"
        path.write_bytes(json_line(last) + json_line(first)[:end] + json_line(last) + json_line(last)[:end])
        found, (file,) = read(path)
        assert found[:2] == [last, last]
        assert file.damaged == 2 - (len(found) - 2), "the last line may lack nothing but its line feed"


def test_a_log_whose_beginning_was_cut_off_is_read_from_its_first_record(tmp_path):
    wanted = [published(T, "a"), received(T, "a")]
    for name, data in (("text", text_log([wanted[0], *wanted])), ("json", json_log([wanted[0], *wanted]))):
        (tmp_path / name).write_bytes(data[9:])
        found, (file,) = read(tmp_path / name)
        assert found == wanted
        assert file.format == name
        assert file.skipped > 0
        assert file.damaged == 0


def test_compressed_logs_are_read_and_torn_ones_as_far_as_they_go(tmp_path):
    wanted = [published(T + 1000 * n, "a", body=bytes([n]) * 50) for n in range(200)]
    for name, data in (("text", text_log(wanted)), ("json", json_log(wanted))):
        path = tmp_path / f"{name}.log.gz"
        path.write_bytes(gzip.compress(data))
        assert read(path)[0] == wanted
        path.write_bytes(gzip.compress(data)[:-200])
        found, (file,) = read(path)
        assert file.damaged
        assert found[:-1] == wanted[: len(found) - 1]


def test_several_logs_are_one_in_the_order_of_time(tmp_path):
    wanted = [published(T + 2000, "a"), received(T + 3000, "a"), published(T + 4000, "a")]
    (tmp_path / "a.log").write_bytes(json_log(wanted[::2]))
    (tmp_path / "b.log").write_bytes(text_log(wanted[1::2]))
    (tmp_path / "notes.txt").write_text("not a log")
    found, files = read(tmp_path)
    assert found == wanted
    assert [file.format for file in files] == ["json", "text"]


def test_parts_of_a_json_log_have_each_record_once(tmp_path):
    wanted = [published(T, "a", body=bytes([n])) for n in range(9)]
    path = tmp_path / "log"
    path.write_bytes(json_log(wanted))
    (file,) = open_logs(path).files
    size = path.stat().st_size
    for step in (1, 50, 100, size):
        assert [r for at in range(0, size, step) for r in file.read_part(at, at + step)] == wanted


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("2022-11-21T16:26:44.949+00:00", 1_669_048_004.949),
        ("2022-11-21T18:26:44.949+02:00", 1_669_048_004.949),
        ("2022-11-21T16:26:44Z", 1_669_048_004),
        ("2022-11-21 16:26:44:949", 1_669_048_004.949),
        ("2022-11-21 6:26:44:949", 1_669_012_004.949),
        ("2011-1-2 3:04:05", 1_293_937_445),
    ],
)
def test_times_of_all_versions_are_read(written, seconds):
    assert moment(written) == round(seconds * 1_000_000)


@pytest.mark.parametrize(
    "written",
    [
        "",
        "yesterday",
        "2022-13-01 00:00:00",
        "2022-11-21",
        "2022-11-21 25:00:00",
        "2022-11-21 16:26:44+99:00",
    ],
)
def test_an_invalid_time_is_refused(written):
    with pytest.raises(BadRecord):
        moment(written)


def test_records_of_the_first_versions_have_fewer_lines():
    old = (
        b"\n"
        + LINE
        + (
            b"\n2011-9-20 12:25:02: Message published\n\nNode:         rabbit@host\nExchange:     events\n"
            b'Routing keys: [<<"k">>]\nProperties:   []\nPayload: \nbody\n'
        )
    )
    (record,), log = of_text(old)
    assert (record.exchange, record.queues, record.payload, log.damaged) == ("events", (), b"body", 0)


def test_binaries_with_unicode_strings_are_read():
    record = text_record(published(T, "q")).replace(b'<<"k">>', '<<"größe"/utf8>>'.encode("latin-1"))
    assert of_text(record)[0][0].routing_keys == ("größe",)


def test_names_and_bodies_that_newer_versions_print_as_text_are_read():
    record = text_record(received(T, "größe", body="größe".encode()))
    (found,), _ = of_text(record.decode().encode("latin-1"))
    assert (found.queues, found.payload) == (("größe",), "größe".encode("latin-1"))


def test_a_channel_without_a_number_is_read():
    (found,), _ = of_text(text_record(published(T, "q")).replace(b"Channel:      1", b"Channel:      none"))
    assert found.channel == 0


@settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    max_examples=60,
    deadline=None,
)
@given(st.sampled_from(["all-json", "all-text", "quorum-stream-json"]), st.data())
def test_damage_is_counted_and_never_raised(tmp_path, name, data):
    from warrenmq.rabbit_logs.summary import as_dict, count, lines

    damaged = bytearray((GOLDEN / f"{name}.log").read_bytes())
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(0, len(damaged) - 1))
        match data.draw(st.integers(0, 3)):
            case 0:
                damaged[at] = data.draw(st.integers(0, 255))
            case 1:
                del damaged[at : at + data.draw(st.integers(1, 3_000))]
            case 2:
                damaged[at:at] = data.draw(
                    st.binary(max_size=20)
                    | st.sampled_from([LINE, b"\n", b'"', b"[", b"{", b"1e999", b"\\ud800"])
                )
            case 3:
                other = data.draw(st.integers(0, len(damaged) - 1))
                damaged[at:at] = damaged[other : other + 2_000]
    path = tmp_path / "log"
    path.write_bytes(damaged)
    try:
        logs = open_logs(path)
    except NotATracingLog:
        return
    traffic = count(logs)
    assert json.dumps(as_dict(logs, traffic))
    assert "\n".join(lines(logs, traffic)).encode()


@pytest.mark.parametrize(
    "wrong",
    [
        {"channel": 1e999}, {"timestamp": 5}, {"payload": 7}, {"payload": "ü"}, {"routing_keys": "k"}, {"type": "lost"},
        {"routed_queues": None}, {"timestamp": "0000-01-01 00:00:00"},
    ],
)  # fmt: skip
def test_a_json_record_with_a_wrong_part_is_damage_or_read_without_it(tmp_path, wrong):
    good = json_line(published(T, "q"))
    (tmp_path / "log").write_bytes(good + json.dumps(json.loads(good) | wrong).encode() + b"\n")
    found, (file,) = read(tmp_path / "log")
    assert len(found) + file.damaged == 2
    assert len(found) == (2 if "channel" in wrong else 1)


def test_half_a_pair_of_surrogates_becomes_a_question_mark(tmp_path):
    (tmp_path / "log").write_bytes(json_line(published(T, "q", key="KEY")).replace(b"KEY", b"a\\ud800b"))
    assert read(tmp_path / "log")[0][0].routing_keys == ("a?b",)


@pytest.mark.parametrize(
    "data", [b"hello\n" * 50, b"{}\n", b'{"type": "published"}\n', b"\x00" * 5000, b"WTR1" + bytes(900)]
)
def test_a_file_that_is_no_log_is_refused(tmp_path, data):
    path = tmp_path / "file"
    path.write_bytes(data)
    with pytest.raises(NotATracingLog, match="no log of RabbitMQ's tracing plugin"):
        open_logs(path)


def test_a_log_without_messages_has_no_records(tmp_path):
    (tmp_path / "quiet.log").write_bytes(b"")
    assert read(tmp_path)[0] == []


def test_a_missing_log_is_reported(tmp_path):
    with pytest.raises(NotATracingLog, match="no such file"):
        open_logs(tmp_path / "gone.log")
    with pytest.raises(NotATracingLog, match="holds no log"):
        open_logs(tmp_path)
