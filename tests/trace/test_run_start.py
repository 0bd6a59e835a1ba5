"""The first row of a run tells the settings that decide what the other rows look like."""

import pytest

import warrenmq
from warrenmq.settings import Settings
from warrenmq.trace.events import Profile, RunStart
from warrenmq.trace.reader import open_trace


@pytest.mark.parametrize("profile", Profile)
def test_a_run_starts_with_its_settings(tmp_path, profile):
    settings = Settings(
        profile=profile.name.lower(), durability="os", queue_index_segment_entry_count=1 << 14,
        classic_queue_index_v2_segment_entry_count=1 << 20, queue_index_embed_msgs_below=1 << 20,
    )  # fmt: skip
    with warrenmq.open(tmp_path / "data", trace=tmp_path / "trace", settings=settings):
        pass
    with open_trace(tmp_path / "trace") as trace:
        start = RunStart.of(trace.catalog.runs[0].start)
    assert {column.name: value for column, value in start.items()} == {
        "profile": profile, "boot": 1, "fsync": 0, "entries_v1": 1 << 14, "entries_v2": 1 << 20, "embed_below": 1 << 20,
        "write_buffer": settings.msg_store_write_buffer, "file_size_limit": settings.msg_store_file_size_limit,
    }  # fmt: skip
