"""The first command of the README: watch the main job run on real input.

    python3 examples/run_demo.py [arguments of `warrenmq demo`]

Makes `.venv-test` on first use, which the tests use too, then runs `warrenmq demo` on the event log of
`examples/data/` (see the note beside it).  Arguments given here come last, so `--input FILE` puts another
file through it.
"""

from __future__ import annotations

import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tools"))

import project_venv  # noqa: E402  (the folder had to be put on the path first)

if __name__ == "__main__":
    python = project_venv.ensure("demo")
    log = os.path.join(ROOT, "examples", "data", "dpkg.log")
    arguments = ["demo", "--input", log, "--report", "warrenmq-demo.html", *sys.argv[1:]]
    sys.exit(project_venv.run(python, "-m", "warrenmq", *arguments))
