"""The virtual environment behind the README's two commands: made once, made again when its recipe changes."""

import importlib.util
import os
import subprocess
import sys

import pytest

from tests.support.source_tree import ROOT


@pytest.fixture
def project_venv(tmp_path, monkeypatch):
    """The module, in a project of its own, with a pip that only takes notes."""
    spec = importlib.util.spec_from_file_location(
        "project_venv", os.path.join(ROOT, "tools", "project_venv.py")
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", str(tmp_path))
    (tmp_path / "constraints.txt").write_text("")
    (tmp_path / "pyproject.toml").write_text(
        '[dependency-groups]\ndev = ["pytest>=8", "ruff"]\ndocs = ["mkdocs"]\n'
    )
    module.installed = []
    monkeypatch.setattr(
        module, "_install", lambda _python, requirements: module.installed.append(requirements)
    )

    def make(folder, python):
        os.makedirs(os.path.dirname(python), exist_ok=True)
        if not os.path.exists(python):
            os.symlink(sys.executable, python)

    monkeypatch.setattr(module, "_make", make)
    return module


def test_the_second_time_nothing_is_installed(project_venv):
    first = project_venv.ensure("demo")
    assert project_venv.ensure("demo") == first
    assert project_venv.installed == [["-e", ".[demo]"]]


def test_the_commands_share_one_environment(project_venv):
    """The packages of the tests are added to those of the demo, which are among them."""
    assert len({project_venv.ensure("demo"), project_venv.ensure("all"), project_venv.ensure("demo")}) == 1
    assert project_venv.installed == [["-e", ".[demo]"], ["-e", ".[all]"]]
    project_venv.installed.clear()
    os.remove(os.path.join(project_venv.ROOT, project_venv.FOLDER, "stamp-demo"))
    project_venv.ensure("demo")
    assert project_venv.installed == []


def test_dependency_groups_are_read_from_pyproject(project_venv):
    project_venv.ensure("all", groups=("dev", "docs"))
    assert project_venv.installed == [["-e", ".[all]", "pytest>=8", "ruff", "mkdocs"]]


@pytest.mark.parametrize("name", ["pyproject.toml", "constraints.txt"])
def test_a_changed_recipe_installs_again(project_venv, tmp_path, name):
    project_venv.ensure("demo")
    with open(tmp_path / name, "a") as file:
        file.write("# changed\n")
    project_venv.ensure("demo")
    assert len(project_venv.installed) == 2


def test_an_installation_that_broke_off_is_done_again(project_venv, monkeypatch):
    def fail(_python, _requirements):
        sys.exit("pip failed")

    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(project_venv, "_install", fail)
        project_venv.ensure("demo")
    project_venv.ensure("demo")
    assert len(project_venv.installed) == 1


def test_an_old_python_gets_a_sentence(project_venv, monkeypatch):
    monkeypatch.setattr(project_venv.sys, "version_info", (3, 9, 2))
    with pytest.raises(SystemExit, match=r"needs Python 3\.11"):
        project_venv.ensure("demo")


def test_child_processes_keep_compiled_modules(project_venv, monkeypatch):
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    assert project_venv.run(sys.executable, "-c", "import sys; sys.exit(sys.dont_write_bytecode)") == 0


def test_arguments_and_exit_codes_pass_through(project_venv):
    assert project_venv.run(sys.executable, "-c", "import sys; sys.exit(len(sys.argv))", "a", "b") == 3


@pytest.mark.parametrize("script", ["examples/run_demo.py", "tests/run.py"])
def test_the_scripts_stand_on_the_standard_library_alone(script):
    code = f"import runpy; runpy.run_path({script!r}, run_name='imported')"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
