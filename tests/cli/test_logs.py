"""The log file of `warrenmq serve`."""

from warrenmq.cli._logs import LogFile


def test_a_file_that_was_rotated_is_begun_anew(tmp_path):
    """Lines went into the renamed file, and into a removed one, for as long as the server ran."""
    path = tmp_path / "logs" / "serve.log"
    path.parent.mkdir()
    log = LogFile(str(path))
    log.write("one\n")
    path.rename(path.with_suffix(".1"))
    log.write("two\n")
    assert (path.with_suffix(".1").read_text(), path.read_text()) == ("one\n", "two\n")
    path.unlink()
    log.write("three\n")
    assert path.read_text() == "three\n"
    path.parent.rename(tmp_path / "moved")
    log.write("four\n")  # there can be no new one
    assert (tmp_path / "moved" / path.name).read_text() == "three\nfour\n"
    path.parent.mkdir()
    log.write("five\n")
    assert path.read_text() == "five\n"
    log._file.close()
