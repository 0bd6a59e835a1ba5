"""`warrenmq`, with a wall clock that is as wrong as a file says: `python -m tools.skewed FILE serve --data DIR`.

FILE holds the nanoseconds that `time.time` and `time.time_ns` are ahead, and is written while the program
runs (`set_ahead`).  The clock of the machine is everybody's, and is left alone.
"""

from __future__ import annotations

import mmap
import struct
import sys
import time
from pathlib import Path

_AHEAD = struct.Struct("<q")


def set_ahead(file: Path, seconds: float) -> None:
    """Set the wall clock of the programs that run with this file."""
    with file.open("r+b" if file.exists() else "w+b", buffering=0) as opened:
        opened.write(_AHEAD.pack(round(seconds * 1e9)))


def skew(file: Path) -> None:
    """Have this process take its wall clock from the file."""
    with file.open("rb") as opened:
        ahead = mmap.mmap(opened.fileno(), _AHEAD.size, access=mmap.ACCESS_READ)
    right = time.time_ns
    time.time_ns = lambda: right() + _AHEAD.unpack(ahead)[0]
    time.time = lambda: time.time_ns() / 1e9


if __name__ == "__main__":
    skew(Path(sys.argv[1]))
    from warrenmq.cli import main  # what keeps a function of the clock keeps this one

    sys.exit(main(sys.argv[2:]))
