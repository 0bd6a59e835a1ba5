"""The second command of the README: run the tests.

    python3 tests/run.py [arguments of pytest]

Makes `.venv-test` on first use, with the project, all its extras and the groups `dev` and `docs`, and `.node-test` with node's client if
node is there, then runs pytest in two processes more than there are cores (four at most), since tests also wait for disks and for other
processes; each takes whole files, and `-n 0` has all in one.
The longest tests are listed at the end.
"""

import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tools"))

import node_client  # noqa: E402  (the folder had to be put on the path first)
import project_venv  # noqa: E402

HANG = 300
"""Seconds after which a test that still runs is taken for hung, also on a machine that is busy with much else."""

if __name__ == "__main__":
    python = project_venv.ensure("all", groups=("dev", "docs"))
    node_client.ensure()
    processes = min(4, (os.cpu_count() or 1) + 2)
    options = ["-n", str(processes), "--dist=loadfile", f"--timeout={HANG}", "--durations=25"]
    sys.exit(project_venv.run(python, "-m", "pytest", *options, *sys.argv[1:], cwd=ROOT))
