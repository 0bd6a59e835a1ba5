"""The example for FastAPI under uvicorn, whose process is killed: what was accepted is done by the next one."""

import json
import os
import subprocess
import sys
import threading
import urllib.request

import pytest

from tests.support.limits import LIMIT
from tests.support.source_tree import ROOT

pytest.importorskip("fastapi")
PICTURES = [f"{number}.jpg" for number in range(20)]


class Application:
    """The example in a process of its own."""

    def __init__(self, tmp_path):
        self._data = tmp_path / "data"
        self._log = tmp_path / "log"
        self.start()

    def start(self):
        command = [sys.executable, "-m", "uvicorn", "--port", "0", "examples.fastapi_app:app"]
        environment = os.environ | {"PYTHONPATH": ROOT, "JOBS_DIRECTORY": str(self._data)}
        with self._log.open("wb") as said:
            self.process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=said, stderr=said)
        while "running on " not in self.said():
            assert self.process.poll() is None, self.said()
            threading.Event().wait(0.02)
        self._url = self.said().partition("running on ")[2].split()[0]

    def said(self):
        return self._log.read_text()

    def order(self, picture):
        with urllib.request.urlopen(f"{self._url}/thumbnails/{picture}", b"", timeout=LIMIT) as answer:
            assert answer.status == 202

    def thumbnails(self):
        with urllib.request.urlopen(f"{self._url}/thumbnails", timeout=LIMIT) as answer:
            return json.load(answer)


def test_what_was_accepted_is_done_after_a_kill_and_the_application_ends_in_order(tmp_path):
    application = Application(tmp_path)
    try:
        for picture in PICTURES:
            application.order(picture)
        application.process.kill()
        application.process.wait(LIMIT)
        application.start()
        waited = 0
        while {f"small {each}" for each in PICTURES} - set(application.thumbnails()["done"]):
            threading.Event().wait(0.02)  # another process's work has no other sign
            waited += 0.02
            assert waited < LIMIT
        application.process.terminate()
        application.process.wait(LIMIT)
        assert "Application shutdown complete." in application.said()
    finally:
        application.process.kill()
        application.process.wait(LIMIT)
