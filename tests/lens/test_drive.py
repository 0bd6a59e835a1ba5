"""The drive: the same choices make the same trace, and every command does what it says."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warrenmq.errors import CallerError
from warrenmq.lens.drive import PROFILES, Drive
from warrenmq.lens.lesson import lessons
from warrenmq.replay.drive.engine import replay_memory
from warrenmq.replay.export.selection import rows_in_order
from warrenmq.trace.events import Confirm, Deliver, Ev, Reason
from warrenmq.trace.reader import open_memory

QUEUE = {"queue": "jobs"}


def declared(**more):
    drive = Drive(seed=7, **more)
    assert drive.do({"do": "declare", **QUEUE})["result"] == "jobs"
    return drive


def rows(drive, event):
    with open_memory(drive.files()) as trace:
        return [row for _, row in rows_in_order(trace) if row.event == event]


def test_a_mailbox_is_served_when_the_reader_says_so():
    with declared() as drive:
        drive.do({"do": "get", **QUEUE})  # the queue's process starts
        drive.do({"do": "settle"})
        drive.do({"do": "publish", **QUEUE, "size": 5_000, "hold": True})
        assert "queue:jobs" not in drive.now()["can_run"]
        drive.do({"do": "turn", "actor": "application"})
        assert not rows(drive, Ev.PUBLISH)
        while "queue:jobs" in drive.now()["can_run"]:
            drive.do({"do": "turn", "actor": "queue:jobs"})
        assert rows(drive, Ev.PUBLISH)
        assert not rows(drive, Ev.APPEND)
        drive.do({"do": "settle"})
        assert rows(drive, Ev.APPEND)
        assert rows(drive, Ev.CONFIRM)


def test_an_application_publishes_consumes_and_acks():
    with declared() as drive:
        drive.do({"do": "declare", "exchange": "mail", "type": "fanout"})
        drive.do({"do": "bind", **QUEUE, "exchange": "mail"})
        drive.do({"do": "publish", "exchange": "mail", "size": 10, "count": 3})
        assert drive.do({"do": "get", **QUEUE})["result"] == 10
        drive.do({"do": "reject", **QUEUE, "requeue": True})
        drive.do({"do": "consume", **QUEUE, "prefetch": 2})
        drive.do({"do": "settle"})
        assert drive.do({"do": "take", **QUEUE})["result"] == 10
        drive.do({"do": "ack", **QUEUE})
        drive.do({"do": "settle"})
        assert len(rows(drive, Ev.ACK)) == 1
        assert sum(Deliver.of(row).count for row in rows(drive, Ev.DELIVER)) == 1 + 3
        assert "held" in drive.do({"do": "ack", "queue": "other"})["error"]
        assert drive.do({"do": "close"})["open"] is False


def test_what_breaks_is_marked_and_nothing_confirmed_is_lost():
    with declared() as drive:
        drive.do({"do": "publish", **QUEUE, "count": 5, "size": 5_000})
        drive.do({"do": "sleep", "ms": 100})
        confirmed = sum(Confirm.of(row).count for row in rows(drive, Ev.CONFIRM))
        drive.do({"do": "kill", "actor": "queue:jobs"})
        drive.do({"do": "sleep", "ms": 500})
        assert Reason.KILLED in {row.flag for row in rows(drive, Ev.CHILD_EXIT)}
        drive.do({"do": "disk_full", "free": 0})
        drive.do({"do": "publish", **QUEUE, "size": 9_000})
        drive.do({"do": "disk_full", "free": -1})
        drive.do({"do": "publish", **QUEUE, "size": 9_000})
        assert drive.do({"do": "power_cut", "operations": 2})["open"] is False
        with pytest.raises(CallerError, match="there is no broker"):
            drive.do({"do": "get", **QUEUE})
        drive.do({"do": "open"})
        drive.do({"do": "settle"})
        found = 0
        while drive.do({"do": "get", **QUEUE})["result"] is not None:
            found += 1
        assert found >= confirmed == 5
        drive.do({"do": "crash"})
        assert replay_memory(drive.files()).verdict == "ok"


def test_a_broker_that_cannot_open_says_why_and_can_be_opened_later():
    with declared() as drive:
        drive.do({"do": "power_cut"})
        drive.do({"do": "disk_full", "free": 0})
        answer = drive.do({"do": "open"})
        assert "No space left" in answer["error"]
        assert not answer["open"]
        drive.do({"do": "disk_full", "free": -1})
        assert drive.do({"do": "open"})["open"]
        with Drive.of_link(drive.link()) as again:
            assert again.digest() == drive.digest()


def test_memory_above_the_watermark_blocks_publishers_and_a_bit_rots_where_it_is_said_to():
    with declared() as drive:
        drive.do({"do": "publish", **QUEUE, "size": 5_000})
        drive.do({"do": "settle"})
        drive.do({"do": "memory", "used": 1 << 34})
        drive.do({"do": "sleep", "ms": 2_000})
        assert rows(drive, Ev.ALARM_SET)
        assert "error" in drive.do({"do": "publish", **QUEUE})
        path = next(path for path in drive.machine.disk.paths() if path.endswith(".rdq"))
        before = drive.machine.disk.read(path)
        drive.do({"do": "bit_flip", "path": path.removeprefix("/data/"), "offset": 40, "bit": 3})
        after = drive.machine.disk.read(path)
        assert [(at, a ^ b) for at, (a, b) in enumerate(zip(before, after, strict=True)) if a != b] == [
            (40, 8)
        ]
        assert " at byte " in drive.do({"do": "bit_flip"})["result"]


def test_a_link_makes_the_same_trace_and_is_short():
    with declared() as drive:
        for command in (
            {"do": "publish", **QUEUE, "count": 20, "size": 9_000},
            {"do": "sleep", "ms": 50},
            {"do": "turn", "times": 7},
            {"do": "kill", "actor": "queue:jobs"},
            {"do": "sleep", "ms": 500},
            {"do": "power_cut", "operations": 3},
            {"do": "open"},
            {"do": "bit_flip"},
            {"do": "mark", "text": "ärger"},
        ):
            drive.do(command)
        assert len(drive.link()) < 400
        with Drive.of_link(drive.link()) as again:
            assert again.digest() == drive.digest()
            assert again.choices == drive.choices
            assert again.now() == drive.now()


STEPS = st.one_of(
    st.fixed_dictionaries({"do": st.just("turn"), "times": st.integers(1, 30)}),
    st.fixed_dictionaries(
        {
            "do": st.just("publish"),
            "queue": st.just("jobs"),
            "size": st.sampled_from([10, 5_000]),
            "hold": st.booleans(),
        }
    ),
    st.sampled_from(
        [
            {"do": "settle"},
            {"do": "get", **QUEUE},
            {"do": "ack", **QUEUE},
            {"do": "crash"},
            {"do": "power_cut"},
            {"do": "open"},
            {"do": "sleep", "ms": 40},
            {"do": "kill", "actor": "queue:jobs"},
            {"do": "power_cut", "operations": 2},
        ]
    ),
)


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 1000), st.sampled_from(["classic", "modern"]), st.lists(STEPS, max_size=10))
def test_any_choices_make_the_same_trace_again_and_forks_go_the_same_way(seed, profile, commands):
    with Drive(seed=seed, profile=profile) as drive:
        drive.do({"do": "declare", **QUEUE})
        for command in commands:
            try:
                drive.do(command)
            except CallerError:
                pass
        with Drive.of_link(drive.link()) as again:
            assert again.digest() == drive.digest()
        row = drive.machine.rows * 2 // 3
        with drive.fork(row) as fork, open_memory(drive.files()) as one, open_memory(fork.files()) as other:
            ours = [row for _, row in rows_in_order(one)]
            theirs = [row for _, row in rows_in_order(other)]
            assert len(theirs) >= row
            assert theirs == ours[: len(theirs)]


def test_a_broker_is_opened_once_at_a_time_and_only_bytes_rot_that_there_are():
    with declared() as drive:
        drive.do({"do": "publish", **QUEUE, "size": 9_000})
        drive.do({"do": "sleep", "ms": 500})
        path = next(path for path in drive.files_to_rot() if path.endswith(".rdq"))
        for offset in (-1, 1 << 20):
            with pytest.raises(CallerError, match=f"no byte {offset} in {path}"):
                drive.do({"do": "bit_flip", "path": path, "offset": offset})
        with pytest.raises(CallerError, match="not named"):
            drive.do({"do": "bit_flip", "offset": 1})
        drive.do({"do": "crash"})
        drive.do({"do": "open", "hold": True})
        with pytest.raises(CallerError, match="is being opened"):
            drive.do({"do": "open"})
        drive.do({"do": "crash"})
        assert drive.do({"do": "open"})["open"]


def test_what_was_chosen_is_said_in_words():
    with declared() as drive:
        for command in (
            {"do": "publish", **QUEUE, "size": 300},
            {"do": "kill", "actor": "queue:jobs"},
            {"do": "sleep", "ms": 20_000},
            {"do": "disk_full", "free": 0},
            {"do": "disk_full", "free": -1},
            {"do": "crash"},
        ):
            drive.do(command)
        assert [words for words, _ in drive.came] == [
            "the script empty", "declare jobs", "publish 1 of 300 bytes to jobs", "kill jobs", "20,000 ms pass",
            "0 bytes of the disk are free", "room on the disk again", "kill -9",
        ]  # fmt: skip


def test_a_lesson_is_a_script():
    with Drive("flying-counter") as drive:
        before = drive.machine.rows
        drive.do({"do": "publish", "queue": "orders"})
        with drive.fork(before) as fork:
            assert fork.machine.rows == before


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        ({}, "names what to do"),
        ({"do": "dance"}, "no command 'dance'"),
        ({"do": "publish", "colour": "red"}, "no argument 'colour'"),
        ({"do": "publish", "size": "large"}, "size is 'large'"),
        ({"do": "turn", "actor": "nobody"}, "nobody has nothing to do now"),
        ({"do": "turn", "times": 0}, "times is 0"),
        ({"do": "turn", "times": True}, "times is True"),
        ({"do": "kill", "actor": "nobody"}, "no actor 'nobody'"),
        ({"do": "bit_flip", "path": "/etc/passwd"}, "no file '/etc/passwd'"),
        ({"do": "kill"}, "kill needs actor"),
        ({"do": "bit_flip", "path": "msg_stores", "offset": 0}, "no file 'msg_stores'"),
        ({"do": "bind", "queue": "jobs"}, "bind needs exchange"),
        ({"do": "open"}, "the broker is open"),
    ],
)
def test_a_command_that_makes_no_sense_changes_nothing(command, complaint):
    with declared() as drive:
        link = drive.link()
        with pytest.raises(CallerError, match=complaint):
            drive.do(command)
        assert drive.link() == link


@pytest.mark.parametrize("link", ["", "x", "eNoDAAAAAAE", "€", "eNqLNtQBAAJbAPs"])
def test_a_link_that_is_none_is_refused_in_a_sentence(link):
    with pytest.raises(CallerError, match="no link"):
        Drive.of_link(link)


def test_an_unknown_script_or_profile_is_refused():
    with pytest.raises(CallerError, match="no lesson 'nothing'"):
        Drive("nothing")
    with pytest.raises(CallerError, match="no profile 'old'"):
        Drive(profile="old")


@pytest.mark.parametrize("profile", PROFILES)
def test_the_script_of_every_lesson_ends_under_both_profiles(profile):
    for each in lessons():
        with Drive(each.name, profile=profile) as drive:
            assert drive.script_rows == drive.machine.rows > 50


@pytest.mark.parametrize("profile", PROFILES)
def test_a_kill_inside_the_collector_loses_nothing_under_both_profiles(profile):
    with Drive("15", profile=profile) as drive:
        assert len(rows(drive, Ev.DELIVER)) == 22 + 6
        assert replay_memory(drive.files()).verdict == "ok"


def all_rows(drive):
    with open_memory(drive.files()) as trace:
        return [(run, tuple(row)) for run, row in rows_in_order(trace)]


@pytest.mark.parametrize(
    ("script", "places"), [("flying-counter", (0.0, 0.6, 0.9)), ("crashes", (0.3, 0.6)), ("15", (0.2, 0.5))]
)
def test_a_run_is_forked_at_a_row_of_its_script_and_goes_on_from_there(script, places):
    with Drive(script) as drive:
        before = all_rows(drive)
        for place in places:
            row = max(1, int(place * len(before)))
            with drive.fork(row) as other:
                assert row <= other.machine.rows < len(before)
                assert all_rows(other) == before[: other.machine.rows]
                if not other.now()["open"]:
                    other.do({"do": "open"})
                other.do({"do": "declare", "queue": "orders"})
                assert other.do({"do": "publish", "queue": "orders", "size": 9_000})["result"] == 1
                other.do({"do": "settle"})
                with Drive.of_link(other.link()) as again, other.fork(other.machine.rows) as same:
                    assert again.digest() == same.digest() == other.digest()
                with other.fork(max(1, row - 2)) as earlier:
                    assert all_rows(earlier) == before[: earlier.machine.rows]
                other.do({"do": "crash"})
                assert replay_memory(other.files()).verdict == "ok"
