"""T2: nothing is received that was not sent, and nothing twice."""

from __future__ import annotations

from warrenmq.replay.explain.story import mail_chain
from warrenmq.replay.rules.passes.mail import RECEIVES, Mail
from warrenmq.replay.rules.rule import FORMAT, Exercised, Rule

RULE = Rule(
    id="T2",
    name="every receive has a send",
    text=("A receive names a SEND that exists, and no SEND is received twice."),
    sources=(FORMAT,),
    exercised=Exercised("a receive", dict.fromkeys(RECEIVES)),
    machines=(Mail,),
    explain=mail_chain,
)
