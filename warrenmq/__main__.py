"""`python -m warrenmq`: the same as the command `warrenmq`."""

from __future__ import annotations

import sys

from warrenmq.cli import main

if __name__ == "__main__":
    sys.exit(main())
