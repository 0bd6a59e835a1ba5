"""Damage to what names and declares queues: no message of a durable queue is destroyed by an open, and the damage is
reported.

The directory is the broker's own, on a simulated disk: queues with arguments, with priorities, empty, deleted and declared
again, with small and large messages; stopped in order, killed, or killed while a queue was being deleted.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.damage import TIMES, Files, apply, damages, examples
from tests.support.directories import check, contents, write
from tests.support.own_directories import VHOST, files_of, folder_of, put
from tests.support.simulated import BOTH_PROFILES, SimulatedHost
from warrenmq.broker.stats import DamageStats
from warrenmq.directory.definition_frames import frames
from warrenmq.directory.definitions import Declared
from warrenmq.mend.repair import repair
from warrenmq.message.properties import Properties

LOG = f"{VHOST}/definitions.log"
ENDS = ("closed", "killed", "deleting")
DECLARED: dict[str, dict[str, Any]] = {
    "jobs": {"x-max-length": 1_000},
    "urgent": {"x-max-priority": 2},
    "again": {},
    "empty": {"x-message-ttl": 60_000},
}


class Made(NamedTuple):
    files: Files
    queues: dict[str, list[bytes]]


class Killed(BaseException):
    """The process ended in the middle of an operation."""


@cache
def directory(profile: str, end: str) -> Made:
    host = SimulatedHost(5, BOTH_PROFILES[profile], traced=False)
    queues: dict[str, list[bytes]] = {name: [] for name in DECLARED}
    broker = host.open()
    for name in ("again", "over"):
        broker.declare_queue(name).publish(b"of another life" * 20).result(100)
    for name in ("again", "over"):
        broker.delete_queue(name)
    for name, arguments in DECLARED.items():
        broker.bind(broker.declare_queue(name, arguments=arguments), "amq.fanout")
    broker.delete_queue("empty")
    broker.declare_queue("empty", arguments=DECLARED["empty"]).get()  # from here on its folder tells it, too
    for number in range(12):
        for name in ("jobs", "urgent", "again"):
            body = f"{name} {number} ".encode() + bytes([97 + number]) * (30, 700)[number % 2]
            queues[name].append(body)
            broker.publish("", name, body, properties=Properties(priority=number % 3)).result(100)
    doomed = broker.declare_queue("doomed")
    doomed.publish(b"d" * 700).result(100)
    if end == "deleting":
        folder = folder_of("doomed")

        def before(op: str, path: str) -> None:
            if op == "unlink" and path.startswith(folder):
                raise Killed

        host.disk.before_op = before
        with pytest.raises(BaseException):  # noqa: B017, PT011 - whatever a caller sees of a dying process
            broker.delete_queue("doomed")
    else:
        broker.delete_queue("doomed")
    host.sleep(1)
    if end == "closed":
        broker.close()
    host.crash(power_cut=False)
    files = files_of(host)
    host.close()
    return Made(files, queues)


class Opened(NamedTuple):
    queues: dict[str, list[bytes]]
    arguments: dict[str, dict[str, Any]]
    told: tuple[DamageStats, ...]
    files: Files


def opened(files: Files, profile: str) -> Opened:
    """The state after two opens, of which the second comes after a crash of the first."""
    with SimulatedHost(1, BOTH_PROFILES[profile], traced=False) as host:
        put(host, files)
        broker = host.open()
        told = broker.stats().damage
        host.crash(power_cut=False)
        broker = host.open()
        found: dict[str, list[bytes]] = {}
        for name in sorted(broker.inside.vhost.router.queues):
            deliveries = list(iter(broker.queue(name).get, None))
            for delivery in deliveries:
                delivery.nack()
            found[name] = [delivery.body for delivery in deliveries]
        arguments = {
            name: record.arguments for name, record in broker.inside.vhost.definitions.queues.items()
        }
        broker.close()
        return Opened(found, arguments, told, files_of(host))


def checked(files: Files, to: Path) -> tuple[int, dict[str, list[str]], list[dict[str, Any]]]:
    """Exit status of `check`, the messages of each queue, and what is damaged."""
    write(to, {path.removeprefix("/data/"): data for path, data in files.items()})
    status, said = check(to)
    queues: dict[str, list[str]] = {}
    for queue in said["queues"]:
        queues.setdefault(queue["name"], []).extend(row["sha256"] for row in queue["messages"])
    return status, queues, said["damaged"]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("profile", BOTH_PROFILES)
def test_without_damage_what_was_declared_is_there_and_nothing_is_reported(
    profile: str, end: str, tmp_path: Path
) -> None:
    made = directory(profile, end)
    found = opened(made.files, profile)
    assert found.queues.keys() == DECLARED.keys(), "a queue that was deleted does not come back"
    assert in_any_order(found.queues) == in_any_order(made.queues)
    assert found.told == ()
    assert not any(path.startswith(folder_of("doomed")) for path in found.files)
    assert checked(made.files, tmp_path / "data")[0::2] == (0, [])
    assert checked(found.files, tmp_path / "after")[0::2] == (0, [])


def in_any_order(queues: dict[str, list[bytes]]) -> dict[str, list[bytes]]:
    return {name: sorted(bodies) for name, bodies in queues.items()}


def every_damage_of(log: bytes) -> Iterator[bytes | None]:
    """The log gone, empty, zero; without the end from each frame on, without each frame, with a bit of each frame flipped."""
    yield from (None, b"", bytes(len(log)))
    for offset, length, _ in frames(log):
        end = offset + length
        yield from (
            log[:offset],
            log[: end - 3],
            log[:offset] + log[end:],
            log[:offset] + bytes(length) + log[end:],
        )
        for place in (offset + 1, offset + 6, offset + length // 2):
            yield log[:place] + bytes([log[place] ^ 4]) + log[place + 1 :]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("profile", BOTH_PROFILES)
def test_no_damage_of_the_log_costs_a_queue_or_a_message(profile: str, end: str, tmp_path: Path) -> None:
    made = directory(profile, end)
    first, *others = every_damage_of(made.files[LOG])
    for number, damaged in enumerate([first, *Random(f"{profile} {end}").sample(others, 10 * TIMES)]):
        files = {path: data for path, data in made.files.items() if path != LOG}
        if damaged is not None:
            files[LOG] = damaged
        declared = Declared()
        declared.replay(damaged or b"")
        found = opened(files, profile)
        assert DECLARED.keys() <= found.queues.keys() <= {*DECLARED, "doomed", "over"}
        assert found.arguments == {**DECLARED, **{name: {} for name in found.queues.keys() - DECLARED.keys()}}
        assert in_any_order({name: found.queues[name] for name in DECLARED}) == in_any_order(made.queues)
        status, messages, told = checked(files, tmp_path / str(number))
        if made.queues.keys() - {"empty"} - declared.queues.keys():
            assert found.told, "what was missing in the log is told"
            assert (status, bool(told)) == (1, True)
        assert counts(messages) == counts(found.queues)


def counts(queues: dict[str, list[Any]]) -> dict[str, int]:
    """Number of messages of each queue that has any."""
    return {name: len(messages) for name, messages in queues.items() if messages}


OTHER = (
    ".queue_name",
    ".definition",
    ".vhost",
    ".config",
    "rabbit_serial",
    "recovery.terms",
    "definitions.log",
)
"""Files that name, count or declare something."""


@examples(40)
@given(data=st.data(), profile=st.sampled_from(sorted(BOTH_PROFILES)), end=st.sampled_from(ENDS))
def test_queues_that_no_definition_names_are_kept_and_reported(
    scratch: Path, data: st.DataObject, profile: str, end: str
) -> None:
    made = directory(profile, end)
    naming = {path: content for path, content in made.files.items() if path.endswith(OTHER) and content}
    if data.draw(st.booleans()):
        lost = {path for path in naming if path.endswith((".queue_name", ".definition", "definitions.log"))}
        files = {path: content for path, content in made.files.items() if path not in lost}
    else:
        files = apply(made.files, data.draw(damages(naming, most=6)))
    found = opened(files, profile)
    shutil.rmtree(scratch / "data", ignore_errors=True)
    _, messages, _ = checked(files, scratch / "data")
    for name, bodies in made.queues.items():
        if name in found.queues:
            assert sorted(found.queues[name]) == sorted(bodies)
            assert len(messages.get(name, [])) >= len(bodies), (
                "files that name queues may have changed places"
            )
        else:
            assert all(any(body in content for content in found.files.values()) for body in bodies)
            assert found.told


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("definitions")


@pytest.mark.parametrize("profile", BOTH_PROFILES)
def test_repair_declares_what_an_open_would(profile: str, tmp_path: Path) -> None:
    made = directory(profile, "killed")
    offset, length, _ = next(frame for frame in frames(made.files[LOG]) if b"urgent" in (frame[2] or b""))
    for number, log in enumerate(
        (None, made.files[LOG][:offset], bytes(offset + length) + made.files[LOG][offset + length :])
    ):
        files = {path: data for path, data in made.files.items() if path != LOG} | (
            {} if log is None else {LOG: log}
        )
        _, before, _ = checked(files, tmp_path / str(number))
        assert repair(str(tmp_path / str(number)), dry_run=False).left == []
        status, said = check(tmp_path / str(number))
        assert (status, said["damaged"]) == (0, [])
        after = {
            path: data for path, data in contents(tmp_path / str(number)).items() if "backup" not in path
        }
        found = opened({f"/data/{path}": data for path, data in after.items()}, profile)
        assert found.told == ()
        assert found.arguments == DECLARED
        assert counts(before) == counts(found.queues)
