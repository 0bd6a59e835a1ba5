"""`warrenmq.open`: a broker of one's own, or one that several processes share."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any, Literal

from warrenmq.broker import embedded
from warrenmq.broker.broker import Broker
from warrenmq.checks import flag, place_of, short_text, shown, text
from warrenmq.errors import ArgumentTypeError, ArgumentValueError, CallerError
from warrenmq.runtime import Runtime
from warrenmq.settings import Settings


def open(  # noqa: A001  # the promised name
    path: str | PathLike[str],
    *,
    settings: Settings | Mapping[str, Any] | None = None,
    trace: str | PathLike[str] | None = None,
    runtime: Runtime | None = None,
    vhost: str = "/",
    shared: bool = False,
    unconfirmed: Literal["fail", "repeat"] = "fail",
) -> Broker:
    """Start or recover the store in the folder `path`; made when it is not there.

    `settings` is a Settings or a mapping of its fields; None reads WARRENMQ_* variables and defaults.
    `trace` is a folder for trace segments; None = no trace.  `runtime` schedules the actors; None = as the
    setting `scheduler` says.
    `vhost` is the one of the folder's virtual hosts that is served; `warrenmq recover` may have filled
    several. With `shared` any number of processes of this machine may open the folder (docs/embedding.md):
    the first one owns it, with its settings and trace, the others reach it over the socket warrenmq.sock in
    the folder, and one of them takes over when it ends. Publishes that had no confirm then fail with Nacked,
    or with unconfirmed="repeat" are published again: such a message may be there twice.
    Raises DirectoryInUse when another broker has the folder and does not share it, SettingsError for a bad
    setting, ArgumentValueError for a `runtime` that has an open broker, OSError when the folder cannot be
    used.  Damaged files never raise: their bad bytes go to quarantine/ and are reported.
    """
    if text("unconfirmed", unconfirmed) not in ("fail", "repeat"):
        raise ArgumentValueError(f"unconfirmed is {shown(unconfirmed)}; use 'fail' or 'repeat'")
    if not flag("shared", shared):
        return embedded.open(path, settings=settings, trace=trace, runtime=runtime, vhost=vhost)
    if runtime is not None:
        raise ArgumentTypeError(
            "shared=True takes no runtime; say with the setting scheduler how actors are scheduled"
        )
    try:
        from warrenmq.shared.broker import SharedBroker  # noqa: PLC0415  # it needs an extra
    except ModuleNotFoundError as why:
        raise CallerError(f"shared=True needs {why.name}; install warrenmq[amqp].") from why
    return SharedBroker(
        place_of("path", path), embedded.settings_of(settings), None if trace is None else place_of("trace", trace),
        short_text("vhost", vhost), unconfirmed,
    ).opened()  # fmt: skip
