"""Which findings stand while the trace is still being written.

At the end of a trace a finding stands when every row that could have changed it is there (verdict.py).  So it does here:
`known_until` is then the time up to which everything was read.  Some rules look beyond the time of their finding:

    rule   what else it looks at                              it stands when, besides
    C2     whole earlier incarnations of the queue            all of them have ended, and the one that recovered is known up to
                                                              its QUEUE_RECOVERED; what comes later does not matter.  What a
                                                              queue confirmed and lost in one life stands at once
    S2     was the queue that the store ignored about to      the queue went on to work, or has ended
           stop?
    S8     was the reader killed while it read?               the reader has ended
    S1 E1  how queues and stores ended                        the run has ended (they are asked for only then); for E1 between two
                                                              lives, so have all actors of the name

A finding that does not stand yet is looked at again with the next rows: nothing is called lost that is in flight.
"""

from __future__ import annotations

from warrenmq.replay.drive.machines import Finding
from warrenmq.replay.drive.trace_context import TraceContext, Who
from warrenmq.trace.catalog import FOREVER


def is_final(finding: Finding, context: TraceContext) -> bool:
    """See the module."""
    if finding.rule == "C2" and finding.needs:
        return _recovered_wrongly(finding, context)
    if finding.rule == "E1" and finding.t == FOREVER:
        return all(_has_ended(who, context) for who in finding.needs)
    if not all(context.known_until(who) >= finding.t for who in finding.needs):
        return False
    if finding.rule == "S2" and len(finding.needs) > 1:
        client = finding.needs[1]
        return _has_ended(client, context) or context.actor_summary(client).last_work > finding.t
    if finding.rule == "S8":
        run, actor, _ = finding.rows[0]
        return _has_ended((run, actor), context)
    return True


def _recovered_wrongly(finding: Finding, context: TraceContext) -> bool:
    run, actor, _ = finding.rows[0]
    who = run, actor
    recovered = context.actor_summary(who).recovered
    if recovered is None or context.known_until(who) < recovered[0]:
        return False
    return all(_has_ended(each, context) for each in finding.needs if each < who)


def _has_ended(who: Who, context: TraceContext) -> bool:
    """Every row that it will ever have written is there; an actor without any row has written none."""
    return who not in context.coverage or context.known_until(who) == FOREVER
