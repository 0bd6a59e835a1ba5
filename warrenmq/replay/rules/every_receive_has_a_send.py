"""T2: a message that is received was sent, and is received once."""

from __future__ import annotations

from itertools import chain
from typing import Any

from warrenmq.replay.drive.machines import Key, Outcome
from warrenmq.replay.drive.trace_context import TraceContext, Who
from warrenmq.replay.explain.story import mail_chain
from warrenmq.replay.rules.passes.mail import Bucket, Mail, is_its_receiver, misreceived
from warrenmq.replay.rules.rule import FORMAT, Exercised, Judge, Rule
from warrenmq.trace.catalog import STRANGER
from warrenmq.trace.receives import RECEIVES


def _is_its_receiver(_sent: Any, receiver: Any, _received: Any, actor: Any, undelivered: Any) -> Any:
    return is_its_receiver(receiver, actor, undelivered)


def _unmatched(key: Key, bucket: Bucket, context: TraceContext, outcome: Outcome) -> None:
    for _, receiver, undelivered, receive in bucket.odd:
        if not is_its_receiver(receiver, receive.actor, undelivered):
            text = f"was sent to actor {receiver}"
            outcome.findings.append(misreceived("T2", key, receive, text, context))
    for receive in bucket.again:
        outcome.findings.append(misreceived("T2", key, receive, "was received twice", context))
    run, _ = who = int(key[0]), int(key[1])
    for receive in chain.from_iterable(bucket.waiting.values()):
        text = f"was received by {context.name((run, receive.actor))}, but there is no such row"
        needs: tuple[Who, ...] = (who,)
        if context.ends_unproven(who, receive.send):
            needs = (who, (run, STRANGER))
        outcome.findings.append(misreceived("T2", key, receive, text, context, needs))


_SQL = """
SELECT r.run, r.actor, r.seq
FROM receives AS r LEFT JOIN send_rows AS s ON s.run = r.run AND s.actor = r.sender AND s.seq = r.send
WHERE s.seq IS NULL OR (s.receiver <> 0 AND s.receiver <> r.actor AND r.event <> 5)
UNION
SELECT run, min(actor), min(seq) FROM receives GROUP BY run, sender, send HAVING count(*) > 1
"""

RULE = Rule(
    id="T2",
    name="every receive has a send",
    text=("A receive names a SEND that exists, and no SEND is received twice."),
    sources=(FORMAT,),
    exercised=Exercised("a receive", dict.fromkeys(RECEIVES)),
    machines=(Mail,),
    judge={Mail: Judge(_is_its_receiver, _unmatched)},
    sql=_SQL,
    explain=mail_chain,
)
