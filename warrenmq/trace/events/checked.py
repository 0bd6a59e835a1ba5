"""The choice of messages whose rows have a checksum."""

NOT_CHECKED = 15 << 6
"""Bits that the sequence ids of messages with a checksum do not have, nor the ids of messages whose records
have one: 64 of 1,024, the first ones among them.  A random number in each row would make a trace a tenth
larger; a broker that mixes bodies up does so there, too.
"""
_CHECKED_TOGETHER = 64
"""The most messages of which a row has a checksum as often as a row of one: a row of 512 has one if its first
id is among the first 512 of 8,192.
"""


def is_checked(first_seq_id: int, count: int) -> bool:
    """True if a row of these messages has a checksum, which a sixteenth of all messages are in, whether they
    come singly or in large batches.
    """
    if count > _CHECKED_TOGETHER:
        first_seq_id >>= (count - 1).bit_length() - (_CHECKED_TOGETHER - 1).bit_length()
    return not first_seq_id & NOT_CHECKED
