"""Scripts for shells: what they offer is what the parser takes."""

import shutil
import subprocess

import pytest

from warrenmq.cli import main, verbs


def script(shell, capsys):
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


def offered(code, *words):
    """The completions that bash offers for the last word."""
    line = " ".join(f"'{word}'" for word in words)
    asked = f"{code}\nCOMP_WORDS=(warrenmq {line}); COMP_CWORD={len(words)}; _warrenmq; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, check=True)
    assert not done.stderr
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes_verbs_and_the_options_of_each(capsys):
    code = script("bash", capsys)
    assert {*verbs()} <= {*offered(code, "")}
    assert offered(code, "pe") == ["peek"]
    assert offered(code, "hash") == ["hash-password"]  # not its other name as well
    assert "--delay" in offered(code, "publish", "jobs", "--d")
    assert offered(code, "--v") == ["--version"]
    assert "--url" in offered(code, "ctl", "--u")
    assert "show" in offered(code, "trace", "s")
    assert "--message" in offered(code, "trace", "show", "trace/", "--")
    assert offered(code, "completion", "") == ["-h", "--help", "bash", "zsh", "fish"]
    assert offered(code, "publish", "no-such-") == []


def test_the_other_shells_have_the_same_words(capsys):
    assert script("bash", capsys) in script("zsh", capsys)
    code = script("fish", capsys)
    assert "complete -c warrenmq -n '__fish_use_subcommand' -a publish\n" in code
    assert "complete -c warrenmq -n '__fish_seen_subcommand_from publish' -l delay\n" in code


def test_an_unknown_shell_is_wrong_usage(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["completion", "tcsh"])
    assert "fish" in capsys.readouterr().err
