"""The choice of a Java, the error on a machine without one, and the home that Java is started from."""

from __future__ import annotations

import os
import subprocess

import pytest

from warrenmq.replay import SparkUnavailable
from warrenmq.replay.spark.home import home_of_links
from warrenmq.replay.spark.java import ensure_java, java_version

FULL = "java.base java.sql jdk.incubator.vector"


@pytest.fixture
def make_java(tmp_path):
    """A folder that looks like a Java: its `java` prints its arguments, one a line."""

    def make(name, version, modules=FULL):
        home = tmp_path / name
        (home / "bin").mkdir(parents=True)
        (home / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n')
        (home / "bin" / "java").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
        (home / "bin" / "java").chmod(0o755)
        return home

    return make


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A machine with these Javas and no other."""

    def build(java_home=None, on_path=None, wheel=None):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        monkeypatch.setenv("PATH", str(on_path / "bin") if on_path else "")
        if java_home:
            monkeypatch.setenv("JAVA_HOME", str(java_home))
        else:
            monkeypatch.setenv("JAVA_HOME", "")
        found = [home for home in (java_home, on_path, wheel) if home]
        if wheel is None:
            monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
        else:
            monkeypatch.setattr("warrenmq.replay.spark.java._candidates", lambda: found)

    return build


def test_java_home_comes_first(machine, make_java):
    home = make_java("set", "17.0.15")
    machine(java_home=home, on_path=make_java("path", "21.0.8"))
    assert ensure_java() == home
    assert os.environ["JAVA_HOME"] == str(home)


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.22"])
def test_a_java_home_that_is_too_old_is_passed_over(machine, make_java, version):
    path = make_java("path", "21.0.8")
    machine(java_home=make_java("old", version), on_path=path)
    assert ensure_java() == path


def test_a_java_without_the_vector_module_is_started_through_a_filter(machine, make_java):
    wheel = make_java("with a 'quote'", "21.0.8", "java.base java.sql")
    machine(wheel=wheel)
    home = ensure_java()
    assert home != wheel
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-cp", "a b", "Main"]
    said = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert said.stdout.splitlines() == ["-Xmx1g", "-cp", "a b", "Main"]
    assert ensure_java() == home


def test_no_java_at_all_names_both_remedies(machine):
    machine()
    with pytest.raises(SparkUnavailable, match=r"warrenmq\[java\].*JAVA_HOME"):
        ensure_java()


def test_a_java_that_does_not_run_has_no_version(tmp_path):
    assert java_version(tmp_path) is None


def test_a_home_of_links_has_a_folder_for_the_archive(tmp_path):
    installed = tmp_path / "site-packages" / "pyspark"
    libraries = installed / "python" / "lib"
    libraries.mkdir(parents=True)
    for file in (installed / "__init__.py", libraries / "pyspark.zip", libraries / "py4j-src.zip"):
        file.touch()
    home = home_of_links(tmp_path / "cache" / "spark-1", installed)
    assert (home / "python" / "lib" / "pyspark.zip" / "pyspark" / "__init__.py").is_file()
    assert (home / "python" / "lib" / "py4j-src.zip").samefile(libraries / "py4j-src.zip")
    assert home_of_links(home, tmp_path / "another") == home
    assert [each.name for each in home.parent.iterdir()] == ["spark-1"]
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        home_of_links(tmp_path / "file" / "spark-1", installed)
