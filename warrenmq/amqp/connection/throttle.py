"""The state machine that decides whether a connection is blocked (rabbit_reader's throttle record).

Source: docs/reference/classic-queue.md#what-an-alarm-blocks.

    running ──reason──► blocking ──a content frame──► blocked ──no reason left──► running
                           └───────no reason left───────────────────────────────────┘

A reason is an alarm's source or a channel without credit.  A connection that never publishes stays in `blocking`,
where nothing is different for it.  In `blocked` the socket is not read.

| step                     | blocked now | connection.blocked is sent    | connection.unblocked is sent      |
| ------------------------ | ----------- | ----------------------------- | --------------------------------- |
| content, a reason stands | yes         | if an alarm is among them     |                                   |
| a reason more            | as before   | if blocked, first alarm       |                                   |
| a reason less, some left | as before   |                               | no alarm left, and it was sent    |
| the last reason is gone  | no          |                               | if it was sent                    |
"""

from __future__ import annotations

from typing import Literal

FLOW = "flow"
"""The reason of a connection whose channels have no credit."""
Notice = Literal["blocked", "unblocked"]


class Throttle:
    """The throttle of one connection."""

    def __init__(self) -> None:
        self.reasons: dict[str, None] = {}
        """In the order in which they came; content changes nothing while there is none."""
        self._publishes = False
        """#throttle.should_block: content has come while there was a reason."""
        self._told = False
        """#throttle.connection_blocked_message_sent"""

    @property
    def blocked(self) -> bool:
        """True while the socket must not be read."""
        return self._publishes and bool(self.reasons)

    @property
    def alarms(self) -> list[str]:
        """The alarms among the reasons, which connection.blocked names."""
        return [reason for reason in self.reasons if reason != FLOW]

    @property
    def reason_text(self) -> str:
        """The reason text of connection.blocked."""
        return f"low on {' & '.join(self.alarms)}"

    def content_received(self) -> Notice | None:
        """A content header or body was received; returns the notice to send to the client."""
        if self.reasons:
            self._publishes = True
        return self._notice()

    def set(self, reason: str, stands: bool) -> Notice | None:
        """Add or remove a reason; returns the notice to send to the client."""
        if stands:
            self.reasons[reason] = None
        else:
            self.reasons.pop(reason, None)
        notice = self._notice()
        if not self.reasons:
            self._publishes = False
        return notice

    def _notice(self) -> Notice | None:
        if self._told and not self.alarms:
            self._told = False
            return "unblocked"
        if self.blocked and self.alarms and not self._told:
            self._told = True
            return "blocked"
        return None
