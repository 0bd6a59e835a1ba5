"""The working folder changes, a symbolic link is set anew, or the data directory is moved, while a broker
runs: nothing begins a second directory.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import warrenmq

PROFILES = pytest.mark.parametrize("profile", ["modern", "classic"])


def messages(path: Path) -> dict[str, int]:
    with warrenmq.open(path) as broker:
        assert not broker.stats().damage
        return {name: len(broker.queue(name)) for name in "ab"}


@PROFILES
def test_a_relative_path_means_what_it_meant_when_it_was_opened(
    tmp_path: Path, profile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(tmp_path)
    with warrenmq.open("data", settings={"profile": profile}, trace="trace") as broker:
        broker.declare_queue("a").publish(b"1").result()
        monkeypatch.chdir(elsewhere)
        broker.declare_queue("b").publish(b"2").result()
    assert os.listdir(elsewhere) == []
    assert messages(tmp_path / "data") == {"a": 1, "b": 1}


@PROFILES
def test_a_link_that_leads_elsewhere_now_moves_nothing(tmp_path: Path, profile: str) -> None:
    for name in ("release-1", "release-2"):
        (tmp_path / name).mkdir()
    current = tmp_path / "current"
    current.symlink_to("release-1")
    with warrenmq.open(current / "data", settings={"profile": profile}) as broker:
        broker.declare_queue("a").publish(b"1").result()
        current.unlink()
        current.symlink_to("release-2")
        broker.declare_queue("b").publish(b"2").result()
    assert os.listdir(tmp_path / "release-2") == []
    assert messages(tmp_path / "release-1" / "data") == {"a": 1, "b": 1}


@PROFILES
def test_a_directory_that_was_moved_is_not_begun_anew(tmp_path: Path, profile: str) -> None:
    with warrenmq.open(tmp_path / "data", settings={"profile": profile}) as broker:
        queue = broker.declare_queue("a")
        queue.publish(b"1").result()
        broker.declare_queue("b")
        (tmp_path / "data").rename(tmp_path / "moved")
        with pytest.raises(warrenmq.ResourceError, match="the data directory was moved or deleted"):
            broker.queue("b").publish(b"2").result()
    assert os.listdir(tmp_path) == ["moved"]
    assert messages(tmp_path / "moved") == {"a": 1, "b": 0}
