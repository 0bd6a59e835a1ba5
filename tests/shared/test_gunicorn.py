"""gunicorn with three workers, of which the owner of the directory is killed under load: no request that was answered is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from http.client import HTTPException
from pathlib import Path

import pytest

import warrenmq
from tests.support.limits import LIMIT
from tests.support.source_tree import ROOT

pytest.importorskip("gunicorn")

REQUESTS, CLIENTS = 120, 4


def ask(url: str, body: bytes | None = None) -> bytes:
    """One answer; tries again while a worker dies under the request, so that a job may be queued twice."""
    while True:
        try:
            with urllib.request.urlopen(url, body, timeout=LIMIT) as answer:
                return bytes(answer.read())
        except (urllib.error.URLError, HTTPException, ConnectionError):
            threading.Event().wait(0.02)


@pytest.mark.parametrize("options", ["", "--preload", "-k gthread --threads 2"])
def test_workers_share_the_directory_and_survive_their_owner(tmp_path: Path, options: str) -> None:
    data, socket = tmp_path / "data", "127.0.0.1:0"
    log = tmp_path / "log"
    command = [
        sys.executable,
        "-m",
        "gunicorn",
        "-w",
        "3",
        "--bind",
        socket,
        "--graceful-timeout",
        "5",
        "examples.gunicorn_app:app",
    ]
    environment = os.environ | {"PYTHONPATH": ROOT, "JOBS_DIRECTORY": str(data)}
    with log.open("wb") as said:
        server = subprocess.Popen(
            [*command, *options.split()], cwd=ROOT, env=environment, stdout=said, stderr=said
        )
    try:
        while "Listening at: " not in (text := log.read_text()):
            assert server.poll() is None, text
            threading.Event().wait(0.02)
        url = text.partition("Listening at: ")[2].split()[0]
        answered: list[bytes] = []

        def load(client: int) -> None:
            for number in range(REQUESTS // CLIENTS):
                body = b"%d of client %d" % (number, client)
                assert ask(url, body) == b"queued\n"
                answered.append(body)

        clients = [threading.Thread(target=load, args=(each,)) for each in range(CLIENTS)]
        for each in clients:
            each.start()
        owner = 0
        while len(answered) < REQUESTS // 3 or not owner:
            found = json.loads(ask(url))
            owner = found["pid"] if found["owner"] else owner
            if options == "--preload":  # the master owns it, and has no requests to answer: kill any worker
                owner = found["pid"]
        os.kill(owner, signal.SIGKILL)
        for each in clients:
            each.join(LIMIT)
        assert len(answered) == REQUESTS
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(LIMIT)
    with warrenmq.open(data) as broker:
        assert {each.body for each in broker.queue("jobs").peek(10 * REQUESTS)} == set(answered)
