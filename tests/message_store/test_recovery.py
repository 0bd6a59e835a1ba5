"""Recovery of a store's messages: dumps, damage, RabbitMQ's leftovers."""

import errno

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.message_store.kit import (
    FOLDER,
    QUARANTINE,
    SMALL,
    check_tables,
    held_by,
    msg_id,
    new_disk,
    reads,
    record,
    sealed,
)
from tests.message_store.store_world import StoreWorld
from warrenmq.message.stored import bound_to, encode_head, seal
from warrenmq.message_store import dump as store_dump
from warrenmq.message_store import rdq
from warrenmq.message_store.dump import UnusableDump, load, save
from warrenmq.message_store.file_summary import FileSummary
from warrenmq.message_store.message_index import MessageIndex
from warrenmq.message_store.owner_refs import OwnerRefs
from warrenmq.message_store.recovery import recover, wipe
from warrenmq.message_store.state import MsgStoreState

DUMPS = [store_dump.CLEAN, store_dump.SUMMARY, store_dump.INDEX]


pytestmark = pytest.mark.usefixtures("logs")


def put(disk, number, *parts):
    disk.replace(f"{FOLDER}/{number}.rdq", b"".join(parts))


def found(disk, *wanted):
    """The messages that a dirty start finds: number -> (file, offset)."""
    recovered = recover(disk, FOLDER, held_by(q=[msg_id(n) for n in wanted]), QUARANTINE, "store")
    check_tables(MsgStoreState(disk, FOLDER, SMALL, recovered, None, reads(disk)), disk)
    return {int.from_bytes(m[8:], "big"): entry[1:3] for m, entry in recovered.index.items()}, recovered


# dumps


def dumped(disk):
    """A store of two files that was stopped."""
    files, owners = FileSummary(), OwnerRefs()
    files.add(0)
    files.add(3)
    files.resize(0, valid=29, size=58)
    files.resize(3, valid=29, size=29)
    put(disk, 0, record(1), record(2))
    put(disk, 3, record(4))
    index = MessageIndex({msg_id(1): (2, 0, 0, 29), msg_id(2): (0, 0, 29, 29), msg_id(4): (1, 3, 0, 29)})
    for owner, held in (("q", 1), ("q", 4), ("p", 1)):
        owners.add(owner, msg_id(held))
    save(disk, FOLDER, index, files, owners)
    return index, files, owners


def test_a_dumped_index_is_loaded_once():
    disk = new_disk()
    index, _, owners = dumped(disk)
    loaded_index, loaded_files, loaded_owners = load(disk, FOLDER)
    assert dict(loaded_index.items()) == {m: entry for m, entry in index.items() if entry[0]}
    assert loaded_owners.counts() == owners.counts()
    assert loaded_owners.all_of("q") == owners.all_of("q")
    assert (loaded_files.sum_valid_data, loaded_files.sum_file_size) == (58, 87)
    assert [(n, row.ids) for n, row in loaded_files.rows.items()] == [(0, [msg_id(1)]), (3, [msg_id(4)])]
    with pytest.raises(UnusableDump, match=r"no .*clean\.dot"):
        load(disk, FOLDER)


def test_dumps_are_taken_over_if_every_owner_in_them_is_still_there():
    disk = new_disk()
    dumped(disk)
    recovered = recover(
        disk, FOLDER, lambda: [("q", unread()), ("p", unread()), ("new", unread())], QUARANTINE, "store"
    )
    assert recovered.clean
    assert recovered.owners.counts() == {msg_id(1): 2, msg_id(4): 1}


def test_what_a_queue_held_whose_deletion_did_not_reach_the_store_is_garbage_after_the_next_start():
    disk = new_disk()
    dumped(disk)
    recovered = recover(disk, FOLDER, held_by(p=[msg_id(1)]), QUARANTINE, "store")
    assert not recovered.clean
    assert dict(recovered.index.items()) == {msg_id(1): (1, 0, 0, 29)}
    assert recovered.damage == []


def unread():
    """The messages of a queue, which a clean start does not ask for."""
    raise AssertionError
    yield


@pytest.mark.parametrize("name", DUMPS)
def test_a_dump_that_is_cut_anywhere_is_not_believed(name):
    size = len(dumped_bytes()[name])
    for cut in range(size):
        disk = new_disk()
        dumped(disk)
        disk.replace(f"{FOLDER}/{name}", dumped_bytes()[name][:cut])
        with pytest.raises(UnusableDump):
            load(disk, FOLDER)
        assert disk.listdir(FOLDER) == ["0.rdq", "3.rdq"]


@pytest.mark.parametrize("name", DUMPS)
def test_a_dump_with_a_flipped_bit_is_not_believed(name):
    data = dumped_bytes()[name]
    for at in range(len(data)):
        disk = new_disk()
        dumped(disk)
        disk.replace(f"{FOLDER}/{name}", data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
        with pytest.raises(UnusableDump):
            load(disk, FOLDER)


def dumped_bytes():
    disk = new_disk()
    dumped(disk)
    return {name: disk.read(f"{FOLDER}/{name}") for name in DUMPS}


@pytest.mark.parametrize(
    "change",
    [
        lambda disk: disk.unlink(f"{FOLDER}/{store_dump.SUMMARY}"),
        lambda disk: disk.unlink(f"{FOLDER}/{store_dump.INDEX}"),
        lambda disk: put(disk, 4, b""),
        lambda disk: disk.unlink(f"{FOLDER}/3.rdq"),
        lambda disk: put(disk, 0, record(1), record(2)[:-1]),
        lambda disk: disk.replace(f"{FOLDER}/0.rdt", b""),
    ],
)
def test_dumps_that_do_not_fit_the_files_are_not_believed(change):
    disk = new_disk()
    dumped(disk)
    change(disk)
    with pytest.raises(UnusableDump):
        load(disk, FOLDER)


def test_dumps_of_two_different_stops_are_not_believed():
    disk, old = new_disk(), dumped_bytes()
    index, files, owners = dumped(disk)
    owners.add("x", msg_id(1))
    save(disk, FOLDER, index, files, owners)
    disk.replace(f"{FOLDER}/{store_dump.INDEX}", old[store_dump.INDEX])
    with pytest.raises(UnusableDump, match="same stop"):
        load(disk, FOLDER)


def test_rabbitmqs_own_dumps_are_put_away_and_its_files_read():
    disk = new_disk()
    put(disk, 0, record(1))
    for name in DUMPS:
        disk.replace(f"{FOLDER}/{name}", b"\x83h\x02 an Erlang term")
    assert found(disk, 1)[0] == {1: (0, 0)}
    assert disk.listdir(FOLDER) == ["0.rdq"]


def test_a_consumed_dump_never_comes_back_after_a_power_cut():
    """It would hide what was confirmed since."""
    for seed in range(60):
        world = StoreWorld(new_disk(seed), ["q"])
        world.write("q", [1])
        world.stop()
        world.open()
        world.write("q", [2])
        world.deliver_all()
        world.sync()
        assert msg_id(2) in world.confirmed["q"]
        world.disk.power_cut()
        world.open()
        assert set(world.held["q"]) == {msg_id(1), msg_id(2)}


# a dirty start


def test_the_first_of_two_copies_counts_and_the_other_file_can_go():
    disk = new_disk()
    put(disk, 0, record(1), record(2))
    put(disk, 1, record(2), record(1))
    put(disk, 2, record(3))
    places, recovered = found(disk, 1, 2, 3)
    assert places == {1: (0, 0), 2: (0, 29), 3: (2, 0)}
    assert [row.valid_total_size for row in recovered.files.rows.values()] == [58, 0, 29]


GOOD = record(1, b"\x83" + b"x" * 599 + b"y" * 600)
HOLE = bytes(40)
HALF = [GOOD[:at] + bytes(n) + GOOD[at + n :] for at, n in ((40, 500), (24, 1), (600, len(GOOD) - 601))]
OLD = GOOD[:40] + b"garbage" * 100 + GOOD[740:]


@pytest.mark.parametrize("torn", [*HALF, OLD], ids=["middle", "a byte", "end", "garbage"])
def test_a_torn_copy_that_has_its_head_and_marker_loses_against_the_good_one_behind_it(torn):
    """RabbitMQ's compaction in place, cut off before its fsync: it takes the first and fails to decode it (defect S39)."""
    for left in (record(2), b""):
        disk = new_disk()
        put(disk, 0, left, torn, HOLE, record(3), GOOD)
        put(disk, 1, record(4))
        places, recovered = found(disk, 1, 2, 3, 4)
        assert places[1] == (0, len(left) + len(torn) + 40 + 29)
        assert recovered.files.rows[0].valid_total_size == len(GOOD) + 29 + len(left)


@pytest.mark.parametrize("torn", HALF, ids=["middle", "a byte", "end"])
@pytest.mark.parametrize("first", [True, False])
def test_of_two_copies_in_two_files_the_one_that_lacks_bytes_loses(torn, first):
    """A combine of RabbitMQ that was cut off: in the left file, or, of what was copied aside, in the `.rdt`."""
    disk = new_disk()
    put(disk, 0, record(2), torn if first else GOOD)
    put(disk, 1, record(3), GOOD if first else torn)
    put(disk, 2, record(4))
    places, recovered = found(disk, 1, 2, 3, 4)
    assert places[1][0] == int(first)
    assert recovered.files.sum_valid_data == len(GOOD) + 3 * 29


def test_the_last_file_is_written_anew_with_the_good_copy():
    disk = new_disk()
    put(disk, 0, record(2), HALF[0], GOOD, record(3))
    places, _ = found(disk, 1, 2, 3)
    assert places == {2: (0, 0), 1: (0, 29), 3: (0, 29 + len(GOOD))}
    assert disk.read(f"{FOLDER}/0.rdq") == record(2) + GOOD + record(3)


def test_copies_that_our_compaction_did_not_finish_are_no_damage():
    """They have no marker yet, and the originals are where they were."""
    disk = new_disk()
    put(
        disk,
        0,
        record(2),
        record(5, b"\x83" * 300)[:-1] + b"\0",
        record(1)[:-1] + b"\0",
        HOLE,
        record(1),
        record(5, b"\x83" * 300),
    )
    put(disk, 1, record(3))
    places, recovered = found(disk, 1, 2, 3, 5)
    assert places == {2: (0, 0), 1: (0, 423), 5: (0, 452), 3: (1, 0)}
    assert len(recovered.damage) == 0
    assert disk.listdir(QUARANTINE) == []


def test_unreferenced_messages_are_garbage_and_missing_ones_are_forgotten():
    disk = new_disk()
    put(disk, 0, record(1), record(2))
    put(disk, 1, record(3))
    places, recovered = found(disk, 2, 3, 9)
    assert places == {2: (0, 29), 3: (1, 0)}
    assert set(recovered.owners.held("q")) == {msg_id(2), msg_id(3)}
    assert recovered.files.rows[0].file_size == 58


def test_a_message_that_misses_an_older_one_of_its_queue_is_damage():
    disk = new_disk()
    put(disk, 0, record(2, sealed(2, 200)))
    assert len(recover(disk, FOLDER, held_by(q=[msg_id(1), msg_id(2)]), QUARANTINE, "store").damage) == 1


@pytest.mark.parametrize("head", [encode_head("", ["q", "p"], None), encode_head("all", ["q"], None)])
def test_it_is_none_if_another_queue_may_have_sent_it(head):
    """That queue may have removed it again, so nobody else has it."""
    disk = new_disk()
    put(disk, 0, record(2, seal(head, b"body", bound_to(msg_id(2)))))
    assert recover(disk, FOLDER, held_by(q=[msg_id(1), msg_id(2)]), QUARANTINE, "store").damage == []


def test_references_are_counted_over_all_owners():
    disk = new_disk()
    put(disk, 0, record(1))
    claims = held_by(q=[msg_id(1), msg_id(1)], p=[msg_id(1)])
    recovered = recover(disk, FOLDER, claims, QUARANTINE, "store")
    assert dict(recovered.index.items()) == {msg_id(1): (3, 0, 0, 29)}


def test_the_last_file_is_written_anew_without_garbage_and_torn_tail():
    disk = new_disk()
    put(disk, 0, record(1), record(8), record(2), record(3)[:-2])
    places, recovered = found(disk, 1, 2, 3)
    assert places == {1: (0, 0), 2: (0, 29)}
    assert disk.read(f"{FOLDER}/0.rdq") == record(1) + record(2)
    assert recovered.damage == []
    assert disk.read(f"{QUARANTINE}/store-0.rdq-87") == record(3)[:-2], (
        "a disk may have lost what it had synced"
    )


def test_the_last_file_is_only_cut_when_there_is_no_space_to_write_it_anew():
    disk = new_disk()
    put(disk, 0, record(1), record(8), record(2), record(9))
    disk.fail_next("append", ".rdq.tmp", errno.ENOSPC)
    places, recovered = found(disk, 1, 2)
    assert places == {1: (0, 0), 2: (0, 58)}
    assert disk.size(f"{FOLDER}/0.rdq") == recovered.files.rows[0].file_size == 87


def test_records_that_the_kernel_lost_after_a_failed_sync_are_safe_after_the_next_start():
    """It shows the bytes to readers, and saves nothing of them by itself."""
    for seed in range(20):
        world = StoreWorld(new_disk(seed), ["q", "p"])
        world.write("q", [1])
        world.deliver_all()
        world.disk.fail_next("datasync", ".rdq", errno.EIO)
        with pytest.raises(OSError, match="rdq"):
            world.sync()
        world.open()
        world.write("p", [1])  # counts a reference: nothing is appended
        world.deliver_all()
        world.sync()
        assert world.confirmed["p"] == {msg_id(1)}
        world.disk.power_cut()
        world.open()


def test_a_file_without_a_record_of_value_does_not_stop_a_start():
    disk = new_disk()
    put(disk, 0, b"\xff" * 300)
    put(disk, 1, bytes(300))
    put(disk, 2, b"text " * 60)
    places, recovered = found(disk, 1)
    assert places == {}
    assert len(recovered.damage) == 2
    assert recovered.files.current == 2


def test_a_full_disk_does_not_stop_a_start_with_damage():
    disk = new_disk()
    put(disk, 0, record(1), b"damage", record(2))
    put(disk, 1, record(3))
    disk.free_bytes = 0
    places, recovered = found(disk, 1, 2, 3, 4)
    assert set(places) == {1, 2, 3}
    assert len(recovered.damage) == 1


@pytest.mark.parametrize("number", [2, 9])
@pytest.mark.parametrize("zeros", [0, 700])
@pytest.mark.parametrize("came", [1, 7, 8, 20, 24, 25, 100, 300])
def test_a_write_that_was_cut_off_is_no_damage(came, zeros, number):
    """A process that was killed within a write of the last file, or a power cut: the message was never confirmed, and
    perhaps no index has it yet.
    """
    for in_last in (True, False):
        disk = new_disk()
        put(disk, 0, record(1), record(number, b"\x83" * 400)[:came], bytes(zeros))
        if not in_last:
            put(disk, 1, record(3))
        places, recovered = found(disk, 1, 2, *([] if in_last else [3]))
        assert places[1] == (0, 0)
        assert 2 not in places
        assert bool(recovered.damage) == (came > 6 and not in_last), "an older file was synced"


@pytest.mark.parametrize(("older", "damage"), [(1, 1), (4, 0)])
def test_bytes_that_are_no_record_are_damage_in_no_file_before_that_of_an_older_message(older, damage):
    """A kill leaves messages that were not appended yet, and half of a compaction in an older file."""
    disk = new_disk()
    whole = {number: record(number, sealed(number, 200)) for number in (1, 3, 4)}
    put(disk, 0, whole[1], b"\x01" * 40, whole[3])
    put(disk, 1, whole[4])
    recovered = recover(disk, FOLDER, held_by(q=[msg_id(older), msg_id(2)]), QUARANTINE, "store")
    assert {each for each, _ in recovered.index.items()} == {msg_id(older)}
    assert len(recovered.damage) == len(disk.listdir(QUARANTINE)) == damage


def test_half_done_files_of_a_crash_are_deleted():
    disk = new_disk()
    put(disk, 0, record(1))
    disk.replace(f"{FOLDER}/0{rdq.TEMPORARY}", record(1) + record(2))
    disk.replace(f"{FOLDER}/clean.dot.tmp", b"x")
    assert found(disk, 1, 2)[0] == {1: (0, 0)}
    assert disk.listdir(FOLDER) == ["0.rdq"]


def test_a_wiped_store_has_nothing():
    disk = new_disk()
    put(disk, 5, record(1))
    recovered = wipe(disk, FOLDER)
    assert disk.listdir(FOLDER) == []
    assert recovered.files.current == 0


# what RabbitMQ leaves when it is killed in a combine: left = A x C x D, right = E x F
# (docs/reference/message-store.md#crash-points-of-a-combine)

A, C, D, E, F, X, Y = (record(n, b"\x83ody %d" % n) for n in range(7))
ZEROS = bytes(200)
EVERY_ONE = {0, 1, 2, 3, 4}


@pytest.mark.parametrize(
    ("left", "temporary", "right"),
    [
        (A + X + C + Y + D, None, E + X + F),
        (A + X + C + Y + D, C + D[:9], E + X + F),
        (A + X + C + Y + D, C + D, E + X + F),
        (A, C + D, E + X + F),
        (A + ZEROS, C + D, E + X + F),  # RabbitMQ loses C and D here
        (A + C + ZEROS, C + D, E + X + F),  # and D here
        (A + C + D[:7] + ZEROS, C + D, E + X + F),
        (A + C + D + ZEROS, C + D, E + X + F),
        (A + C + D + E + ZEROS, None, E + X + F),
        (A + C + D + E[:11] + ZEROS, None, E + X + F),
        (A + C + D + E + F, None, E + X + F),
        (A + C + D + E + F, None, b""),
    ],
)
def test_a_combine_of_rabbitmq_that_was_cut_off_loses_nothing(left, temporary, right):
    disk = new_disk()
    put(disk, 0, left)
    put(disk, 1, right)
    put(disk, 2, record(9, b"\x83ine"))
    if temporary is not None:
        disk.replace(f"{FOLDER}/0.rdt", temporary)
    places, recovered = found(disk, *EVERY_ONE, 9)
    assert set(places) == {*EVERY_ONE, 9}
    assert not any(name.endswith(".rdt") for name in disk.listdir(FOLDER))
    assert recovered.files.current == (2 if temporary is None else 3)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(60, 250)), min_size=1, max_size=12), st.data())
def test_a_flipped_bit_is_told_if_it_costs_a_message_and_only_then(kept, data):
    """Nothing that a queue refers to goes without a word, and garbage is no damage, whatever became of it."""
    disk = new_disk()
    content = bytearray(
        b"".join(record(number, sealed(number, size)) for number, (_, size) in enumerate(kept))
    )
    wanted = [number for number, (wanted, _) in enumerate(kept) if wanted]
    bit = data.draw(st.integers(0, 8 * len(content) - 1))
    content[bit // 8] ^= 1 << bit % 8
    put(disk, 0, content)
    put(disk, 1, record(99, sealed(99, 60)))
    places, recovered = found(disk, *wanted, 99)
    assert bool(recovered.damage) == (set(places) < {*wanted, 99})
