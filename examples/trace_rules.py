"""Two rules of one's own on a trace: a query, and a machine.

python examples/trace_rules.py
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import warrenmq
from warrenmq.replay import Exercised, Finding, Machine, Outcome, Rule, SqlRule, replay
from warrenmq.trace.events import Ack, Ev, Publish

WAITED = SqlRule(
    id="no-long-wait",
    text="a message waited longer than 50 ms to be delivered",
    sql="""
        SELECT d.run, d.actor, d.seq
        FROM steps AS d JOIN steps AS p ON p.run = d.run AND p.actor = d.actor AND p.id = d.id
        WHERE p.event = 20 AND d.event = 24 AND d.t - p.t > 50000000
    """,  # PUBLISH is event 20, DELIVER 24; t is in ns
    cases="SELECT run, actor, seq FROM deliver_rows",
)


def _change(row: Any) -> int:
    return Publish.of(row).count if row.event == Ev.PUBLISH else -Ack.of(row).count


class Depths(Machine):
    """Counts what is in each queue: the rows of one come in their order, cut into pieces."""

    name = "depths"
    events = frozenset({Ev.PUBLISH, Ev.ACK})
    LIMIT = 20

    def summarise(self, piece: Any, rows: list[Any]) -> Iterator[tuple[Any, Any]]:
        changes = [(_change(row), row.seq, row.t) for row in rows]
        yield (piece.run, piece.actor), changes

    def start(self, key: Any) -> list[Any]:  # noqa: ARG002
        return []

    def absorb(self, state: list[Any], summary: list[Any]) -> None:
        state += summary

    def finish(self, key: Any, state: list[Any], context: Any) -> Outcome:
        outcome, depth = Outcome(), 0
        for change, seq, t in state:
            depth += change
            if depth > self.LIMIT:
                rows = ((*key, seq),)
                subject = f"queue {context.name(key)}"
                text = f"{depth} messages are in it, {self.LIMIT} are allowed"
                outcome.findings.append(Finding("shallow", subject, text, rows, t, (key,)))
                break
        return outcome


SHALLOW = Rule(
    id="shallow",
    name="queues stay shallow",
    text="A queue never holds more than 20 messages.",
    exercised=Exercised("a publish", {Ev.PUBLISH: None}),
    machines=(Depths,),
)


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        with warrenmq.open(f"{folder}/data", trace=f"{folder}/trace") as broker:
            queue = broker.declare_queue("jobs")
            for number in range(30):
                queue.publish(b"%d" % number)
            time.sleep(0.2)
            while (message := queue.get(timeout=0)) is not None:
                message.ack()
        found = replay(f"{folder}/trace", engine="python", picture=False, rules=[WAITED, SHALLOW])
    for rule in found.rules:
        if rule.id in {"no-long-wait", "shallow"}:
            print(f"{rule.id}: {rule.violated} violated")
    return 0 if {each.rule for each in found.violations} == {"no-long-wait", "shallow"} else 1


if __name__ == "__main__":
    sys.exit(main())
