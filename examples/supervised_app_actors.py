"""Supervision for the actors of an application: plain Pykka actors that know nothing of warrenmq.

    python examples/supervised_app_actors.py

A bad picture crashes the resizer.  Its supervisor starts a new one under the same name, and senders that address it by
that name go on; the mailer beside it never notices (one_for_one).
"""

from __future__ import annotations

import logging

import pykka

from warrenmq.runtime import Threads
from warrenmq.supervisors import ChildSpec, Supervisor


class Resizer(pykka.ThreadingActor):
    """An ordinary Pykka actor, with a weakness."""

    def on_receive(self, message: str) -> str:
        if message == "broken.jpg":
            raise ValueError(f"{message} is no picture")
        return f"resized {message}"


class Mailer(pykka.ThreadingActor):
    """Another one."""

    def on_receive(self, message: str) -> str:
        return f"mailed {message}"


class App(Supervisor):
    """The tree: what there is, and what happens when a part of it falls."""

    strategy = "one_for_one"
    intensity, period = 3, 10.0  # more than three restarts in ten seconds, and the app gives up

    def children(self) -> list[ChildSpec]:
        return [ChildSpec("resizer", Resizer, name="resizer"), ChildSpec("mailer", Mailer, name="mailer")]


def main() -> None:
    logging.getLogger("pykka").setLevel(logging.CRITICAL)  # the crash is on purpose
    runtime = Threads()
    app = App.start_link(runtime=runtime)

    resizer, mailer = runtime.whereis("resizer"), runtime.whereis("mailer")
    print(resizer.ask("cat.jpg"))
    resizer.tell("broken.jpg")
    while not runtime.is_registered("resizer") or runtime.whereis("resizer") == resizer:
        runtime.event().wait(0.01)  # until the supervisor has started another one
    print("the resizer crashed and was started again")
    print(runtime.whereis("resizer").ask("dog.jpg"))
    print(mailer.ask("dog.jpg"))

    runtime.stop_actor(app)
    print(f"stopped: {not mailer.is_alive()}")


if __name__ == "__main__":
    main()
