"""The folder of this package."""

from __future__ import annotations

from pathlib import Path

HOME = Path(__file__).resolve().parent.parent
"""The folder that holds the package: of a checkout its root, else that of the installed packages."""
