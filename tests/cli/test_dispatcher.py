"""The command line's dispatcher: verbs are found, errors become sentences, exit codes say who is to blame."""

import argparse
import re
import subprocess
import sys
import tomllib

import pytest

import warrenmq
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
        monkeypatch.setattr(cli, "verbs", lambda _only: {"fake": FakeVerb(does)})

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


def test_a_defect_of_ours_is_a_sentence_that_names_a_file_with_the_traceback(
    verb, capsys, monkeypatch, tmp_path
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    verb(raising(ZeroDivisionError("by zero\nin two lines")))
    assert cli.main(["fake"]) == 2
    [said] = capsys.readouterr().err.splitlines()
    [kept] = tmp_path.iterdir()
    assert "ZeroDivisionError: by zero in two lines" in said
    assert str(kept) in said
    assert "Traceback" in kept.read_text()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (FileNotFoundError(2, "No such file or directory", "/nope/r.html"), "there is no directory /nope"),
        (
            FileNotFoundError(2, "No such file or directory", "/proc/x"),
            "/proc/x cannot be used: No such file",
        ),
        (IsADirectoryError(21, "Is a directory", b"/tmp"), "/tmp is a directory; name a file"),
        (NotADirectoryError(20, "Not a directory", "a/b"), "a part of this path is a file"),
        (OSError(28, "No space left on device"), "no room left on the disk"),
        (OSError(24, "Too many open files", "x"), "ulimit -n"),
        (OSError("odd"), "odd"),
        (PermissionError(13, "Permission denied", "a", None, "b"), "b cannot be used: Permission denied"),
    ],
)
def test_an_error_of_the_system_is_a_sentence_and_2(verb, capsys, error, said):
    verb(raising(error))
    assert cli.main(["fake"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("warrenmq fake: ")
    assert said in line


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


def test_a_verb_is_loaded_and_parsed_alone(capsys):
    assert {*cli.verbs("hash-password")} == {"hash-password"}
    assert cli.verbs("hash_password") == cli.verbs("no-such-verb") == cli.verbs()
    for words in (["check", "--help"], ["check"]):
        with pytest.raises(SystemExit):
            cli.parser(cli.verbs()).parse_args(words)
        expected = capsys.readouterr()
        with pytest.raises(SystemExit):
            cli.main(words)
        assert capsys.readouterr() == expected


def parsers(parser, path=()):
    """Every parser that prints a help text, with the words that lead to it."""
    yield path, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                yield from parsers(below, (*path, name))


HELPS = dict(parsers(cli.parser(cli.verbs())))


@pytest.mark.parametrize("path", [path for path in HELPS if path], ids=" ".join)
def test_help_is_for_people(path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    parser = HELPS[path]
    text = parser.format_help()
    assert max(map(len, text.splitlines())) <= 80
    assert f"warrenmq {path[0].replace('_', '-')}" in text.partition("Example:")[2]
    assert re.search(r"Exit status: 0 .+?, 2 ", " ".join(text.split()))
    assert parser.description.split(". ")[0][0].isupper()
    for action in parser._actions:
        if isinstance(action, (argparse._HelpAction, argparse._SubParsersAction)):
            continue
        assert action.help, action.dest
        assert action.nargs == 0 or action.choices or action.metavar, (
            f"{action.dest} has no metavar for people"
        )
        shown = parser._get_formatter()._expand_help(action)
        assert (
            action.required
            or action.default in ("==SUPPRESS==", None, False)
            or action.default == []
            or "default" in shown
        )


NUMBERS = [
    (path, action) for path, parser in HELPS.items() for action in parser._actions if action.type is not None
]


@pytest.mark.parametrize(
    ("path", "action"),
    NUMBERS,
    ids=lambda each: getattr(each, "dest", " ".join(each) if isinstance(each, tuple) else None),
)
def test_no_option_takes_an_absurd_number(path, action):
    for absurd in ("-1", "nan", "inf", "-inf", "1e400", "9" * 40, "x", "", "1 2", "\x00"):
        with pytest.raises(argparse.ArgumentTypeError) as raised:
            action.type(absurd)
            pytest.fail(f"{absurd!r} was taken")
        assert str(raised.value), absurd


def test_no_option_is_a_bare_int_or_float():
    assert NUMBERS
    assert [(path, action.dest) for path, action in NUMBERS if action.type in {int, float}] == []


def test_the_version_is_that_of_pyproject(capsys):
    with open(f"{ROOT}/pyproject.toml", "rb") as file:
        said = tomllib.load(file)["project"]["version"]
    with pytest.raises(SystemExit) as exit_:
        cli.main(["--version"])
    assert exit_.value.code == 0
    assert capsys.readouterr().out == f"warrenmq {said}\n"
    assert warrenmq.__version__ == said


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
