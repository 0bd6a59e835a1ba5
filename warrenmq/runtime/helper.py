"""Helper: a thread from outside, and what it is expected to do behind its next send.

A thread of an application that sends a message and then waits runs the actor itself (waiting.py), so no worker is called for
it.  Its past tells whether it is going to wait:

| it makes an actor ready                                    | who runs the actor                                      |
| ---------------------------------------------------------- | ------------------------------------------------------- |
| out of an actor that it runs                               | itself, or a worker when it leaves                      |
| with a message behind which it waited soon, the last time  | itself; a worker a tick of the wheel later, if not      |
| with one behind which it did not, and that can wait        | whoever comes next, or a worker a tick later            |
| with any other                                             | a worker, at once                                       |

Mail that is left when it has its answer goes to a worker, too, unless it can wait and this thread is the only one that sends.
"""

from __future__ import annotations

from collections import deque

from warrenmq.runtime.messages import unwrapped
from warrenmq.runtime.workers import Cell, Runner
from warrenmq.signals import runs_handlers

SOON = 4
"""Sends within which a thread from outside is expected to wait, if it did so the last time."""
ALONE = 16
"""Sends of a thread from outside, with none of another thread between them, from which on it leaves what can
wait to itself: a worker serves several threads with fewer changes of thread than they do themselves.
"""
MOST_MINE = 32
"""Cells that a thread from outside remembers to have made ready."""


class Helper(Runner):
    """A thread from outside that waits now and then.

    mine     cells that its own sends made ready, or the actors that it ran: the ones that it may run
    sent     the classes of messages that made one ready since it waited last, the last SOON of them
    hurries  classes of messages behind which it did not wait soon, the last time; behind all others it is expected to
    in_a_row its sends that made an actor ready, since another thread's did
    is_main  it is the thread in which the handlers of signals run
    """

    def __init__(self) -> None:
        super().__init__()
        self.mine: deque[Cell] = deque()
        self.sent: list[type] = []
        self.hurries: set[type] = set()
        self.in_a_row = 0
        self.is_main = runs_handlers()

    def keep(self, cell: Cell, message: object) -> bool:
        if not cell.helpable:
            return False
        if self.cell is not None:  # it runs it, or calls a worker when it leaves
            if len(self.mine) >= MOST_MINE:
                return False
            self.mine.append(cell)
            return True
        if len(self.mine) >= MOST_MINE:
            self.mine.popleft()
        self.mine.append(cell)
        kind = type(unwrapped(message))
        self.sent.append(kind)
        if len(self.sent) > SOON:
            self.hurries.add(self.sent.pop(0))
        # before it looks, so that who comes after the look calls a worker
        cell.lazy = cell.workers.ticking
        if cell.workers.latest is self:
            self.in_a_row += 1
        else:
            cell.workers.latest = self
            self.in_a_row = 0
        return cell.lazy and (kind not in self.hurries or cell.can_wait())

    def waits(self) -> None:
        """Note that it waits now."""
        self.hurries.difference_update(self.sent)
        self.sent.clear()

    def has_others(self) -> bool:
        return bool(self.mine) and any(cell in cell.workers.ready for cell in self.mine)

    def hand_over(self) -> None:
        """Leave to the workers what it might have run itself."""
        while self.mine:
            cell = self.mine.popleft()
            if cell in cell.workers.ready:
                # before it looks, so that who comes after the look calls a worker
                cell.lazy = cell.workers.ticking
                if not (cell.lazy and self.in_a_row >= ALONE and cell.can_wait()):
                    cell.lazy = False
                    cell.workers.call_worker()

    __enter__ = hand_over
