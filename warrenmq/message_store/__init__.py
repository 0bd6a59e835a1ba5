"""The message store without its processes, which are in actors/store: tables, files and decisions, as values
(docs/message-store.md).

In the order of reading:

    rdq               the bytes of a record
    message_index     table: message id -> references, file, offset, size
    file_summary      table: file -> size, valid bytes, readers
    owner_refs        table: queue -> the messages that it refers to
    flying            table: writes and removes that are on their way, and may cancel each other
    cur_file_cache    table: bodies that may not be in a file yet
    file_handles      the open files
    tables            the tables that clients touch, too, and what the store knows of each client
    actions           what a write, or a remove, does
    current_file      the file that is appended to, and its write buffer
    writer            group commit and roll-over
    state             all of these together: what clients ask of the store
    effects           what the state leaves for its process to send
    gc_plan           when there is enough garbage, and in which files
    gc_jobs           the jobs of the collector, and their results
    gc                locked files, and what waits until they are back
    combine           a job: one file of two
    compact           a job: records move within their file
    dump              what a clean stop leaves for the next start
    scan              the records of a file, whatever happened to it
    missed            in which files a message that no file has may have been
    recovery          a start from the files alone
    lost_references   references that no queue names after a start
    damage            what turned out to be damaged when it was read
    trace             the rows of the trace that need some thought
"""
