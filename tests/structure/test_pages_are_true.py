"""What the README and docs/ name is there: files, links, settings, invariants."""

import re
from dataclasses import fields

import pytest

from tests.support.source_tree import modules, pages, text_of, tracked_files
from warrenmq.replay.rules.registry import RULES
from warrenmq.settings import Settings

MADE_BY_COMMANDS = {"report.html", "warrenmq-demo.html", "rabbitmq.conf", "page.html"}
FILE = re.compile(r"`([\w./-]+\.(?:py|md|toml|txt|html|conf|json))`")


@pytest.mark.parametrize("page", pages())
def test_every_file_that_a_page_names_exists(page):
    """By its path, or the end of it: `process.py` is enough beside `actors/queue/`."""
    there = "\n".join(["", *(tracked_files() or []), ""])
    named = FILE.findall(text_of(page))
    missing = [each for each in named if f"/{each}\n" not in there and f"\n{each}\n" not in there]
    assert [each for each in missing if each not in MADE_BY_COMMANDS] == []


def test_every_setting_in_the_readme_is_one_and_has_the_default_that_is_said():
    table = text_of("README.md").partition("| setting | default |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \|", table, re.MULTILINE)
    defaults = {each.name: each.default for each in fields(Settings)}
    units = {"16 MiB": 16 << 20, "25 ms": 25}
    assert rows
    for name, said in rows:
        plain = said.strip().strip("`")
        default = defaults[name]
        assert plain == str(default) or units.get(plain) == default or plain == str(default).strip("()"), name


def test_every_package_is_in_the_readme():
    listed = text_of("README.md").partition("## Where things are")[2]
    packages = [name for name, module in modules().items() if module.is_package and name.count(".") == 1]
    assert [name for name in packages if f"{name.rpartition('.')[2]}/" not in listed] == []


def test_every_invariant_is_on_the_page_about_replay_in_its_own_words():
    page = " ".join(text_of("docs/replay.md").split())
    lines = {rule.id: f"| {rule.id} | {rule.name} | {rule.text} |" for rule in RULES.values()}
    assert [rule for rule, line in lines.items() if line not in page] == []
