"""`open`: start or recover a directory in this process."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any

from warrenmq.broker.broker import Broker
from warrenmq.checks import is_a, mapping, place_of, short_text, shown, text
from warrenmq.errors import ArgumentTypeError, SettingsError
from warrenmq.runtime import Pool, Runtime, Threads
from warrenmq.seams.memory import RealMemory
from warrenmq.seams.real_disk import RealDisk
from warrenmq.settings import Settings


def open(  # noqa: A001  # the promised name
    path: str | PathLike[str],
    *,
    settings: Settings | Mapping[str, Any] | None = None,
    trace: str | PathLike[str] | None = None,
    runtime: Runtime | None = None,
    vhost: str = "/",
) -> Broker:
    """Start or recover the store in the folder `path`; made when it is not there.

    `settings` is a Settings or a mapping of its fields; None reads WARRENMQ_* variables and defaults.
    `trace` is a folder for trace segments; None = no trace.  `runtime` schedules the actors; None = as the
    setting `scheduler` says.
    `vhost` is the one of the folder's virtual hosts that is served; `warrenmq recover` may have filled
    several.  Raises DirectoryInUse when another broker has the folder, SettingsError for a bad setting,
    ArgumentValueError for a `runtime` that has an open broker, OSError when the folder cannot be used.
    Damaged files never raise: their bad bytes go to quarantine/ and are reported.
    """
    data = place_of("path", path)
    trace_to = None if trace is None else place_of("trace", trace)
    vhost = short_text("vhost", vhost)
    if runtime is not None and not is_a(runtime, Runtime):
        raise ArgumentTypeError(
            f"runtime is {shown(runtime)}; give a warrenmq.runtime.Threads, Pool or Simulation, or None"
        )
    chosen = settings_of(settings)
    return Broker(
        data,
        chosen,
        runtime or runtime_of(chosen),
        RealDisk(chosen.durability),
        RealMemory(),
        trace_to,
        vhost,
    )


def settings_of(settings: Settings | Mapping[str, Any] | None) -> Settings:
    """Convert the argument of `open` to Settings; SettingsError if it is invalid."""
    return settings if type(settings) is Settings else Settings.load(**_keywords(settings))


def runtime_of(settings: Settings) -> Runtime:
    """A new runtime, of the kind that the setting `scheduler` names."""
    return Pool() if settings.scheduler == "pool" else Threads()


def _keywords(settings: object) -> dict[str, Any]:
    try:
        return {text("the name of a setting", name): value for name, value in mapping("settings", settings)}
    except ArgumentTypeError as why:
        raise SettingsError(str(why)) from why
