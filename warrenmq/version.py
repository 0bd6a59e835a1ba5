"""The version of this package, which pyproject.toml says: the one beside the package in a checkout, else the
installed one.
"""

from __future__ import annotations

import re

from warrenmq.location import HOME


def version() -> str:
    """The package's version, for example 0.1.0; "unknown" for a package that was copied without its metadata."""
    try:
        with open(HOME / "pyproject.toml", encoding="utf-8") as file:
            said = re.search(r'^name = "warrenmq"\nversion = "([^"]+)"$', file.read(), re.MULTILINE)
    except OSError:
        said = None
    if said is not None:
        return said[1]
    from importlib import metadata  # noqa: PLC0415  # which takes longer than the rest of `import warrenmq`

    try:
        return metadata.version("warrenmq")
    except metadata.PackageNotFoundError:
        return "unknown"
