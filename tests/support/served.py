"""`warrenmq serve` as a process of its own, for tests with real clients."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

from tests.support.source_tree import ROOT


class Served:
    """One server process; `url` is where it listens."""

    def __init__(self, data: Path, *arguments: str, port: int = 0) -> None:
        self._data = data
        self._arguments = arguments
        self.log = data.with_name(data.name + ".log")
        self.start(port)

    def start(self, port: int | None = None) -> None:
        """Start it, again where it listened before if no port is given."""
        command = [sys.executable, "-m", "warrenmq", "serve", "--data", str(self._data), *self._arguments]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--port", str(self.port if port is None else port)],
                stdout=subprocess.PIPE, stderr=log, text=True, env=os.environ | {"PYTHONPATH": ROOT},
            )  # fmt: skip
        line = self._process.stdout.readline()
        if line.startswith("management "):
            self.management = line.split()[1]
            line = self._process.stdout.readline()
        assert line.startswith("ready "), self.log.read_text()
        self.url = line.split()[1]
        address = urlsplit(self.url)
        self.host, self.port = address.hostname, address.port

    def stop(self) -> int:
        """A clean stop; the exit code."""
        return self._end(signal.SIGTERM)

    def kill(self) -> int:
        return self._end(signal.SIGKILL)

    def _end(self, number: int) -> int:
        self._process.send_signal(number)
        with self._process as process:
            return process.wait()

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None
