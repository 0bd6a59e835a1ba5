"""Committed files speak of the project alone."""

import os
import re

import pytest

from tests.support.source_tree import ROOT, tracked_files

HOSTS = [".".join(parts) for parts in (
    ("pypi", "org"), ("pythonhosted", "org"), ("npmjs", "org"), ("npmjs", "com"), ("deb", "debian", "org"),
    ("ftp", "debian", "org"), ("maven", "org"), ("crates", "io"),
)]  # fmt: skip
FOLDERS = ["/" + "/".join(parts) for parts in (
    ("work", ""), ("root", ""), ("home", ""), ("Users", ""), ("opt", "wq"), ("tmp", "bash_jobs"),
)]  # fmt: skip
"""Put together here, so that this file does not name what it looks for."""

FORBIDDEN = re.compile(rb"(?<![\w.~-])(" + b"|".join(re.escape(each.encode()) for each in FOLDERS) + rb")|\b("
                       + b"|".join(re.escape(each.encode()) for each in HOSTS) + rb")\b")  # fmt: skip
LARGEST = 1_000_000

tracked = pytest.mark.skipif(tracked_files() is None, reason="not in a checkout")


@tracked
def test_no_file_names_a_path_of_one_machine_or_the_host_of_a_registry():
    found = []
    for name in tracked_files():
        path = os.path.join(ROOT, name)
        if os.path.islink(path) or not os.path.isfile(path):
            continue
        with open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                if match := FORBIDDEN.search(line):
                    found.append(f"{name}:{number}: {match[0]!r}")
    assert found == []


@tracked
def test_links_stay_inside_the_repository():
    links = {name: os.readlink(os.path.join(ROOT, name)) for name in tracked_files() if is_link(name)}
    assert links == {"warrenmq/actors": "../actors", "warrenmq/supervisors": "../supervisors"}


def is_link(name):
    return os.path.islink(os.path.join(ROOT, name))


@tracked
def test_no_file_is_large():
    sizes = {name: os.lstat(os.path.join(ROOT, name)).st_size for name in tracked_files() if exists(name)}
    assert {name: size for name, size in sizes.items() if size > LARGEST} == {}


def exists(name):
    return os.path.lexists(os.path.join(ROOT, name))
