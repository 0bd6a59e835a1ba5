"""One sync for the files of all queues and stores of a directory (docs/confirms.md#the-commit-log).

In the order of reading:

    record     the bytes of a record: these bytes at this place of this file
    log        the log: commits of many threads share a sync
    disk       a Disk whose syncs go through it, and the replay at a start
    contents   what it has that the files may lack
    note       which of its records is the newest, in a file beside it
"""
