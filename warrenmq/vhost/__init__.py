"""Decisions of a virtual host, as values; its process is in actors/vhost.

In the order of reading:

    last_stops        how its queues were stopped, and what their folders hold
    queue_folders     whose folder it is, and what becomes of one that is not declared
    unknown_folders   going through these
    policies          policies and limits
"""
