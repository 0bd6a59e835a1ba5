"""benchmarks/schedulers.py makes its scratch folder, and shows why a child failed."""

import subprocess
import sys

from tests.support.source_tree import ROOT


def run(*arguments):
    command = [sys.executable, "-m", "benchmarks.schedulers", "--measures", "", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_a_scratch_folder_that_is_not_there_is_made(tmp_path):
    done = run("--dir", tmp_path / "not" / "there", "--queues", "1")
    assert "1 queues declared" in done.stdout, done.stderr


def test_the_error_of_a_child_is_shown(tmp_path):
    done = run("--dir", tmp_path, "--queues", "1", "--profile", "fastest")
    assert "profile = 'fastest' must be classic or modern" in done.stderr
