"""Directories that DIR may name: a node's of any era, a vhost's, one queue's, one store's."""

import shutil

import pytest

import warrenmq
from tests.inspect.made_directory import Node, journal_publish, make
from tests.support import golden
from tests.support.directories import check, listed, say
from warrenmq.directory.layout import queue_folder

CASE = "c11-full-mnesia-a"
DEFAULT = "msg_stores/vhosts/628WB79CIFDYO9LJI6DKMI09L"
SECOND = "msg_stores/vhosts/8F31Z1BFWOH91O5Q3XE8BYJLO"


def shas(queue):
    return [row["sha256"] for row in queue["messages"]]


def test_a_vhosts_directory_is_read_alone(tmp_path):
    directory = golden.lay_out(CASE, tmp_path)
    status, found = check(directory / DEFAULT)
    assert status == 0
    assert {each["vhost"] for each in found["queues"]} == {"/"}
    for queue in golden.manifest(CASE)["queues"]:
        if queue["vhost"] == "/":
            assert listed(found, queue) == golden.as_listed(queue)
    assert {each["directory"] for each in found["stores"]} == {"msg_store_persistent", "msg_store_transient"}


def test_a_queues_directory_is_read_alone_with_the_store_beside_it(tmp_path):
    directory = golden.lay_out(CASE, tmp_path)
    for queue in golden.manifest(CASE)["queues"]:
        if len(queue["dirs"]) == 1 and queue["dirs"][0]["exists"]:
            status, found = check(directory / queue["dirs"][0]["dir"])
            assert status == 0
            assert listed(found, queue) == golden.as_listed(queue)
            assert [each["directory"] for each in found["queues"]] == ["."]
            assert found["stores"] == []


def test_a_queues_directory_without_a_store_beside_it_gives_back_what_is_in_it(tmp_path):
    directory = golden.lay_out(CASE, tmp_path / "node")
    [queue] = [each for each in golden.manifest(CASE)["queues"] if each["name"] == "gl40nf.two"]
    copy = shutil.copytree(directory / queue["dirs"][0]["dir"], tmp_path / "copied")
    status, found = check(copy)
    rows = golden.messages(queue)
    assert status == 1
    assert shas(found["queues"][0]) == [row["body_sha256"] for row in rows if row["where"] == "qs"]
    assert {row["reason"] for row in found["queues"][0]["not_recovered"]} == {"no message record"}


def test_a_stores_directory_is_read_alone(tmp_path):
    directory = golden.lay_out(CASE, tmp_path)
    path = f"{DEFAULT}/msg_store_persistent"
    status, found = check(directory / path)
    assert (status, found["queues"]) == (0, [])
    [store] = found["stores"]
    truth = golden.manifest(CASE)["stores"][path]
    assert (store["directory"], store["records"]) == (".", truth["records"])
    assert store["live"] == truth["bytes"]


def test_a_store_without_queues_around_it_is_all_garbage(tmp_path):
    directory = golden.lay_out(CASE, tmp_path / "node")
    copy = shutil.copytree(directory / DEFAULT / "msg_store_persistent", tmp_path / "anything")
    status, found = check(copy)
    assert status == 0
    assert found["stores"][0]["live"] == 0


def test_the_empty_folder_of_a_transient_queue_is_no_queue(tmp_path):
    """A kill leaves it, and a start removes it."""
    with warrenmq.open(tmp_path / "data") as broker:
        broker.declare_queue("jobs")
    (tmp_path / "data" / DEFAULT / "queues" / queue_folder("/", "mail", None)).mkdir(parents=True)
    status, found = check(tmp_path / "data")
    assert (status, [each["name"] for each in found["queues"]]) == (0, ["jobs"])


@pytest.mark.parametrize("below", ["msg_stores", "msg_stores/vhosts"])
def test_the_folders_between_node_and_vhost_are_fine_too(below, tmp_path):
    status, found = check(golden.lay_out(CASE, tmp_path) / below)
    assert status == 0
    assert {each["vhost"] for each in found["queues"]} == {"/", "vh.pt96pg"}


def test_a_node_of_3_6_has_queues_and_stores_at_the_top(tmp_path):
    """base36(md5(term)) names the folders, no .vhost, no .config (16384 entries a segment), no .queue_name."""
    from tests.inspect.made_directory import segment_publish

    made = [make(n, 5000 if n % 2 else 100) for n in range(6)]
    queue = tmp_path / "queues" / "EQPHTZTF4T591MHYF1FQ77D2L"
    queue.mkdir(parents=True)
    (tmp_path / "msg_store_persistent").mkdir()
    (tmp_path / "msg_store_persistent" / "0.rdq").write_bytes(b"".join(each.record for each in made[1::2]))
    pairs = [(n, each, n % 2 == 0) for n, each in enumerate(made)]
    (queue / "1.idx").write_bytes(
        b"".join(
            segment_publish(n, each, embedded=embedded, deliver=False) for n, each, embedded in pairs[:3]
        )
    )
    (queue / "journal.jif").write_bytes(
        b"".join(
            journal_publish(16384 + n, each, embedded=embedded, deliver=False)
            for n, each, embedded in pairs[3:]
        )
    )
    resource = b"h\x04d\x00\x08resourcem\x00\x00\x00\x01/d\x00\x05queuem\x00\x00\x00\x04test"
    (tmp_path / "rabbit_durable_queue.DCD").write_bytes(b"cXM ... " + resource)
    status, found = check(tmp_path)
    [mine] = found["queues"]
    assert (status, found["damaged"]) == (0, [])
    assert (mine["vhost"], mine["name"], mine["version"], mine["durable"]) == ("/", "test", 1, True)
    assert [(row["seq_id"], row["sha256"]) for row in mine["messages"]] == [
        (16384 + n, each.sha256) for n, each in enumerate(made)
    ]


@pytest.mark.parametrize("deliver", [False, True])
def test_delivery_marks_of_before_3_10_tell_what_is_redelivered(deliver, tmp_path, monkeypatch):
    """Up to 3.9 a clean stop saved no next_deliver_seq_id; the index has a mark for each message that was delivered."""
    from warrenmq.inspect import terms

    node = Node(tmp_path)
    data = b"".join(journal_publish(n, make(n), embedded=True, deliver=deliver and n < 2) for n in range(4))
    (node.queue / "journal.jif").write_bytes(data)
    (node.vhost / "recovery.dets").write_bytes(b"not looked at here")
    monkeypatch.setattr(
        terms, "read_recovery_terms", lambda _data: {node.queue.name: {"persistent_count": 4}}
    )
    status, found = check(tmp_path)
    assert status == 0
    assert [row["redelivered"] for row in found["queues"][0]["messages"]] == [deliver, deliver, False, False]


def test_a_queue_name_that_is_missing_is_found_in_the_nodes_tables(tmp_path):
    directory = golden.lay_out(CASE, tmp_path)
    names = {each["name"] for each in check(directory)[1]["queues"]}
    for path in directory.rglob(".queue_name"):
        path.unlink()
    _, found = check(directory)
    assert {each["name"] for each in found["queues"]} == names
    assert [each["priority"] for each in found["queues"] if each["name"] == "gl40nf.three"] == [2, 1, 0]


def test_a_folder_that_is_no_data_directory_is_refused_in_one_sentence(tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("hello")
    for path in (tmp_path, tmp_path / "missing", tmp_path / "notes.txt"):
        for verb in (["ls"], ["check"], ["stats"], ["peek"]):
            status, out = say(*verb, str(path), *(["jobs"] if verb == ["peek"] else []))
            error = capsys.readouterr().err
            assert (status, out) == (2, "")
            assert error.count("\n") == 1
            assert str(path) in error


def test_a_damaged_config_is_reported(tmp_path):
    directory = golden.lay_out("c09-torn-v1-a", tmp_path)
    [config] = directory.rglob(".config")
    config.write_bytes(b"\0" * 60)
    status, found = check(directory)
    assert status == 1
    assert [each["file"].rpartition("/")[2] for each in found["damaged"]] == [".config"]
    assert len(found["queues"][0]["messages"]) == 67
