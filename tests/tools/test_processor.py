"""benchmarks/processor.py makes its scratch folder, and shows why a child failed."""

import subprocess
import sys

from tests.support.source_tree import ROOT


def test_the_error_of_a_child_is_shown(tmp_path):
    scratch = tmp_path / "not" / "there"
    command = [sys.executable, "-m", "benchmarks.processor", "--dir", scratch, "--profiles", "fastest"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert scratch.is_dir()
    assert "profile = 'fastest' must be classic or modern" in done.stderr
