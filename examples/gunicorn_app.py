"""A web application with several worker processes, which all put jobs into one directory and look into it.

gunicorn -w 4 examples.gunicorn_app:app                 # JOBS_DIRECTORY says where; ./jobs unless it is set
curl -X POST http://127.0.0.1:8000/ -d 'resize cat.jpg'
curl http://127.0.0.1:8000/

Each worker opens the directory when it starts; one of them owns it.  If gunicorn kills that one, another takes over.
"""

import json
import os
from collections.abc import Callable, Iterable
from typing import Any

import warrenmq

broker = warrenmq.open(os.environ.get("JOBS_DIRECTORY", "jobs"), shared=True, unconfirmed="repeat")
jobs = broker.declare_queue("jobs")


def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """POST: the body becomes a job, which is on disk when 201 is sent.  GET: how many wait, and which process said so."""
    if environ["REQUEST_METHOD"] == "POST":
        jobs.publish(environ["wsgi.input"].read()).result(timeout=30)
        start_response("201 Created", [("Content-Type", "text/plain")])
        return [b"queued\n"]
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps({"waiting": len(jobs), "pid": os.getpid(), "owner": broker.is_owner}).encode()]
