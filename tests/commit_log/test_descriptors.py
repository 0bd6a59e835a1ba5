"""The commit log while the process has no descriptor left: it opens files only to sync them, and those can wait."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest

from tests.commit_log.test_log import ROOT, begin, new_disk, new_file
from warrenmq.commit_log import disk as logged_disk
from warrenmq.commit_log.disk import replay


@pytest.mark.parametrize("seed", range(50))
def test_a_shortage_of_descriptors_leaves_the_log_as_it_was(monkeypatch, seed):
    """As soon as there are descriptors everything is made durable, whatever was to be opened meanwhile."""
    monkeypatch.setattr(logged_disk, "FILE_SIZE", 8192)
    rng = Random(seed)
    raw = new_disk(seed)
    disk = begin(raw)
    files = [new_file(disk, f"{number}.qs") for number in range(6)]
    written = [b""] * len(files)
    for _ in range(200):
        raw.no_descriptors = rng.random() < 0.5
        which = rng.randrange(len(files))
        data = rng.randbytes(rng.randrange(1, 700))
        files[which].append(data)
        written[which] += data
        if raw.no_descriptors:
            with suppress(OSError):
                files[which].datasync()
        else:
            files[which].datasync()
    raw.no_descriptors = False
    for file in files:
        file.datasync()
    raw.power_cut()
    assert not replay(raw, ROOT).damage
    assert [raw.read(f"{ROOT}/Q/{number}.qs") for number in range(6)] == written
