"""T4: a message is sent before it is received."""

from __future__ import annotations

from typing import Any

from warrenmq.replay.drive.machines import Key, Outcome
from warrenmq.replay.drive.trace_context import TraceContext
from warrenmq.replay.explain.story import mail_chain
from warrenmq.replay.rules.passes.mail import Bucket, Mail, is_its_receiver, misreceived
from warrenmq.replay.rules.rule import FORMAT, Exercised, Judge, Rule
from warrenmq.trace.receives import RECEIVES


def _in_time(sent: Any, _receiver: Any, received: Any, _actor: Any, _undelivered: Any) -> Any:
    return sent < received


def _late(key: Key, bucket: Bucket, context: TraceContext, outcome: Outcome) -> None:
    for sent, receiver, undelivered, receive in bucket.odd:
        if sent >= receive.t and is_its_receiver(receiver, receive.actor, undelivered):
            text = f"was received {sent - receive.t} ns before it was sent"
            outcome.findings.append(misreceived("T4", key, receive, text, context))


_SQL = """
SELECT r.run, r.actor, r.seq
FROM receives AS r JOIN send_rows AS s ON s.run = r.run AND s.actor = r.sender AND s.seq = r.send
WHERE s.t >= r.t AND (s.receiver IN (0, r.actor) OR r.event = 5)
"""

RULE = Rule(
    id="T4",
    name="send before receive",
    text=("The t of a SEND is below the t of its receive."),
    sources=(FORMAT,),
    exercised=Exercised("a receive", dict.fromkeys(RECEIVES)),
    machines=(Mail,),
    judge={Mail: Judge(_in_time, _late)},
    sql=_SQL,
    explain=mail_chain,
)
