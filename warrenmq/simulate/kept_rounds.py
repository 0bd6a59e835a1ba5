"""A folder of a fleet's rounds, a Parquet file each, with which an interrupted fleet goes on where it ended."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Self

from warrenmq.directory.owner_lock import FolderLock
from warrenmq.errors import CallerError
from warrenmq.simulate.fleet import Task, Workers, script_of
from warrenmq.simulate.run import Outcome
from warrenmq.simulate.table import Parquet, read_outcomes


class KeptRounds:
    """Workers that keep the outcomes of each round, and read those of a round that the folder has; a context
    manager, in which the folder is no other fleet's.

    What a round runs depends on the rounds before it alone (fleet.py), so a fleet that goes on gives what one
    without an interruption gives.
    """

    def __init__(self, folder: str, workers: Workers) -> None:
        """Make the folder if there is none.  Raises OSError."""
        os.makedirs(folder, exist_ok=True)
        self._folder = folder
        self._workers = workers
        self.found = 0
        """Runs that the folder had."""

    def __enter__(self) -> Self:
        """Lock the folder.  Raises PreconditionFailed if another fleet has."""
        self._lock = FolderLock(self._folder, changes=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def __call__(self, tasks: Sequence[Task]) -> Sequence[Outcome]:
        """Return the outcomes of a round.  Raises CallerError if the folder has those of another fleet."""
        path = os.path.join(self._folder, f"{tasks[0].seed:013}.parquet")
        outcomes = read_outcomes(path) if os.path.exists(path) else []
        if outcomes:
            self._require_same_fleet(tasks, outcomes)
        if len(outcomes) == len(tasks):
            self.found += len(tasks)
            return outcomes
        outcomes = sorted(self._workers(tasks), key=lambda each: each.seed)
        # Spark reads no file whose name begins with a dot, and a killed process leaves no half of one
        unfinished = os.path.join(self._folder, f".{tasks[0].seed:013}")
        with Parquet(unfinished) as table:
            table.add(outcomes)
        os.replace(unfinished, path)
        return outcomes

    def _require_same_fleet(self, tasks: Sequence[Task], outcomes: Sequence[Outcome]) -> None:
        if len(outcomes) > len(tasks):
            raise CallerError(
                f"{self._folder} has {len(outcomes) - len(tasks):,} runs more from seed {tasks[-1].seed + 1} on than --runs "
                "asks for: give a larger --runs, or another folder."
            )
        for task, outcome in zip(tasks, outcomes, strict=False):
            # a changed script is text that is compared in no time; thousands of rounds are read before the first new one
            script = outcome.script if task.script == outcome.script else "\n".join(map(str, script_of(task)))
            if (task.seed, task.profile, script) != (outcome.seed, outcome.profile, outcome.script):
                raise CallerError(
                    f"{self._folder} has another run of seed {task.seed}: its fleet had other settings (--first, --size, --faults, "
                    "--profile, --script) or another version of warrenmq. Give the same ones, or another folder."
                )
