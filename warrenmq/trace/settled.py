"""The consumer and the delivery tag that settled messages, as one number: column c of ACK, REQUEUE and DROP_REJECTED rows.

    bits 32 to 62   the consumer's number
    bits 0 to 31    the delivery tag that the client named: of a row without MULTIPLE that of its first message, and one more
                    for each that follows; 0 where messages came back from a consumer that is gone

Both are cut to these bits.  0 = not said, as in all traces of older versions.
"""

CONSUMER_SHIFT = 32


def settled_by(consumer: int, tag: int) -> int:
    """The number of a consumer and a tag."""
    return (consumer & (1 << 31) - 1) << CONSUMER_SHIFT | tag & (1 << CONSUMER_SHIFT) - 1
