"""The example for Django: gunicorn, whose workers are forked behind the broker, and a management command as worker."""

import json
import os
import subprocess
import sys
import threading
import urllib.error
import urllib.parse
import urllib.request

import pytest

from tests.support.limits import LIMIT
from tests.support.source_tree import ROOT

pytest.importorskip("django")
pytest.importorskip("gunicorn")
SITE = os.path.join(ROOT, "examples", "django_site")


@pytest.fixture
def python(tmp_path):
    """Starts programs of the site, and ends those that still run."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([ROOT, SITE]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "SITE_DATA": str(tmp_path / "data"),
    }
    started = []

    def start(*command):
        log = (tmp_path / f"{len(started)}.log").open("w+b", buffering=0)
        process = subprocess.Popen(
            [sys.executable, *command], cwd=SITE, env=environment, stdout=log, stderr=log
        )
        started.append((process, log))
        return process

    start.said = lambda: "".join(os.pread(log.fileno(), 1 << 20, 0).decode() for _, log in started)
    yield start
    for process, log in started:
        if process.poll() is None:
            process.kill()
        process.wait()
        log.close()


def wait_for(condition):
    waited = 0
    while not condition():
        threading.Event().wait(0.05)  # another process has no other sign
        waited += 0.05
        assert waited < LIMIT


def test_committed_pictures_are_resized_and_those_rolled_back_have_no_job(python):
    assert python("manage.py", "migrate", "--run-syncdb").wait(LIMIT) == 0, python.said()
    site = python(
        "-m",
        "gunicorn",
        "-w",
        "2",
        "--preload",
        "--no-control-socket",
        "--bind",
        "127.0.0.1:0",
        "wsgi:application",
    )
    wait_for(lambda: "Listening at: " in python.said())
    url = f"{python.said().partition('Listening at: ')[2].split()[0]}/pictures"

    def keep(*names):
        form = urllib.parse.urlencode([("name", name) for name in names]).encode()
        with urllib.request.urlopen(url, form, timeout=LIMIT) as answer:
            assert answer.status == 201

    def seen():
        with urllib.request.urlopen(url, timeout=LIMIT) as answer:
            return json.load(answer)

    keep("cat.jpg", "dog.jpg")
    with pytest.raises(urllib.error.HTTPError, match="409"):
        keep("owl.jpg", "dog.jpg")
    assert seen() == {"waiting": 2, "done": []}

    worker = python("manage.py", "work", "--missed")
    wait_for(lambda: seen() == {"waiting": 0, "done": ["small cat.jpg", "small dog.jpg"]})
    for process in (worker, site):
        process.terminate()
        assert process.wait(LIMIT) == 0, python.said()
    assert "stopped; what was not done comes again" in python.said()
    assert "Traceback" not in python.said()
