"""pyproject.toml names packages by hand, as two of them live outside warrenmq/: it must name them all."""

import importlib
import os
import tomllib

import pytest

from tests.support.source_tree import HOMES, ROOT, modules


@pytest.fixture(scope="module")
def pyproject():
    with open(os.path.join(ROOT, "pyproject.toml"), "rb") as file:
        return tomllib.load(file)


def test_every_package_on_disk_is_in_the_wheel(pyproject):
    on_disk = sorted(name for name, module in modules().items() if module.is_package)
    assert sorted(pyproject["tool"]["setuptools"]["packages"]) == on_disk


def test_every_folder_with_sources_is_a_package():
    folders = {os.path.dirname(module.path) for module in modules().values()}
    assert all(os.path.exists(os.path.join(folder, "__init__.py")) for folder in folders)


def test_the_top_folders_are_mapped_and_linked(pyproject):
    assert pyproject["tool"]["setuptools"]["package-dir"] == HOMES
    for folder in ("actors", "supervisors"):
        assert os.readlink(os.path.join(ROOT, "warrenmq", folder)) == os.path.join("..", folder)


@pytest.mark.parametrize("folder", ["actors", "supervisors"])
def test_the_top_folders_refuse_their_bare_name(folder, monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    with pytest.raises(ImportError, match=f"import warrenmq.{folder}"):
        importlib.import_module(folder)


def test_the_package_is_marked_as_typed(pyproject):
    assert pyproject["tool"]["setuptools"]["package-data"]["warrenmq"] == ["py.typed"]
    assert os.path.exists(os.path.join(ROOT, "warrenmq", "py.typed"))


def test_every_constraint_is_one_exact_version():
    with open(os.path.join(ROOT, "constraints.txt"), encoding="utf-8") as file:
        lines = [line.strip() for line in file if line.strip() and not line.startswith("#")]
    names = [line.partition("==")[0].lower() for line in lines]
    assert names == sorted(names)
    for line in lines:
        name, equals, version = line.partition("==")
        assert name, line
        assert equals, line
        assert version[0].isdigit(), line
