"""The way from a publishing thread or channel to the queues; no process.

In the order of reading:

    message_sender   ids, heads and credit, on the way to each queue
    confirms         the promise of a publish
    guid             unique names
"""
