"""What the readers of index files do with an entry of which only a part is right."""

from __future__ import annotations

from enum import Enum, auto


class Policy(Enum):
    """Why a file is read.  Everything else is read alike, so a start and `check` see the same messages.

    | found                                               | RECOVER                | INSPECT                       |
    | --------------------------------------------------- | ---------------------- | ----------------------------- |
    | version 1: the size of an embedded message is wrong,| damage                 | damage, and the message with  |
    | but the message and its mark say where it ends      |                        | its true size                 |
    | version 1: a journal of nothing but zeros, or fewer | a power cut's; nothing | damage                        |
    | zeros at its end than an action has bytes           |                        |                               |
    | version 1: records                                  | with their messages    | headers and places: messages  |
    |                                                     |                        | stay in the file              |
    | version 2: the file ends within an entry, whose     | damage                 | damage, and the entry, its    |
    | message can be found                                |                        | rest from the body file       |
    """

    RECOVER = auto()
    """To go on with the queue: what is taken must be right in the file, too."""
    INSPECT = auto()
    """To list, to mend or to move messages: whatever can be had."""
