"""The trace: what actors record of a run, in files that survive SIGKILL (docs/trace.md).

In the order of reading:

    words              the numbers of events, and the values of their columns
    schema             how an event is declared
    events/processes   events of every actor, and of supervisors
    events/queues      of queues, publishers, channels, exchanges
    events/stores      of message stores and their collectors
    events/system      of alarms, the broker itself, marks
    events/covered     which messages and SENDs a row is about
    events/checked     which messages have a checksum in their rows
    writers            a function for each event, which writes its row
    clock              the time of a row
    row_check          its check
    slab               the latest rows of each actor, mapped from a file
    recorder           the rows of all actors of a run
    row_recorder       the same in memory
    block              the bytes of a frame
    packing            its rows, packed
    segment            the files of frames
    sink               where these files are
    marks              named places
    receives           which rows name a SEND
    index              what is in one file
    catalog            the runs and actors of many
    reader             their rows
    slab_reader        the slabs of a run that is being written
    tail               new rows, each once
    machine            whether the process that recorded a run has ended
    sentences          rows in words
"""
