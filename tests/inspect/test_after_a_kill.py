"""Directories of killed processes: `check` finds nothing wrong with them, and agrees with the next start."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.inspect.test_damage_after_a_stop import checked
from tests.inspect.walked import Bytes
from tests.support.own_directories import files_of, sha256
from tests.support.simulated import EVERY_KIND, SimulatedHost
from warrenmq.mend.repair import repair
from warrenmq.message_store.scan import whole_records

SIZES = (5_000, 300, 5_000, 5_000)
"""In the store, and beside the index or in it."""


@pytest.mark.parametrize("made_with", EVERY_KIND)
def test_a_directory_of_a_process_that_was_killed_while_it_published_has_no_damage(
    made_with, tmp_path: Path
) -> None:
    missed = 0
    for seed in range(10):
        with SimulatedHost(seed, made_with, traced=False) as host:
            queue = host.open().declare_queue("q")
            queue.publish_many([bytes(size) for size in SIZES]).result()
            with host.crash_at(1 + seed, power_cut=False) as outage:
                queue.publish_many([bytes(size) for size in SIZES * 3]).result()
            if not outage.came:
                break
            status, queues, damaged = checked(files_of(host), tmp_path / "data")
            assert (status, damaged) == (0, set())
            assert repair(str(tmp_path / "data"), dry_run=True).changes == []
            broker = host.open()
            assert broker.stats().damage == ()
            assert [sha256(each.body) for each in iter(broker.queue("q").get, None)] == queues["q"]
            missed += len(queues["q"]) < len(SIZES) * 4
    assert missed


@pytest.mark.parametrize("made_with", [kind for kind in EVERY_KIND if not kind.commit_log])
def test_a_hole_of_a_compaction_is_no_reason_to_write_a_file_anew(made_with, tmp_path: Path) -> None:
    """`repair` wrote each such file of a killed process anew, as RabbitMQ up to 3.12 would not read on behind a hole."""
    with SimulatedHost(1, made_with, traced=False) as host:
        queue = host.open().declare_queue("q")
        queue.publish_many([bytes([number]) * 300 for number in range(1, 9)]).result()
        _, second = queue.get(), queue.get()
        assert second is not None
        second.ack()
        host.sleep(5.0)
        with host.crash_at(1, power_cut=False):
            queue.publish(bytes(300)).result()
        files = files_of(host)
    for path, data in files.items():
        for _, offset, total in whole_records(Bytes(data), ()) if path.endswith(".rdq") else ():
            if second.body in data[offset : offset + total]:
                files[path] = data[:offset] + bytes(total) + data[offset + total :]
    assert checked(files, tmp_path / "data")[::2] == (0, set())
    assert repair(str(tmp_path / "data"), dry_run=True).changes == []
