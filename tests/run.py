"""The second command of the README: run the tests.

    python3 tests/run.py [arguments of pytest]

Makes `.venv-test` on first use, with the project, all its extras and the `dev` group, then runs pytest in it.
"""

from __future__ import annotations

import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tools"))

import project_venv  # noqa: E402  (the folder had to be put on the path first)

if __name__ == "__main__":
    python = project_venv.ensure("test", extra="all", group="dev")
    sys.exit(project_venv.run(python, "-m", "pytest", *sys.argv[1:], cwd=ROOT))
