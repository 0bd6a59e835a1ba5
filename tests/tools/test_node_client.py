"""amqplib for the tests: installed once where npm is there; without it the tests that need it are skipped."""

import importlib.util
import os
import subprocess

import pytest

from tests.support.source_tree import ROOT


@pytest.fixture
def node_client(tmp_path, monkeypatch):
    spec = importlib.util.spec_from_file_location(
        "node_client", os.path.join(ROOT, "tools", "node_client.py")
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", str(tmp_path))
    monkeypatch.setattr(module.shutil, "which", lambda name: f"/bin/{name}")
    return module


def npm(monkeypatch, module, returncode, stderr=""):
    """An npm that only takes notes."""
    commands = []

    def run(command, **_):
        commands.append(command)
        return subprocess.CompletedProcess(command, returncode, "", stderr)

    monkeypatch.setattr(module.subprocess, "run", run)
    return commands


def test_it_is_installed_once_and_in_one_version(node_client, monkeypatch, tmp_path, capsys):
    commands = npm(monkeypatch, node_client, 0)
    node_client.ensure()
    assert commands[0][-1] == f"amqplib@{node_client.AMQPLIB}"
    folder = tmp_path / node_client.FOLDER / "node_modules" / "amqplib"
    folder.mkdir(parents=True)
    (folder / "package.json").write_text("{}")
    node_client.ensure()
    assert len(commands) == 1
    assert capsys.readouterr().err == ""


def test_without_npm_nothing_happens(node_client, monkeypatch):
    commands = npm(monkeypatch, node_client, 0)
    monkeypatch.setattr(node_client.shutil, "which", lambda _: None)
    node_client.ensure()
    assert commands == []


def test_an_npm_that_fails_is_quoted(node_client, monkeypatch, capsys):
    npm(monkeypatch, node_client, 1, "npm error\nnpm error network is down")
    node_client.ensure()
    assert (
        capsys.readouterr().err
        == "amqplib is not there, so its tests are skipped: npm error network is down\n"
    )
