"""The trace of one run: from the opening of a directory to its close.

The broker is an actor of the trace ("broker"), and so is each application thread that uses it ("client-1" and so on).
"""

from __future__ import annotations

import os
from itertools import count

from warrenmq.directory.layout import DataDirectory
from warrenmq.runtime import Runtime
from warrenmq.settings import Settings
from warrenmq.trace.events import Profile, RunEnd, RunStart
from warrenmq.trace.machine import machine_boot
from warrenmq.trace.recorder import ActorTrace, Recorder
from warrenmq.trace.writers import writer

_write_start, _write_end = writer(RunStart), writer(RunEnd)


class RunTrace:
    """The traces of one run: one recorder for all actors of a runtime; `client` is thread-safe."""

    def __init__(
        self,
        target: str | Recorder,
        runtime: Runtime,
        directory: DataDirectory,
        vhost: str,
        boot: int,
        settings: Settings,
    ) -> None:
        if isinstance(target, str):
            run = f"{boot:06d}-{runtime.token_bytes(4).hex()}"
            follows, untraced = directory.last_traced()
            target = Recorder(
                target, run=run, pid=os.getpid(), boot=boot, directory=directory.id(runtime.token_bytes), vhost=vhost,
                machine=machine_boot(), follows=follows, untraced=untraced, clock=runtime,
            )  # fmt: skip
            directory.begin_trace(run)
        self._recorder = runtime.recorder = target
        self._runtime = runtime
        self._boot = boot
        self._clients = count(1)
        self._own = runtime.per_thread(self._new_client)
        self._broker = target.actor("broker", "broker")
        _write_start(
            self._broker,
            Profile[settings.profile.upper()],
            settings.msg_store_write_buffer,
            boot,
            settings.durability == "fsync",
            settings.queue_index_segment_entry_count,
            settings.classic_queue_index_v2_segment_entry_count,
            settings.queue_index_embed_msgs_below,
            settings.msg_store_file_size_limit,
        )

    def client(self) -> ActorTrace:
        """The calling thread's own trace."""
        return self._own.own

    def _new_client(self) -> ActorTrace:
        return self._recorder.actor(f"client-{next(self._clients)}", "client")

    def end(self, *, clean: bool) -> None:
        """Close the trace; a run that did not end cleanly has no RUN_END."""
        if clean:
            _write_end(self._broker, self._boot)
        self._recorder.close()
        self._runtime.recorder = None
