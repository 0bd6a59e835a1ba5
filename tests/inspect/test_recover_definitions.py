"""Definitions that `recover` brings beside messages: queues with arguments, exchanges, bindings, deliveries and times to
live.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import warrenmq
from tests.inspect.made_directory import Node, journal_publish, make
from tests.support import golden
from tests.support.golden import files, manifest
from tests.support.limits import LIMIT
from warrenmq.actors.vhost.messages import SetParameter
from warrenmq.erlang import definitions as mnesia
from warrenmq.mend.definitions import KHEPRI, NOWHERE
from warrenmq.mend.moving import milliseconds_left
from warrenmq.mend.recover import Report, recover
from warrenmq.message.plain_properties import dict_of_plain
from warrenmq.supervisors.broker_sup import VHOST_PROCESS

CASE = "c11-full-mnesia-a"
NOW_US = manifest(CASE)["ended_us"]


@pytest.fixture(scope="module")
def recovered(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Report]:
    where = tmp_path_factory.mktemp("definitions")
    node = golden.lay_out(CASE, where / "node")
    return where / "data", recover(str(node), str(where / "data"), NOW_US)


@pytest.fixture(params=["/", "vh.pt96pg"])
def broker(recovered: tuple[Path, Report], request: pytest.FixtureRequest) -> Iterator[warrenmq.Broker]:
    with warrenmq.open(recovered[0], vhost=request.param) as broker:
        yield broker


def declared(vhost: str) -> mnesia.Definitions:
    found = mnesia.read({name: files(CASE)[name] for name in mnesia.FILES if name in files(CASE)})
    return mnesia.Definitions(
        [vhost],
        *(
            [each for each in some if each.vhost == vhost]
            for some in (found.queues, found.exchanges, found.bindings, found.parameters)
        ),
        0,
    )


def told(notes: list[str], kind: str, name: str) -> bool:
    return any(note.startswith(f"{kind} {name!r} was ") for note in notes)


def test_queues_come_with_their_arguments_or_a_note_says_why_not(
    broker: warrenmq.Broker, recovered: tuple[Path, Report]
) -> None:
    for queue in declared(broker.inside.vhost.name).queues:
        record = broker.inside.vhost.definitions.queues[queue.name]
        assert record.arguments == dict_of_plain(queue.arguments) or (
            record.arguments == {} and told(recovered[1].notes, "queue", queue.name)
        )


def test_policies_come_along(broker: warrenmq.Broker) -> None:
    wanted = [each for each in manifest(CASE)["policies"] if each[0] == broker.inside.vhost.name]
    assert [
        [
            broker.inside.vhost.name,
            each.name,
            each.pattern,
            each.apply_to,
            dict(each.definition),
            str(each.priority),
        ]
        for each in broker.policies()
    ] == [[*each[:4], json.loads(each[4]), each[5]] for each in wanted]


def test_policies_limits_and_users_of_a_server_come_along_once_the_messages_are_there(tmp_path: Path) -> None:
    with warrenmq.open(tmp_path / "old") as broker:
        broker.declare_queue("q").publish_many([b"1", b"2"]).result(LIMIT)
        broker.inside.client.calls.call_named(
            VHOST_PROCESS, SetParameter("vhost-limits", "limits", {"max-queues": 9})
        )
        broker.set_policy("bound", "^q", {"max-length": 2}, apply_to="queues", operator=True)
        policies = broker.policies()
    users = tmp_path / "old" / "users.json"
    users.write_text("{}")
    report = recover(str(tmp_path / "old"), str(tmp_path / "new"), NOW_US)
    assert (report.fine, report.notes) == (True, [])
    copied = tmp_path / "new" / "users.json"
    assert (copied.read_text(), copied.stat().st_mode & 0o777) == ("{}", 0o600)
    with warrenmq.open(tmp_path / "new") as broker:
        assert broker.policies() == policies
        assert broker.inside.vhost.definitions.parameters["vhost-limits", "limits"] == {"max-queues": 9}
        assert [each.body for each in broker.queue("q").peek(3)] == [b"1", b"2"]
    users.write_text('{"users": []}')
    (note,) = recover(str(tmp_path / "old"), str(tmp_path / "new"), NOW_US).notes
    assert "stay behind, as" in note
    assert copied.read_text() == "{}"


def test_exchanges_of_every_type_come_along(broker: warrenmq.Broker, recovered: tuple[Path, Report]) -> None:
    wanted = [
        each
        for each in declared(broker.inside.vhost.name).exchanges
        if each.name and not each.name.startswith("amq.")
    ]
    assert {each.type for each in wanted} == {"direct", "fanout", "topic", "headers"}
    assert broker.inside.vhost.definitions.exchanges.keys() == {each.name for each in wanted}
    for each in wanted:
        record = broker.inside.vhost.definitions.exchanges[each.name]
        assert (record.type, record.internal, record.auto_delete) == (
            each.type,
            each.internal,
            each.auto_delete,
        )
        assert record.arguments == dict_of_plain(each.arguments) or told(
            recovered[1].notes, "exchange", each.name
        )


def test_bindings_come_along_to_queues_and_exchanges(
    broker: warrenmq.Broker, recovered: tuple[Path, Report]
) -> None:
    there = [
        (each.source, each.destination, each.routing_key, each.arguments)
        for each in broker.inside.vhost.definitions.bindings
    ]
    wanted = [each for each in declared(broker.inside.vhost.name).bindings if each.source]
    assert {each.destination_kind for each in wanted} == {"queue", "exchange"}
    for each in wanted:
        mine = each.source, each.destination, each.routing_key, dict_of_plain(each.arguments)
        refused = (
            f"the binding of {each.destination_kind} {each.destination!r} to {each.source!r} was refused"
        )
        assert mine in there or any(note.startswith(refused) for note in recovered[1].notes)


def test_one_queues_folder_brings_what_that_queue_was_declared_with(tmp_path: Path) -> None:
    node = golden.lay_out(CASE, tmp_path / "node")
    queue = next(each for each in manifest(CASE)["queues"] if each["name"].endswith(".one"))
    recover(str(node / queue["dirs"][0]["dir"]), str(tmp_path / "data"), NOW_US)
    with warrenmq.open(tmp_path / "data") as broker:
        assert broker.inside.vhost.definitions.queues.keys() == {queue["name"]}
        assert broker.inside.vhost.definitions.exchanges == {}


@pytest.mark.parametrize(("folder", "note"), [("coordination", KHEPRI), ("quorum", NOWHERE)])
def test_without_definitions_a_note_says_so(tmp_path: Path, folder: str, note: str) -> None:
    node = Node(tmp_path / "node")
    node.in_journal([make(1)], embedded=True)
    (node.root / folder).mkdir()
    report = recover(str(node.root), str(tmp_path / "data"), 0)
    assert (report.notes, report.queues[0].moved, report.fine) == ([note], 1, True)


def redelivered(data: Path) -> list[bool]:
    with warrenmq.open(data) as broker:
        return [each.redelivered for each in iter(lambda: broker.queue("jobs").get(no_ack=True), None)]


def worked_on(path: Path) -> None:
    """Two of five messages have been delivered, and come back."""
    with warrenmq.open(path) as broker:
        jobs = broker.declare_queue("jobs")
        for n in range(5):
            jobs.publish(b"%d" % n).result()
        for each in [jobs.get(timeout=LIMIT), jobs.get(timeout=LIMIT)]:
            assert each is not None
            each.nack()


def test_messages_delivered_before_come_as_redelivered(tmp_path: Path) -> None:
    worked_on(tmp_path / "source")
    report = recover(str(tmp_path / "source"), str(tmp_path / "data"), 0)
    [queue] = report.queues
    assert (queue.redelivered, queue.unmarked, queue.marked_too) == (2, 0, 0)
    assert redelivered(tmp_path / "data") == [True, True, False, False, False]


def test_after_a_crash_all_come_as_redelivered(tmp_path: Path) -> None:
    node = Node(tmp_path / "node")
    node.in_journal([make(n) for n in range(3)], embedded=True)
    [queue] = recover(str(node.root), str(tmp_path / "data"), 0).queues
    assert (queue.moved, queue.redelivered, queue.unmarked) == (3, 3, 0)
    with warrenmq.open(tmp_path / "data") as broker:
        assert [each.redelivered for each in iter(lambda: broker.queue("orders").get(no_ack=True), None)] == [
            True
        ] * 3


def test_in_a_queue_that_has_messages_nothing_is_marked_and_a_note_says_so(tmp_path: Path) -> None:
    worked_on(tmp_path / "source")
    with warrenmq.open(tmp_path / "data") as broker:
        broker.declare_queue("jobs").publish(b"mine").result()
    [queue] = recover(str(tmp_path / "source"), str(tmp_path / "data"), 0).queues
    assert (queue.moved, queue.redelivered, queue.unmarked) == (5, 2, 2)
    assert redelivered(tmp_path / "data") == [False] * 6


def test_a_message_that_was_not_delivered_counts_as_such_before_one_that_was(tmp_path: Path) -> None:
    """Two folders of one queue, as those of its priorities are."""
    node = tmp_path / "node"
    worked_on(node)
    [folder] = node.glob("msg_stores/vhosts/*/queues/*")
    shutil.copytree(folder, folder.with_name(f"{folder.name}2"))
    [queue] = recover(str(node), str(tmp_path / "data"), 0).queues
    assert (queue.moved, queue.redelivered, queue.marked_too) == (10, 4, 3)
    assert redelivered(tmp_path / "data") == [True] * 7 + [False] * 3


@pytest.mark.parametrize(
    ("expiry", "now_us", "left"), [(0, 5_000_000, None), (5_002_000, 5_000_000, 2), (5_000_001, 5_000_000, 1)]
)
def test_how_long_a_message_may_still_wait(expiry: int, now_us: int, left: int | None) -> None:
    assert milliseconds_left(expiry, now_us) == left


def test_expired_messages_stay_and_others_are_counted(tmp_path: Path) -> None:
    node = Node(tmp_path / "node")
    soon, made = 1 << 51, [make(n) for n in range(3)]
    data = b"".join(
        journal_publish(n, each, embedded=True)[:24]
        + expiry.to_bytes(8, "big")
        + journal_publish(n, each, embedded=True)[32:]
        for n, (each, expiry) in enumerate(zip(made, (0, soon, soon + 5_000_000), strict=True))
    )
    (node.queue / "journal.jif").write_bytes(data)
    [queue] = recover(str(node.root), str(tmp_path / "data"), soon + 1).queues
    assert (queue.moved, queue.expiring, dict(queue.not_recovered)) == (2, 1, {"expired": 1})
