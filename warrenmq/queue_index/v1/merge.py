"""The merge rules of the queue index: the facts of segment file and journal together.

Both files say facts about a message: published (P), delivered, acked.  Facts only add up, so every rule is a union
or a difference of sets, and there is no combination without an answer.  An entry is written {P, del, ack}.

(a) `segment_plus_journal`: the effective state.  A flush puts a segment's entries into its file before they
leave the journal, so either file may be ahead of the other, or both say the same.

    segment      journal                     effective
    none         {P,-,-} or {P,del,-}        as the journal
    none         {P,del,ack}                 absent
    {P,-,-}      {-,del,-}                   {P,del,-}
    {P,-,-}      {-,del,ack}                 absent
    {P,del,-}    {-,-,ack}                   absent
    {P,-,-}      {-,-,ack}                   absent

(b) `journal_minus_segment`: what of the journal is still to be flushed.

    journal                     segment        remains
    {P,x,y}                     {P,x,y}        nothing
    {P,-,-} or {P,del,-}        none           the same
    {P,del,-}                   {P,-,-}        {-,del,-}
    {P,del,ack}                 none           the same
    {P,del,ack}                 {P,-,-}        {-,del,ack}
    {P,del,ack}                 {P,del,-}      {-,-,ack}
    {-,del,-}                   {P,-,-}        the same
    {-,del,-}                   {P,del,-}      nothing
    {-,-,ack}                   {P,del,-}      the same
    {-,-,ack}                   {P,del,ack}    nothing
    {-,del,ack}                 {P,-,-}        the same
    {-,del,ack}                 {P,del,-}      {-,-,ack}
    {-,del,ack}                 {P,del,ack}    nothing
    {-,-,ack} or {-,del,ack}    none           nothing: the segment is deleted already
    {-,-,ack}                   {P,-,-}        {-,del,ack}: the file knows an ack only as a second mark

RabbitMQ replays its journal into an array in which {P,del,ack} vanishes; a publish that the segment already has then
comes back although its ack is on disk.  Here a replayed journal keeps the whole entry, so rule (b) sees it.

Source: rabbit_queue_index:segment_plus_journal and journal_minus_segment, docs/reference/classic-queue.md#merge-rules.
"""

from __future__ import annotations

from warrenmq.queue_index.v1.segment import Facts


def segment_plus_journal(segment: Facts, journal: Facts) -> Facts:
    """Rule (a), without messages that were acked, or never published."""
    acked = segment.acked | journal.acked
    # if they differ, a sequence id in the journal was damaged; rule (b) keeps the file's record too
    both = journal.published | segment.published
    published = {relative: record for relative, record in both.items() if relative not in acked}
    present = published.keys()
    return Facts(
        published,
        (segment.transient | journal.transient) & present,
        (segment.delivered | journal.delivered) & present,
        set(),
    )


def journal_minus_segment(journal: Facts, segment: Facts) -> Facts:
    """Rule (b)."""
    known = segment.published.keys() | journal.published.keys()
    published = {
        relative: record
        for relative, record in journal.published.items()
        if relative not in segment.published
    }
    acked = (journal.acked - segment.acked) & known
    delivered = ((journal.delivered & known) | acked) - segment.delivered
    return Facts(published, journal.transient & published.keys(), delivered, acked)
