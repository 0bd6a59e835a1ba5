"""Record the transcripts anew, from the RabbitMQ that is installed (3.10.8 in Debian 12, package rabbitmq-server).

    python -m tests.transcripts.record [PROGRAM...]

Each program of programs.py is run, and what RabbitMQ sent is written to recorded/PROGRAM.txt.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.transcripts import rabbitmq
from tests.transcripts.programs import PROGRAMS, run

RECORDED = Path(__file__).with_name("recorded")


def main() -> None:
    if (reason := rabbitmq.why_not()) is not None:
        sys.exit(f"Nothing was recorded: {reason}.")
    with tempfile.TemporaryDirectory() as base, rabbitmq.running(Path(base)) as port:
        for name in sys.argv[1:] or PROGRAMS:
            (RECORDED / f"{name}.txt").write_text(run(name, port))
            print(name)


if __name__ == "__main__":
    main()
