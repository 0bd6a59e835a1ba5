"""Changes since a clean stop are found: `check` lists each file that was changed meanwhile, and so does an open.

An open believes nothing that a stop left about files which have changed: it gives back all that is whole, in order.
"""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.damage import Damage, Files, apply, examples, missing, undamaged
from tests.support.directories import check, write
from tests.support.own_directories import QUEUES, Directory, directory, files_of, put, sha256
from tests.support.simulated import EVERY_KIND, SimulatedHost
from warrenmq.broker.stats import DamageStats
from warrenmq.mend.repair import repair
from warrenmq.settings import Settings

kinds = st.sampled_from(EVERY_KIND)
OF_MESSAGES = (".rdq", ".jif", ".idx", ".qi", ".qs")


@cache
def closed(made_with: Settings) -> Directory:
    return directory(made_with, "closed")


def opened(files: Files, settings: Settings) -> tuple[dict[str, list[str]], tuple[DamageStats, ...], Files]:
    """Open the directory; return the queues' messages, the reported damage, and the files afterwards."""
    with SimulatedHost(1, settings, traced=False) as host:
        put(host, files)
        broker = host.open()
        found = {name: [sha256(each.body) for each in iter(broker.queue(name).get, None)] for name in QUEUES}
        return found, broker.stats().damage, files_of(host)


def checked(files: Files, folder: Path) -> tuple[int, dict[str, list[str]], set[str]]:
    shutil.rmtree(folder, ignore_errors=True)
    write(folder, {path.removeprefix("/data/"): data for path, data in files.items()})
    status, said = check(folder)
    queues = {queue["name"]: [row["sha256"] for row in queue["messages"]] for queue in said["queues"]}
    return status, queues, {each["file"] for each in said["damaged"]}


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stopped") / "data"


@examples(20)
@given(data=st.data(), made_with=kinds, settings=kinds)
def test_a_file_that_changed_its_size_since_a_clean_stop_is_reported_by_check_and_by_an_open(
    scratch: Path, data: st.DataObject, made_with: Settings, settings: Settings
) -> None:
    made = closed(made_with)
    path = data.draw(
        st.sampled_from(
            [path for path in made.files if path.endswith(OF_MESSAGES) and "transient" not in path]
        )
    )
    size = len(made.files[path])
    damage = data.draw(
        st.one_of(
            st.just(Damage("delete", path)),
            st.integers(0, max(0, size - 1)).map(lambda at: Damage("cut", path, at)),
            st.integers(1, 40).map(lambda more: Damage("longer", path, size=more)),
            st.integers(0, max(0, size - 1)).map(lambda at: Damage("lack", path, at, 9)),
        )
    )
    files = apply(made.files, [damage])
    if files == made.files:
        return
    status, foretold, damaged = checked(files, scratch)
    found, told, _ = opened(files, settings)
    file = path.removeprefix("/data/")
    assert (status, file in damaged) == (1, True)
    assert file in {each.file for each in told}
    for name in QUEUES:
        whole = [message.sha256 for message in undamaged(made.queues[name], made.files, files)]
        assert not missing(whole, found[name])
        assert not missing(whole, foretold[name])
    would = repair(str(scratch), dry_run=True)
    done = repair(str(scratch), dry_run=False)
    assert would.changes == done.changes != []
    assert repair(str(scratch), dry_run=True).changes == []
    assert not [each for each in done.left if "was stopped in order" in each.reason]


@examples(25)
@given(data=st.data(), made_with=kinds.filter(lambda settings: settings.queue_version == 2))
def test_any_flipped_bit_of_an_index_is_reported_after_a_clean_stop(
    scratch: Path, data: st.DataObject, made_with: Settings
) -> None:
    made = closed(made_with)
    path = data.draw(st.sampled_from([path for path in made.files if path.endswith(".qi")]))
    at = data.draw(st.integers(0, len(made.files[path]) - 1))
    files = apply(made.files, [Damage("flip", path, at, other=1 << data.draw(st.integers(0, 7)))])
    status, _, damaged = checked(files, scratch)
    assert (status, path.removeprefix("/data/") in damaged) == (1, True)
    found, told, after = opened(files, made_with)
    assert path.removeprefix("/data/") in {each.file for each in told}
    for name in QUEUES:
        lost = {message.sha256 for message in made.queues[name].messages} - {*found[name]}
        assert len(lost) <= 1
        for message in made.queues[name].messages:
            if message.sha256 in lost:
                [body] = (
                    files[file][start + 24 : end - 1]
                    for file, start, end in message.places
                    if file.endswith((".rdq", ".qs"))
                )
                assert any(body in data for data in after.values()), (
                    "a body whose reference was damaged is still there"
                )


@pytest.mark.parametrize("stop", ["closed", "killed"])
def test_a_message_without_a_record_is_damage_of_the_index_that_names_it(stop: str, tmp_path: Path) -> None:
    for made_with in EVERY_KIND:
        made = directory(made_with, stop)
        files = {path: data for path, data in made.files.items() if not path.endswith(".rdq")}
        status, queues, damaged = checked(files, tmp_path / "data")
        assert status == 1
        indexes = {place.path.removeprefix("/data/") for queue in made.queues.values() for message in queue.messages
                   for place in message.places if any(each.path.endswith(".rdq") for each in message.places)
                   and not place.path.endswith(".rdq")}  # fmt: skip
        assert indexes <= damaged
        assert all(len(queues[name]) < len(made.queues[name].messages) for name in QUEUES)


@pytest.mark.parametrize("made_with", EVERY_KIND[::3])
def test_a_cleanly_stopped_directory_is_not_damaged(made_with: Settings, tmp_path: Path) -> None:
    made = closed(made_with)
    assert checked(made.files, tmp_path / "data")[::2] == (0, set())
    assert opened(made.files, made_with)[1] == ()
    assert repair(str(tmp_path / "data"), dry_run=True).changes == []
