"""Several virtual hosts of one data directory: a Broker each, in one process.

Each has a runtime, a supervision tree and definitions of its own; the directory is owned once, by the first.  Their runtimes
share a counter, because an actor of one monitors and is monitored by actors of another, and the keys of monitors come
from it.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack

from warrenmq.broker.broker import Broker
from warrenmq.broker.embedded import runtime_of
from warrenmq.directory.layout import VHOSTS, DataDirectory, vhost_folder
from warrenmq.errors import CallerError
from warrenmq.seams.memory import RealMemory
from warrenmq.seams.real_disk import RealDisk
from warrenmq.settings import Settings


def open_vhosts(
    path: str, settings: Settings, vhosts: Iterable[str], trace: str | None = None
) -> list[Broker]:
    """Open a directory's virtual hosts; the first one owns it, and is to be closed last.

    It is owned as a directory that is shared: `serve_locally` is to follow.
    Raises CallerError when several are to be traced: a trace holds the rows of one runtime.
    """
    names = list(vhosts)
    if trace is not None and len(names) > 1:
        msg = f"a trace is of one virtual host, and the users file has {len(names)}; serve without --trace."
        raise CallerError(msg)
    disk = RealDisk(settings.durability)
    first = runtime_of(settings)
    owned = DataDirectory.open(disk, path, settings, first, shares=True)
    brokers: list[Broker] = []
    with ExitStack() as undo:
        for name in names:
            if brokers:
                broker = open_beside(brokers[0], name)
            else:
                broker = Broker(path, settings, first, disk, RealMemory(), trace, name, owned)
            undo.callback(broker.close)
            brokers.append(broker)
        undo.pop_all()
    return brokers


def open_beside(first: Broker, name: str) -> Broker:
    """Open one more virtual host of the directory that `first` owns; it is to be closed before that."""
    settings = first.settings
    runtime = runtime_of(settings)
    runtime.tick = first.runtime.tick
    directory = first.inside.local_client.engine.share_directory()
    return Broker(first.path, settings, runtime, directory.disk, RealMemory(), None, name, directory)


def remove(first: Broker, name: str) -> None:
    """Delete the files of a virtual host whose broker is closed; its marker goes first, so that a crash
    leaves no half of it.
    """
    disk = RealDisk(first.settings.durability)
    folder = f"{first.path}/{VHOSTS}/{vhost_folder(name)}"
    for file in (".vhost", "definitions.log"):
        if disk.exists(f"{folder}/{file}"):
            disk.unlink(f"{folder}/{file}")
    disk.rmtree(folder)
