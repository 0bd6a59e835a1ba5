"""`warrenmq completion SHELL`: a script that completes verbs and options in a shell; made from the parser itself."""

from __future__ import annotations

import argparse
from typing import Any

from warrenmq.cli._parsers import add_verb

SHELLS = ("bash", "zsh", "fish")
_BASH = """\
_warrenmq() {{
  local cur="${{COMP_WORDS[COMP_CWORD]}}" path="" word words="" i
  for ((i = 1; i < COMP_CWORD; i++)); do
    word="${{COMP_WORDS[i]}}"
    case "$path $word" in
{paths}
    esac
  done
  case "$path" in
{words}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
}}
complete -o default -F _warrenmq warrenmq
"""
_ZSH = "autoload -U +X bashcompinit && bashcompinit\n"


def add_parser(subparsers: Any) -> Any:
    parser = add_verb(
        subparsers, "completion",
        summary="print a script that completes commands in a shell",
        does="Print a script for bash, zsh or fish that completes verbs and options with the tab key. Everything else is completed as "
        "file names.",
        example='eval "$(warrenmq completion bash)"  # in ~/.bashrc, or zsh in ~/.zshrc',
        ends="0 the script is printed, 2 there is no script for this shell.",
    )  # fmt: skip
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help=f"one of {', '.join(SHELLS)}")
    return parser


def run(args: argparse.Namespace) -> int:
    from warrenmq import cli  # which imports this module

    words = words_of("", cli.parser(cli.verbs()))
    print(
        fish(words) if args.shell == "fish" else (_ZSH if args.shell == "zsh" else "") + bash(words), end=""
    )
    return 0


def words_of(path: str, parser: argparse.ArgumentParser) -> dict[str, list[str]]:
    """The words that may come next: path of verbs ("", " trace", " trace show", ...) -> options, choices and verbs."""
    found: dict[str, list[str]] = {path: []}
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to ask
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            # without the other names of a verb
            names = {id(below): name for name, below in reversed(action.choices.items())}
            for name, below in action.choices.items():
                if names[id(below)] == name and name[0] != "_":
                    found[path].append(name)
                    found |= words_of(f"{path} {name}", below)
        else:
            choices = [] if action.option_strings or action.choices is None else map(str, action.choices)
            found[path] += [*action.option_strings, *choices]
    return found


def bash(words: dict[str, list[str]]) -> str:
    """The script for bash, which zsh understands, too."""
    paths = [f'      "{path}") path="{path}" ;;' for path in words if path]
    cases = [f'    "{path}") words="{" ".join(each)}" ;;' for path, each in words.items()]
    return _BASH.format(paths="\n".join(paths), words="\n".join(cases))


def fish(words: dict[str, list[str]]) -> str:
    """The script for fish."""
    lines = []
    for path, each in words.items():
        above = path.split()
        seen = (
            "; and ".join(f"__fish_seen_subcommand_from {verb}" for verb in above) or "__fish_use_subcommand"
        )
        for word in each:
            option = (
                f"-l {word[2:]}"
                if word.startswith("--")
                else f"-s {word[1:]}"
                if word.startswith("-")
                else f"-a {word}"
            )
            lines.append(f"complete -c warrenmq -n '{seen}' {option}")
    return "\n".join([*lines, ""])
