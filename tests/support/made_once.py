"""Bytes that take long to make and are the same in every process of a test run: the one that needs them first makes them for all."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from tempfile import NamedTemporaryFile

folder: Path | None = None
"""A folder of this test run that all of its processes see (conftest.py); None without any others."""


def made_once(name: str, make: Callable[[], bytes]) -> bytes:
    """The bytes of this name, made here if no other process has made them yet."""
    if folder is None:
        return make()
    if not (kept := folder / name).exists():
        with NamedTemporaryFile(dir=folder, delete=False) as file:
            file.write(make())
        os.replace(file.name, kept)  # at once: another process may be about to read it
    return kept.read_bytes()
