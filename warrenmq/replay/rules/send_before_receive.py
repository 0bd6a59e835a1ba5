"""T4: a message is sent before it is received."""

from __future__ import annotations

from warrenmq.replay.explain.story import mail_chain
from warrenmq.replay.rules.passes.mail import RECEIVES, Mail
from warrenmq.replay.rules.rule import FORMAT, Exercised, Rule

_SQL = """
SELECT r.run, r.actor, r.seq
FROM receives AS r JOIN send_rows AS s ON s.run = r.run AND s.actor = r.sender AND s.seq = r.send
WHERE s.t >= r.t
"""

RULE = Rule(
    id="T4",
    name="send before receive",
    text=("The t of a SEND is below the t of its receive."),
    sources=(FORMAT,),
    exercised=Exercised("a receive", dict.fromkeys(RECEIVES)),
    machines=(Mail,),
    sql=_SQL,
    explain=mail_chain,
)
