"""The numbers in the names of a folder's files: N.idx, N.qi, N.qs."""

from __future__ import annotations

_PLAUSIBLE_NUMBER = 1 << 48
"""The largest plausible segment number: no queue comes this far."""


def file_numbers(names: list[str], extension: str) -> list[int]:
    """The numbers of the files with this extension, ascending; other names are no segment's."""
    stems = [name.removesuffix(extension) for name in names if name.endswith(extension)]
    numbers = [int(stem) for stem in stems if stem.isascii() and stem.isdigit()]
    return sorted(number for number in numbers if number < _PLAUSIBLE_NUMBER)
