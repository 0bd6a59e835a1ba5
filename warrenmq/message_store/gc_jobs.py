"""The jobs that a store sends to its garbage collector, and their results.

    | job      | files locked | waits for                            | then                                         |
    | -------- | ------------ | ------------------------------------ | -------------------------------------------- |
    | Combine  | yes          | every reader of its files            | one file of one or two (combine.py)          |
    | Compact  | yes, readers | nobody                               | records move into holes (compact.py)         |
    |          | go on        |                                      |                                              |
    | Truncate | no           | readers who began before the records | the old places of the records go             |
    |          |              | had their new places in the index    |                                              |
    | Delete   | yes          | every reader of its file             | the file goes                                |

Only the collector's process works on the files of a job, and only the store's on the tables: a job has in it what the
collector must know of the tables, and comes back when the files have changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias

from warrenmq.message_store.compact import Plan, Span

Survivor: TypeAlias = tuple[bytes, int, int]
"""(message id, offset, total size)"""


class Phase(Enum):
    """The progress of a job; written by the collector, read by a store that stops."""

    WAITING = auto()
    RUNNING = auto()
    DONE = auto()
    FAILED = auto()
    """The disk is full; every record that an index entry names is where it was."""


@dataclass(slots=True)
class Combine:
    """Make `destination` of the survivors of these files: of itself alone, or of itself and its right neighbour."""

    survivors: list[tuple[int, list[Survivor]]]
    """(file, its survivors in order of offset); the destination first."""
    phase: Phase = Phase.WAITING

    @property
    def destination(self) -> int:
        """The file that stays."""
        return self.survivors[0][0]

    @property
    def source(self) -> int | None:
        """The file that goes."""
        return self.survivors[1][0] if len(self.survivors) > 1 else None

    @property
    def files(self) -> tuple[int, ...]:
        """The locked files."""
        return tuple(file for file, _ in self.survivors)

    @property
    def size(self) -> int:
        """Bytes of all survivors."""
        return sum(total for _, survivors in self.survivors for _, _, total in survivors)


@dataclass(slots=True)
class Compact:
    """Move the survivors of a file, which is locked, into the holes between them."""

    file: int
    survivors: list[Survivor]
    """The surviving records, in order of offset."""
    plan: Plan | None = None
    """The plan that the collector carried out."""
    phase: Phase = Phase.WAITING

    @property
    def files(self) -> tuple[int, ...]:
        """The locked file."""
        return (self.file,)


@dataclass(slots=True)
class Truncate:
    """Cut a compacted file to `size`, and blank these spans before that, once all earlier readers are gone."""

    file: int
    size: int
    vacated: list[Span]
    threshold: int
    """The mark of the youngest reader that may know the old places."""
    phase: Phase = Phase.WAITING

    @property
    def files(self) -> tuple[int, ...]:
        """The file that is worked on, which is not locked."""
        return (self.file,)


@dataclass(slots=True)
class Delete:
    """Delete a file with no survivors, which is locked."""

    file: int
    phase: Phase = Phase.WAITING

    @property
    def files(self) -> tuple[int, ...]:
        """The locked file."""
        return (self.file,)


Job: TypeAlias = Combine | Compact | Truncate | Delete
