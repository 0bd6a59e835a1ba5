"""The settings: RabbitMQ's key names and defaults, in one frozen dataclass.

They come from keywords, then from WARRENMQ_* variables, then from a file in rabbitmq.conf's syntax; the
first that names a key wins:

    Settings.load(msg_store_sync_interval=50)
    WARRENMQ_MSG_STORE_SYNC_INTERVAL=50
    msg_store_sync_interval = 50            # rabbitmq.conf; sizes may have units: 16MiB, 4kB

Each field carries the kind of value that it takes, so that a new setting is one line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Protocol

from warrenmq.checks import exact, mapping, path_of, shown
from warrenmq.errors import SettingsError

ENVIRONMENT_PREFIX = "WARRENMQ_"
MANAGEMENT_URL = "WARRENMQ_MANAGEMENT_URL"
"""The variable with the address for `warrenmq ctl`, which is no setting."""
_OF_A_SERVICE = re.compile(
    r"\w+_(SERVICE_HOST=.*|SERVICE_PORT(_\w+)?=.*|PORT=(tcp|udp|sctp)://.*|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?=.*)",
    re.ASCII | re.DOTALL,
)
"""A variable that Kubernetes gives to containers for a service that is called warrenmq, or warrenmq-SOMETHING."""
_LONGEST_KEY = 100
"""Characters of an unknown key that its error repeats."""
MAX_SEGMENT_ENTRIES = 1 << 14
"""A position within a segment has 14 bits on disk."""
_LARGEST = (1 << 31) - 1
_MOST_BYTES = 1 << 62

_UNITS = {"": 1, "k": 1 << 10, "kib": 1 << 10, "kb": 10**3, "m": 1 << 20, "mib": 1 << 20, "mb": 10**6,
          "g": 1 << 30, "gib": 1 << 30, "gb": 10**9}  # fmt: skip


class Kind(Protocol):
    """The values that a setting takes."""

    def parse(self, text: str) -> Any:
        """The value that a line of text means; the text itself when it means none."""

    def problem(self, value: Any) -> str | None:
        """Describe what is wrong with a value, as the end of a sentence."""


@dataclass(frozen=True, slots=True)
class Integer:
    """A whole number within bounds."""

    low: int
    high: int

    def parse(self, text: str) -> int | str:
        return int(text) if re.fullmatch(r"[+-]?\d{1,30}", text) else text

    def problem(self, value: object) -> str | None:
        if isinstance(value, int) and not isinstance(value, bool) and self.low <= value <= self.high:
            return None
        return f"must be a whole number from {self.low} to {self.high}"


@dataclass(frozen=True, slots=True)
class Size(Integer):
    """A number of bytes, in text with or without RabbitMQ's units (k and kiB are 1024, kB is 1000)."""

    def parse(self, text: str) -> int | str:
        match = re.fullmatch(r"(\d{1,30})\s*([a-zA-Z]*)", text)
        if match is None or match[2].lower() not in _UNITS:
            return text
        return int(match[1]) * _UNITS[match[2].lower()]

    def read(self, value: Any) -> Any:
        """The number of bytes that a text means, in Python as in a file; the value itself when it means none."""
        return self.parse(value) if isinstance(value, str) else value


@dataclass(frozen=True, slots=True)
class Pair:
    """Two positive numbers; in text "400, 200" or Erlang's "{400, 200}"."""

    falling: bool = False
    """The second must not be larger than the first."""

    def parse(self, text: str) -> tuple[int, ...] | str:
        match = re.fullmatch(r"\{?\s*(\d{1,30})\s*,\s*(\d{1,30})\s*\}?", text)
        return (int(match[1]), int(match[2])) if match else text

    def problem(self, value: object) -> str | None:
        if isinstance(value, tuple) and [type(part) for part in value] == [int, int]:
            first, second = value
            if 0 < first <= _LARGEST and 0 < second <= _LARGEST and (first >= second or not self.falling):
                return None
        order = ", the second not larger than the first" if self.falling else ""
        return f"must be two positive whole numbers{order}"


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few words or numbers."""

    choices: tuple[str | int, ...]

    def parse(self, text: str) -> str | int:
        return next((each for each in self.choices if str(each) == text), text)

    def problem(self, value: object) -> str | None:
        if value in self.choices and not isinstance(value, bool):
            return None
        return f"must be {' or '.join(map(str, self.choices))}"


@dataclass(frozen=True, slots=True)
class ByProfile(Choice):
    """A setting whose default depends on the profile: None is replaced when Settings are made."""


class Ratio:
    """A share that may be more than the whole; in text a decimal number."""

    def parse(self, text: str) -> float | str:
        return float(text) if re.fullmatch(r"\d+(\.\d+)?", text) else text

    def problem(self, value: object) -> str | None:
        if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= _LARGEST:
            return None
        return "must be a number that is not negative"


@dataclass(frozen=True, slots=True)
class Share:
    """A share of the memory, kept as a float, or bytes, kept as an int.

    | a setting's value, or a text                           | is kept as                              |
    | ------------------------------------------------------ | --------------------------------------- |
    | 0.4, ("relative", 0.4), "{relative, 0.4}"              | 0.4; also with mem_relative             |
    | 2_000_000_000, "2GB", ("absolute", "2GB")              | 2_000_000_000; also "absolute, 2GB"     |
    | 1, "1"                                                 | 1.0 up to `whole_shares`, else 1 byte   |
    """

    largest: float
    """The largest share."""
    whole_shares: int = -1
    """Whole numbers up to this are shares, as in RabbitMQ's vm_memory_high_watermark."""

    def parse(self, text: str) -> Any:
        return self.read(text)

    def read(self, value: Any) -> Any:
        """The float or int that is meant; the value itself when none is."""
        form, amount = "", value
        if isinstance(value, str):
            match = re.fullmatch(r"\{?\s*([a-z_]+)\s*,\s*(.+?)\s*\}?", value)
            form, amount = (match[1], match[2]) if match else ("", value)
        elif isinstance(value, (tuple, list)) and len(value) == 2:
            form, amount = value
        if isinstance(amount, str):
            decimal = re.fullmatch(r"\d+\.\d+", amount)
            amount = float(amount) if decimal else Size(0, _MOST_BYTES).parse(amount)
        if not isinstance(amount, (int, float)) or isinstance(amount, bool):
            return value
        match form:
            case "":
                return (
                    float(amount) if isinstance(amount, int) and 0 <= amount <= self.whole_shares else amount
                )
            case "relative" | "mem_relative":
                return float(amount)
            case "absolute" if isinstance(amount, int):
                return amount
        return value

    def problem(self, value: object) -> str | None:
        if isinstance(value, float) and 0 <= value <= self.largest:
            return None
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_BYTES:
            return None
        return (
            f"must be a share of the memory from 0.0 to {self.largest}, or bytes as 2GB or {{absolute, 2GB}}"
        )


class Switch:
    """Yes or no; in text true or false."""

    def parse(self, text: str) -> bool | str:
        return {"true": True, "false": False}.get(text.lower(), text)

    def problem(self, value: object) -> str | None:
        return None if isinstance(value, bool) else "must be true or false"


def _setting(default: Any, kind: Kind) -> Any:
    return field(default=default, metadata={"kind": kind})


PROFILES: Mapping[str, Mapping[str, str | int]] = {
    "classic": {"queue_version": 1, "msg_store_gc": "combine", "queue_paging": "memory_target"},
    "modern": {"queue_version": 2, "msg_store_gc": "compact", "queue_paging": "read_ahead"},
}
_FORMS = {
    f"{key}.{form}"
    for key in ("vm_memory_high_watermark", "disk_free_limit")
    for form in ("relative", "absolute")
}
"""Keys of rabbitmq.conf whose last part says what kind of number the value is."""
_MINUTE = 60_000
_HOUR = 60 * _MINUTE


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings of a broker; times in milliseconds, sizes in bytes."""

    profile: str = _setting("modern", Choice(("classic", "modern")))
    """Which era of RabbitMQ's classic queue: classic is 3.5/3.6, modern 3.13/4.x; it presets the next three."""
    queue_version: int = _setting(None, ByProfile((1, 2)))
    """1: journal.jif and .idx; 2: .qi and .qs."""
    msg_store_gc: str = _setting(None, ByProfile(("combine", "compact")))
    """combine: two neighbouring files become one; compact: in place."""
    queue_paging: str = _setting(None, ByProfile(("memory_target", "read_ahead")))
    """memory_target: q1, q2, delta, q3, q4, paged out when memory is short (to 3.11); read_ahead: a head that is as
    long as the consumers are fast and a tail on disk (from 3.12)."""
    durability: str = _setting("fsync", Choice(("fsync", "os")))
    """A confirm means: fsync, the disk has it; os, the operating system has it."""

    commit_log: bool = _setting(True, Switch())
    """One sync for what many queues and stores want durable at the same time (docs/confirms.md#the-commit-log)."""

    scheduler: str = _setting("pool", Choice(("threads", "pool")))
    """The scheduler of the actors: pool, a few threads for all, and those that wait; or threads, one each
    (docs/runtime.md).
    """

    msg_store_file_size_limit: int = _setting(16_777_216, Size(4_096, 1 << 40))
    """A message file that has reached this size is closed and the next one begun."""
    msg_store_write_buffer: int = _setting(1_048_576, Size(4_096, 1 << 30))
    """Records collected before they are handed to the operating system."""
    msg_store_sync_interval: int = _setting(25, Integer(1, _MINUTE))
    """Longest wait of a confirm for company; an empty mailbox ends it earlier."""
    file_handles_high_watermark: int = _setting(64, Integer(2, 1 << 20))
    """Message files that a store keeps open for reading."""
    queue_sync_interval: int = _setting(200, Integer(1, _MINUTE))
    """Longest time that actions without a confirm, as acks, stay unsynced (RabbitMQ's constant SYNC_INTERVAL)."""
    queue_sleep_after: int = _setting(60_000, Integer(0, 24 * _HOUR))
    """A queue that nobody used for this long gives up its process until it is needed; 0: never (docs/runtime.md)."""
    msg_store_credit_disc_bound: tuple[int, int] = _setting((4_000, 800), Pair(falling=True))
    """Messages a queue may send to the store unanswered, and how many the store answers together."""
    msg_store_io_batch_size: int = _setting(4_096, Integer(1, 1 << 20))
    """Messages paged out together."""
    msg_store_shutdown_timeout: int = _setting(600_000, Integer(1, 24 * _HOUR))
    classic_queue_shutdown_timeout: int = _setting(600_000, Integer(1, 24 * _HOUR))

    queue_index_embed_msgs_below: int = _setting(4_096, Size(0, 1 << 20))
    """Body plus properties below this many bytes travel inside the index; 0: all bodies go to the store."""
    queue_index_max_journal_entries: int = _setting(32_768, Integer(1, 1 << 24))
    """More actions than this and the journal moves to the segment files."""
    queue_index_segment_entry_count: int = _setting(2_048, Integer(1, MAX_SEGMENT_ENTRIES))
    """Messages a segment file; fixed in a data directory when it is created."""
    classic_queue_index_v2_segment_entry_count: int = _setting(4_096, Integer(1, 1 << 20))
    """Messages a .qi file; each file says in its header how many it was made for."""
    classic_queue_store_v2_max_cache_size: int = _setting(512_000, Size(0, 1 << 30))
    """Bytes of bodies that are collected for a .qs file before they are handed to the operating system."""
    classic_queue_store_v2_check_crc32: bool = _setting(True, Switch())
    """True if a body's checksum is compared when it is read."""

    credit_flow_default_credit: tuple[int, int] = _setting((400, 200), Pair(falling=True))
    """Messages an actor may send to the next one unanswered, and how many are answered together."""
    vhost_restart_intensity: tuple[int, int] = _setting((2, 300), Pair())
    """Restarts of a virtual host's tree that are tolerated, within how many seconds."""

    vm_memory_high_watermark: float = _setting(0.4, Share(1.0, whole_shares=1))
    """Publishers are blocked while more memory than this is in use: a share of it, or bytes (docs/alarms.md)."""
    vm_memory_high_watermark_paging_ratio: float = _setting(0.5, Ratio())
    """Share of the watermark at which queues begin to page their messages out."""
    total_memory_available_override_value: int = _setting(0, Size(0, 1 << 60))
    """Bytes of memory to go by; 0: what the machine, the container and the process's limits allow."""
    memory_monitor_interval: int = _setting(2_500, Integer(1, _MINUTE))
    """Time between two decisions how much the queues keep in memory."""
    queue_ram_bytes: int = _setting(33_554_432, Size(0, 1 << 60))
    """Bytes of messages that one queue keeps in memory, however much there is (a bound of our own)."""
    disk_free_limit: float = _setting(50_000_000, Share(1000.0))
    """Publishers are blocked while the disk has less room than this: bytes, or a multiple of the memory."""

    frame_max: int = _setting(131_072, Size(4_096, 1 << 31))
    """The largest frame that AMQP clients are offered."""
    channel_max: int = _setting(2_047, Integer(1, 65_535))
    """Channels that a connection may have at a time."""
    heartbeat: int = _setting(60, Integer(0, 65_535))
    """Seconds between heartbeats that AMQP clients are offered; 0: none."""
    handshake_timeout: int = _setting(10_000, Integer(100, _HOUR))
    """A connection that is not open by then is dropped."""
    max_message_size: int = _setting(134_217_728, Size(0, 536_870_912))
    """Bytes of the largest message that may be published."""
    consumer_timeout: int = _setting(1_800_000, Integer(0, 366 * 24 * _HOUR))
    """A channel is closed, and a consumer in Python cancelled, when a delivery waits longer than this for its
    ack; 0: never.
    """
    channel_tick_interval: int = _setting(60_000, Integer(100, 24 * _HOUR))
    """The interval at which a channel looks for such deliveries."""
    loopback_users: str = _setting("guest", Choice(("guest", "none")))
    """Users that can connect from this machine only."""
    quorum_as_classic: bool = _setting(False, Switch())
    """True if a queue that is declared with x-queue-type quorum is made a classic one, which the log says."""
    server_product: str = _setting("RabbitMQ", Choice(("RabbitMQ", "warrenmq")))
    """The product in connection.start to AMQP clients (docs/serving.md)."""

    def __post_init__(self) -> None:
        for each in fields(self):
            object.__setattr__(self, each.name, exact(getattr(self, each.name)))
        for name, value in PROFILES.get(str(self.profile), {}).items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        for each in fields(self):
            kind, value = each.metadata["kind"], getattr(self, each.name)
            if isinstance(kind, (Share, Size)):
                value = kind.read(value)
                object.__setattr__(self, each.name, value)
            _check(kind, each.name, value)

    @classmethod
    def load(cls, *, file: str | os.PathLike[str] | None = None,
             environ: Mapping[str, str] | None = None, texts: Mapping[str, str] | None = None,
             **keywords: Any) -> Settings:  # fmt: skip
        """Settings of a file, of variables, of `texts` (key and value as a person typed them) and of
        keywords; later ones win.

        `environ` is the process's own unless it is given.  Raises SettingsError, which names the key as its source spells it,
        for what is unknown or wrong, OSError when the file cannot be read.
        """
        read: dict[str, str] = {}
        if file is not None:
            read.update(_lines(Path(path_of("file", file))))
        read.update(_variables(os.environ if environ is None else _texts("environ", environ)))
        read.update(_texts("texts", texts))
        for key in keywords:
            _kind(key, key)
        return cls(**{key: _kind(key, key).parse(text) for key, text in read.items()} | keywords)


def check_text(key: str, text: str, named: str) -> None:
    """Refuse a text that means no value of a setting.  Raises SettingsError; `named` is the key as its source spells it."""
    kind = _kind(key, named)
    _check(kind, named, kind.parse(text))


def _check(kind: Kind, named: str, value: object) -> None:
    if problem := kind.problem(value):
        raise SettingsError(f"{named} = {shown(value)} {problem}.")


def _kind(key: str, shown: str, spell: Callable[[str], str] = str) -> Kind:
    """The kind of a key; an unknown one is an error that is shown, and corrected, as the user spells it."""
    kinds: dict[str, Kind] = {each.name: each.metadata["kind"] for each in fields(Settings)}
    if key in kinds:
        return kinds[key]
    import difflib  # noqa: PLC0415  # only a mistake needs it

    near = difflib.get_close_matches(key, kinds, n=1, cutoff=0.5)
    advice = f"; did you mean {spell(near[0])}?" if near else "."
    # `shown` may name a file as well, which is not cut
    said = shown if len(key) <= _LONGEST_KEY else f"{shown[: _LONGEST_KEY - 3]}..."
    raise SettingsError(f"{said} is not a setting{advice}")


def _texts(what: str, value: object) -> dict[str, str]:
    """A mapping of text to text that a caller passes; None is an empty one."""
    found = {}
    for name, text in mapping(what, value):
        key, meant = exact(name), exact(text)
        if not isinstance(key, str) or not isinstance(meant, str):
            raise SettingsError(f"{what} holds {shown(key)} = {shown(meant)}; give a dict of str to str.")
        found[key] = meant
    return found


def _variables(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, text in environ.items():
        if name == MANAGEMENT_URL or _OF_A_SERVICE.fullmatch(f"{name}={text}"):
            continue
        if name.startswith(ENVIRONMENT_PREFIX):
            key = name.removeprefix(ENVIRONMENT_PREFIX).lower()
            _kind(key, name, lambda known: ENVIRONMENT_PREFIX + known.upper())
            yield key, text.strip()


def conf_lines(path: str | os.PathLike[str]) -> Iterator[tuple[int, str, str]]:
    """The lines of a rabbitmq.conf: number, key and value; from # on a comment, '...' around a value that needs it.

    SettingsError for a line of another form, OSError when the file cannot be read.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as why:
        msg = f"{path} is no settings file: it is no text ({why.reason} at byte {why.start})."
        raise SettingsError(msg) from why
    for number, line in enumerate(text.splitlines(), 1):
        if (quoted := re.fullmatch(r"\s*([^=#\s]+)\s*=\s*'(.*?)'\s*(#.*)?", line)) is not None:
            yield number, quoted[1], quoted[2]
            continue
        code = re.sub(r"(^|\s)#.*", "", line).strip()
        if not code:
            continue
        key, equals, value = (part.strip() for part in code.partition("="))
        if not equals or not key:
            raise SettingsError(f"{path}, line {number}: {code!r} is not of the form key = value.")
        yield number, key, value


def with_form(key: str, value: str) -> tuple[str, str]:
    """A setting and its text: `disk_free_limit.absolute = 2GB` is disk_free_limit, "absolute, 2GB"."""
    key, _, form = key.partition(".") if key in _FORMS else (key, "", "")
    return key, f"{form}, {value}" if form else value


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    """The settings of a file that has nothing else."""
    for number, key, value in conf_lines(path):
        name, text = with_form(key, value)
        check_text(name, text, f"{path}, line {number}: {name}")
        yield name, text
