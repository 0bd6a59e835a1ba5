"""The command line's dispatcher: verbs are found, errors become sentences, exit codes say who is to blame."""

import subprocess
import sys

import pytest

from tests.support.source_tree import ROOT
from warrenmq import cli
from warrenmq.errors import CorruptFile, SettingsError


class FakeVerb:
    """A verb that does what the test tells it to."""

    def __init__(self, does):
        self.does = does

    def add_parser(self, subparsers):
        subparsers.add_parser("fake").add_argument("--number", type=int, default=0)

    def run(self, args):
        return self.does(args)


@pytest.fixture
def verb(monkeypatch):
    def install(does):
        monkeypatch.setattr(cli, "verbs", lambda: {"fake": FakeVerb(does)})

    return install


def raising(error):
    def does(_args):
        raise error

    return does


def test_a_verb_gets_its_arguments_and_its_result_is_the_exit_code(verb):
    verb(lambda args: args.number)
    assert cli.main(["fake", "--number", "1"]) == 1
    assert cli.main(["fake"]) == 0


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (SettingsError("no such setting"), 2),
        (CorruptFile("0.rdq", 17, "no end marker"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_an_error_is_a_sentence_on_stderr_and_an_exit_code(verb, capsys, error, code):
    verb(raising(error))
    assert cli.main(["fake"]) == code
    said = capsys.readouterr()
    assert said.out == ""
    assert str(error) in said.err
    assert "Traceback" not in said.err


def test_a_defect_of_ours_keeps_its_traceback(verb):
    verb(raising(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        cli.main(["fake"])


@pytest.mark.parametrize("arguments", [[], ["no-such-verb"], ["fake", "--no-such-option"]])
def test_wrong_usage_exits_with_2(verb, capsys, arguments):
    verb(lambda _args: 0)
    with pytest.raises(SystemExit) as exit_:
        cli.main(arguments)
    assert exit_.value.code == 2
    assert "usage: warrenmq" in capsys.readouterr().err


def test_every_module_of_the_package_is_a_verb_of_its_name():
    for name, module in cli.verbs().items():
        assert callable(module.add_parser), name
        assert callable(module.run), name


def test_help_needs_no_extra():
    code = (
        "import sys\n"
        "for name in ('pyspark', 'plotly', 'rich', 'greenlet', 'pandas'): sys.modules[name] = None\n"
        "from warrenmq.cli import main\n"
        "main(['--help'])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "bench" in done.stdout
