"""node's RabbitMQ client for the tests, where node and npm are there: `.node-test/node_modules/amqplib`.

Not having it is no failure: the tests that want it say so and are skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
AMQPLIB = "2.3.1"
FOLDER = ".node-test"


def ensure() -> None:
    """Install it, once; an unreachable registry is reported on stderr."""
    npm = shutil.which("npm")
    installed = os.path.join(ROOT, FOLDER, "node_modules", "amqplib", "package.json")
    if npm is None or shutil.which("node") is None or os.path.exists(installed):
        return
    command = [
        npm,
        "install",
        "--prefix",
        os.path.join(ROOT, FOLDER),
        "--no-audit",
        "--no-fund",
        f"amqplib@{AMQPLIB}",
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        why = done.stderr.strip() if done.returncode else ""
    except subprocess.TimeoutExpired:
        why = "npm gave no answer"
    if why:
        print(
            f"amqplib is not there, so its tests are skipped: {why.splitlines()[-1]}",
            file=sys.stderr,
            flush=True,
        )
