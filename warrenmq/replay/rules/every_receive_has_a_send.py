"""T2: nothing is received that was not sent, and nothing twice."""

from __future__ import annotations

from warrenmq.replay.explain.story import mail_chain
from warrenmq.replay.rules.passes.mail import RECEIVES, Mail
from warrenmq.replay.rules.rule import FORMAT, Exercised, Rule

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
    sql=_SQL,
    explain=mail_chain,
)
