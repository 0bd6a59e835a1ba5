from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from typing import TYPE_CHECKING, Any

import pytest

from warrenmq.errors import SettingsError
from warrenmq.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path


def load(file: Path | None = None, environ: dict[str, str] | None = None, **keywords: Any) -> Settings:
    return Settings.load(file=file, environ=environ or {}, **keywords)


def conf(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "rabbitmq.conf"
    path.write_text(text)
    return path


def test_the_defaults_are_rabbitmqs() -> None:
    assert {each.name: getattr(load(), each.name) for each in fields(Settings)} == {
        "profile": "modern",
        "queue_version": 2,
        "msg_store_gc": "compact",
        "queue_paging": "read_ahead",
        "durability": "fsync",
        "commit_log": True,
        "scheduler": "pool",
        "msg_store_file_size_limit": 16_777_216,
        "msg_store_write_buffer": 1_048_576,
        "msg_store_sync_interval": 25,
        "file_handles_high_watermark": 64,
        "queue_sync_interval": 200,
        "queue_sleep_after": 60_000,
        "msg_store_credit_disc_bound": (4_000, 800),
        "msg_store_io_batch_size": 4_096,
        "msg_store_shutdown_timeout": 600_000,
        "classic_queue_shutdown_timeout": 600_000,
        "queue_index_embed_msgs_below": 4_096,
        "queue_index_max_journal_entries": 32_768,
        "queue_index_segment_entry_count": 2_048,
        "classic_queue_index_v2_segment_entry_count": 4_096,
        "classic_queue_store_v2_max_cache_size": 512_000,
        "classic_queue_store_v2_check_crc32": True,
        "credit_flow_default_credit": (400, 200),
        "vhost_restart_intensity": (2, 300),
        "vm_memory_high_watermark": 0.4,
        "vm_memory_high_watermark_paging_ratio": 0.5,
        "total_memory_available_override_value": 0,
        "memory_monitor_interval": 2_500,
        "queue_ram_bytes": 33_554_432,
        "disk_free_limit": 50_000_000,
        "frame_max": 131_072,
        "channel_max": 2_047,
        "heartbeat": 60,
        "handshake_timeout": 10_000,
        "max_message_size": 134_217_728,
        "consumer_timeout": 1_800_000,
        "channel_tick_interval": 60_000,
        "loopback_users": "guest",
        "quorum_as_classic": False,
        "server_product": "RabbitMQ",
    }


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        load().durability = "os"  # type: ignore[misc]


def test_keywords_win_over_variables_and_variables_over_the_file(tmp_path: Path) -> None:
    file = conf(tmp_path, "msg_store_sync_interval = 1\nmsg_store_io_batch_size = 1\ndurability = os\n")
    environ = {"WARRENMQ_MSG_STORE_SYNC_INTERVAL": "2", "WARRENMQ_MSG_STORE_IO_BATCH_SIZE": "2", "HOME": "/"}
    settings = load(file, environ, msg_store_sync_interval=3)
    assert (settings.msg_store_sync_interval, settings.msg_store_io_batch_size, settings.durability) == (
        3,
        2,
        "os",
    )


def test_the_process_environment_is_used_when_none_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARRENMQ_DURABILITY", "os")
    assert Settings.load().durability == "os"


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("queue_index_embed_msgs_below = 0", "queue_index_embed_msgs_below", 0),
        ("queue_index_embed_msgs_below=4kb", "queue_index_embed_msgs_below", 4_000),
        ("queue_index_embed_msgs_below = 4KiB", "queue_index_embed_msgs_below", 4_096),
        ("msg_store_file_size_limit = 64 k", "msg_store_file_size_limit", 65_536),
        ("msg_store_file_size_limit = 16MB", "msg_store_file_size_limit", 16_000_000),
        ("credit_flow_default_credit = 20, 10", "credit_flow_default_credit", (20, 10)),
        ("credit_flow_default_credit = {20,10}", "credit_flow_default_credit", (20, 10)),
        ("durability = 'os'", "durability", "os"),
        ("durability = os   # no fsync", "durability", "os"),
        ("vm_memory_high_watermark.relative = 0.6", "vm_memory_high_watermark", 0.6),
        ("vm_memory_high_watermark.absolute = 2GB", "vm_memory_high_watermark", 2_000_000_000),
        ("vm_memory_high_watermark.absolute = '1GiB'", "vm_memory_high_watermark", 1 << 30),
        ("vm_memory_high_watermark = {absolute, 2GB}", "vm_memory_high_watermark", 2_000_000_000),
        ("vm_memory_high_watermark = 0.25", "vm_memory_high_watermark", 0.25),
        ("vm_memory_high_watermark = 1", "vm_memory_high_watermark", 1.0),
        ("vm_memory_high_watermark_paging_ratio = 0.75", "vm_memory_high_watermark_paging_ratio", 0.75),
        (
            "total_memory_available_override_value = 8GB",
            "total_memory_available_override_value",
            8_000_000_000,
        ),
        ("disk_free_limit.absolute = 50000", "disk_free_limit", 50_000),
        ("disk_free_limit.relative = 2", "disk_free_limit", 2.0),
        ("disk_free_limit = {mem_relative, 1.5}", "disk_free_limit", 1.5),
        ("disk_free_limit = 1GB", "disk_free_limit", 1_000_000_000),
        ("## comment\n\n   # another\n  durability   =   os  ", "durability", "os"),
    ],
)
def test_a_file_in_rabbitmqs_syntax_is_understood(tmp_path: Path, text: str, key: str, value: object) -> None:
    assert getattr(load(conf(tmp_path, text)), key) == value


@pytest.mark.parametrize(
    ("keywords", "sentence"),
    [
        ({"msg_store_sync_intervall": 1},
         "msg_store_sync_intervall is not a setting; did you mean msg_store_sync_interval?"),
        ({"xyzzy": 1}, "xyzzy is not a setting."),
        ({"msg_store_sync_interval": 0},
         "msg_store_sync_interval = 0 must be a whole number from 1 to 60000."),
        ({"msg_store_sync_interval": "25"},
         "msg_store_sync_interval = '25' must be a whole number from 1 to 60000."),
        ({"msg_store_sync_interval": True},
         "msg_store_sync_interval = True must be a whole number from 1 to 60000."),
        ({"queue_index_segment_entry_count": 16_385},
         "queue_index_segment_entry_count = 16385 must be a whole number from 1 to 16384."),
        ({"credit_flow_default_credit": (100, 200)}, "credit_flow_default_credit = (100, 200) must be two positive "
         "whole numbers, the second not larger than the first."),
        ({"credit_flow_default_credit": 400}, "credit_flow_default_credit = 400 must be two positive whole numbers, "
         "the second not larger than the first."),
        ({"vhost_restart_intensity": (0, 1)}, "vhost_restart_intensity = (0, 1) must be two positive whole numbers."),
        ({"durability": "fdatasync"}, "durability = 'fdatasync' must be fsync or os."),
        ({"profile": "future"}, "profile = 'future' must be classic or modern."),
        ({"queue_version": 3}, "queue_version = 3 must be 1 or 2."),
        ({"msg_store_gc": "none"}, "msg_store_gc = 'none' must be combine or compact."),
        ({"vm_memory_high_watermark": 1.1}, "vm_memory_high_watermark = 1.1 must be a share of the memory from 0.0 to "
         "1.0, or bytes as 2GB or {absolute, 2GB}."),
        ({"vm_memory_high_watermark": ("absolute", 0.4)}, "vm_memory_high_watermark = ('absolute', 0.4) must be a "
         "share of the memory from 0.0 to 1.0, or bytes as 2GB or {absolute, 2GB}."),
        ({"disk_free_limit": "a lot"}, "disk_free_limit = 'a lot' must be a share of the memory from 0.0 to 1000.0, "
         "or bytes as 2GB or {absolute, 2GB}."),
        ({"disk_free_limit": -1}, "disk_free_limit = -1 must be a share of the memory from 0.0 to 1000.0, or bytes "
         "as 2GB or {absolute, 2GB}."),
        ({"vm_memory_high_watermark_paging_ratio": -0.5},
         "vm_memory_high_watermark_paging_ratio = -0.5 must be a number that is not negative."),
        ({"classic_queue_store_v2_check_crc32": 1}, "classic_queue_store_v2_check_crc32 = 1 must be true or false."),
    ],
)  # fmt: skip
def test_a_wrong_setting_is_refused_with_a_sentence(keywords: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load(**keywords)
    assert str(refused.value) == sentence


@pytest.mark.parametrize(
    ("value", "kept"),
    [(0.4, 0.4), (0, 0.0), (1, 1.0), (2, 2), (("absolute", "2GB"), 2_000_000_000), (("absolute", 1), 1),
     ("absolute, 300 kB", 300_000), (("relative", 1), 1.0), ("{relative, 0.3}", 0.3), ("2GB", 2_000_000_000)],
)  # fmt: skip
def test_a_watermark_is_a_share_as_a_float_or_bytes_as_an_int(value: object, kept: float) -> None:
    read = load(vm_memory_high_watermark=value).vm_memory_high_watermark
    assert (read, type(read)) == (kept, type(kept))


def test_a_wrong_value_in_a_file_is_refused_with_its_line(tmp_path: Path) -> None:
    path = conf(tmp_path, "durability = os\n\nheartbeat = soon\n")
    with pytest.raises(SettingsError) as refused:
        load(path)
    assert str(refused.value).startswith(f"{path}, line 3: heartbeat = 'soon' must be a whole number")


def test_the_profile_presets_what_is_not_chosen() -> None:
    modern = load(profile="modern")
    assert (modern.queue_version, modern.msg_store_gc, modern.queue_paging) == (2, "compact", "read_ahead")
    mixed = load(profile="modern", msg_store_gc="combine")
    assert (mixed.queue_version, mixed.msg_store_gc) == (2, "combine")


def test_values_are_checked_without_load_too() -> None:
    with pytest.raises(SettingsError):
        Settings(queue_version=3)


def test_a_misspelt_variable_is_corrected_as_a_variable() -> None:
    with pytest.raises(
        SettingsError, match=r"^WARRENMQ_DURABILTY is not a .* did you mean WARRENMQ_DURABILITY"
    ):
        load(environ={"WARRENMQ_DURABILTY": "os"})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("WARRENMQ_MANAGEMENT_URL", "http://guest:guest@localhost:15672"),
        ("WARRENMQ_SERVICE_HOST", "10.0.0.7"),
        ("WARRENMQ_SERVICE_PORT", "5672"),
        ("WARRENMQ_SERVICE_PORT_AMQP", "5672"),
        ("WARRENMQ_PORT", "tcp://10.0.0.7:5672"),
        ("WARRENMQ_PORT_5672_TCP", "tcp://10.0.0.7:5672"),
        ("WARRENMQ_PORT_5672_TCP_ADDR", "10.0.0.7"),
        ("WARRENMQ_PORT_5672_TCP_PROTO", "tcp"),
        ("WARRENMQ_MANAGEMENT_SERVICE_HOST", "10.0.0.8"),
        ("WARRENMQ_MANAGEMENT_PORT_15672_TCP_PORT", "15672"),
    ],
)
def test_a_variable_of_ctl_or_of_kubernetes_is_passed_over(name: str, text: str) -> None:
    """Both may be in the environment of every program that opens a directory."""
    assert load(environ={name: text}) == load()


def test_a_port_is_no_setting() -> None:
    with pytest.raises(SettingsError, match="WARRENMQ_PORT is not a setting"):
        load(environ={"WARRENMQ_PORT": "5672"})


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("\nprofil = classic", "line 2: profil is not a setting; did you mean profile"),
        ("durability os", "line 1: 'durability os' is not of the form key = value"),
        ("= os", "line 1: '= os' is not of the form key = value"),
        (
            "msg_store_file_size_limit = 16 bananas",
            "msg_store_file_size_limit = '16 bananas' must be a whole",
        ),
        ("credit_flow_default_credit = 1,2,3", "credit_flow_default_credit = '1,2,3' must be two positive"),
    ],
)
def test_a_mistake_in_the_file_is_reported_with_its_place(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        load(conf(tmp_path, text))
