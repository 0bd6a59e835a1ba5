"""`warrenmq bench --profile`: one workload under several profiles, counted from their traces."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from warrenmq.cli import main


def test_profiles_stand_side_by_side(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--profile", "classic,modern", "--quick", "--json", "--dir", str(tmp_path)]) == 0
    results = json.loads(capfd.readouterr().out)
    assert list(results) == ["classic", "modern"]
    for numbers in results.values():
        assert numbers["index_written_mb"] > 0
        assert numbers["store_written_mb"] > 0
        assert numbers["index_syncs"] > 0
        assert numbers["write_amplification"] == pytest.approx(numbers["written_mb"] / numbers["payload_mb"])
    assert results["classic"]["payload_mb"] == results["modern"]["payload_mb"], "the same bodies"
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_profile_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--profile", "classic,future"]) == 2
    assert "no profile is called 'future'; there are classic, modern" in capfd.readouterr().err


@pytest.mark.parametrize("options", [["--only", "round_trip"], ["--profile", "classic"], []])
def test_a_file_is_no_folder_to_measure_in(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], options: list[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert main(["bench", *options, "--dir", str(tmp_path / "file")]) != 0
    told = capfd.readouterr().err
    assert "nothing can be measured in" in told
    assert "Traceback" not in told
