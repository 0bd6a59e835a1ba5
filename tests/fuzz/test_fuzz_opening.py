"""Directories of ours with any damage, opened by the real broker in simulation: it opens, gives back what is whole, and works.

How long this runs: tests/support/damage.py.
"""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import warrenmq
from tests.support.damage import (
    Damage,
    Files,
    Message,
    Place,
    apply,
    damages,
    examples,
    missing,
    no_hanging,
    undamaged,
    untouched,
)
from tests.support.own_directories import QUEUES, STOPS, VHOST, Directory, directory, files_of, put, sha256
from tests.support.simulated import EVERY_KIND, SMALL_CLASSIC, SimulatedHost
from warrenmq.directory.layout import vhost_folder
from warrenmq.settings import Settings

ENOUGH = 20_000
"""Disk operations after which opening a few dozen small files has to be done."""
QUARANTINE = f"/data/quarantine/{vhost_folder('/')}"
DEFINITIONS = f"{VHOST}/definitions.log"
kinds = st.sampled_from(EVERY_KIND)
without_log = st.sampled_from([kind for kind in EVERY_KIND if not kind.commit_log])
"""Whose files are all there is: a log would mend a file that was damaged after a crash."""


def given_back(host: SimulatedHost, operations: int) -> dict[str, list[bytes]]:
    """The bodies in each queue that is still declared, left where they are; opening and closing takes no more disk operations."""
    found = {}
    with host.at_most(operations):
        broker = host.open()
        for name in QUEUES:
            try:
                queue = broker.queue(name)
            except warrenmq.NotFound:
                continue
            deliveries = list(iter(queue.get, None))
            for delivery in deliveries:
                delivery.nack()
            found[name] = [delivery.body for delivery in deliveries]
        broker.close()
    return found


def given_back_twice(host: SimulatedHost, operations: int) -> dict[str, list[bytes]]:
    """The second opening finds what the first one did; and the broker works."""
    first = given_back(host, operations)
    host.crash(power_cut=False)
    assert given_back(host, operations) == first
    host.crash(power_cut=False)
    broker = host.open()
    for name in QUEUES:
        queue = broker.declare_queue(name)
        queue.publish(b"new").result()
        queue.publish(b"N" * 500).result()
        bodies = [(delivery.body, delivery.ack()) for delivery in iter(queue.get, None)]
        assert [body for body, _ in bodies[-2:]] == [b"new", b"N" * 500]
        assert queue.get() is None
    broker.close()
    return first


def found_in(files: Files, settings: Settings) -> dict[str, list[str]]:
    """The messages that each queue which is still declared gives back."""
    with SimulatedHost(seed=1, settings=settings, traced=False) as host:
        put(host, files)
        found = given_back_twice(host, ENOUGH)
    return {name: [sha256(body) for body in bodies] for name, bodies in found.items()}


def check(made: Directory, damaged: list[Damage], settings: Settings) -> None:
    files = apply(made.files, damaged)
    with no_hanging():
        found = found_in(files, settings)
    if untouched(made.files, files, Place(DEFINITIONS, 0, len(made.files[DEFINITIONS]))):
        assert found.keys() == set(QUEUES)
    published = {sha for bodies in made.bodies.values() for sha in bodies}
    for name, shas in found.items():
        assert published.issuperset(shas), "a message was delivered that nobody had published"
        whole = [message.sha256 for message in undamaged(made.queues[name], made.files, files)]
        assert missing(whole, shas) == [], f"not all of {len(whole)} whole messages of {name} are given back"


@pytest.mark.parametrize("stop", STOPS)
def test_the_directories_are_healthy_to_begin_with(stop: str) -> None:
    for made_with in EVERY_KIND:
        made = directory(made_with, stop)
        for settings in (made_with, EVERY_KIND[-1 - EVERY_KIND.index(made_with)]):
            whole = {
                name: [message.sha256 for message in queue.messages] for name, queue in made.queues.items()
            }
            assert all(len(messages) > 10 for messages in whole.values())
            assert found_in(made.files, settings) == whole


@pytest.mark.parametrize("stop", STOPS)
@examples(30)
@given(data=st.data(), made_with=kinds, settings=kinds)
def test_whatever_happened_to_its_files_a_directory_gives_back_what_is_whole(
    stop: str, data: st.DataObject, made_with: Settings, settings: Settings
) -> None:
    made = directory(made_with, stop)
    check(made, data.draw(damages(made.files, made.edges)), settings)


@pytest.mark.parametrize("stop", STOPS)
@examples(20)
@given(data=st.data(), made_with=kinds, settings=kinds)
def test_one_damaged_place_costs_what_it_hit(
    stop: str, data: st.DataObject, made_with: Settings, settings: Settings
) -> None:
    made = directory(made_with, stop)
    indexes = {path: bytes_ for path, bytes_ in made.files.items() if path in made.edges}
    kinds = ("cut", "flip", "zero", "noise")
    check(made, data.draw(damages(indexes, made.edges, most=1, kinds=kinds)), settings)


@pytest.mark.parametrize("stop", ["closed", "killed"])
def test_a_directory_opens_without_any_one_of_its_files(stop: str) -> None:
    files = directory(SMALL_CLASSIC, stop).files
    for path in files:
        found_in({each: data for each, data in files.items() if each != path}, SMALL_CLASSIC)


def test_a_record_of_nonsense_is_put_into_quarantine() -> None:
    made = directory(SMALL_CLASSIC, "killed")
    for message in made.queues["a"].messages:
        for path, start, end in message.places:
            nonsense = b"\xff" * (end - start)
            data = made.files[path]
            host = SimulatedHost(seed=1, settings=SMALL_CLASSIC, traced=False)
            put(host, {**made.files, path: data[:start] + nonsense + data[end:]})
            given_back(host, ENOUGH)
            kept = files_of(host).items()
            host.close()
            assert any(nonsense in data for path, data in kept if path.startswith(QUARANTINE))


STORED = re.compile(rb"\x95\xd7\x02", re.DOTALL)


def stored_in(files: Files, message: Message) -> list[Place]:
    """The place of the message itself, with its checksum, without the record around it."""
    return [
        Place(path, start + found.start(), end - 1)
        for path, start, end in message.places
        if (found := STORED.search(files[path][start:end])) is not None
    ]


@pytest.mark.parametrize("stop", ["closed", "killed"])
@examples(30)
@given(data=st.data(), made_with=without_log, settings=kinds)
def test_a_flipped_bit_in_a_stored_message_costs_this_message_and_is_reported(
    stop: str, data: st.DataObject, made_with: Settings, settings: Settings
) -> None:
    """Exchange, routing keys, properties, body, checksum: whatever it hits, nothing altered is delivered."""
    made = directory(made_with, stop)
    name = data.draw(st.sampled_from(QUEUES))
    message = data.draw(st.sampled_from(made.queues[name].messages))
    path, start, end = data.draw(st.sampled_from(stored_in(made.files, message)))
    hit = Damage(
        "flip", path, data.draw(st.integers(start, end - 1)), other=1 << data.draw(st.integers(0, 7))
    )
    damaged = apply(made.files, [hit])
    with SimulatedHost(seed=1, settings=settings, traced=True) as host:
        put(host, damaged)
        found = {
            queue: [sha256(body) for body in bodies] for queue, bodies in given_back(host, ENOUGH).items()
        }
        assert host.disk.listdir(QUARANTINE)
        host.check_trace()
    for queue, had in made.queues.items():
        lost = {each.sha256 for each in had.messages} - set(found[queue])
        # an acked one may come back with the marks behind it
        assert set(found[queue]) <= set(made.bodies[queue])
        assert lost <= {message.sha256}
    assert message.sha256 not in found[name] or len(stored_in(made.files, message)) > 1
