"""The files of one queue: the position of each message, and small messages themselves (docs/queue.md).

In the order of reading; v1 and v2 are RabbitMQ's two formats:

    protocol           what a backing queue asks of an index
    record             a message as one bytes object
    v1/journal         version 1: every action, appended
    v1/segment         the entries of segment files, which take over from the journal
    v1/segment_files   those files: read, appended to, deleted
    v1/index           journal and segments together
    v1/reader          whole records, and damage, in any bytes
    v1/alike           a segment file of equal messages, as columns
    v1/merge           what journal and segment mean together
    v1/walk            what a folder holds, before it is opened
    v1/recovery        opening it
    v2/qi              version 2: the entries of a segment
    v2/qs              the bodies of a segment
    v2/index           both together
    v2/segment_files   the two files of each segment
    v2/pack            the bytes of a flush, as columns
    v2/unpack          the same read back
    v2/derived_crc     the checksum of a body from the one that its message has
    v2/reader          entries, and damage, in any bytes
    v2/walk            what a folder holds, before it is opened
    v2/recovery        opening it
    versions           which version a folder has, and the conversion to the other
    live_segments      segments with messages that are not acked, of both versions
    file_numbers       N of N.idx, N.qi, N.qs
    contents           what would outlive a start
"""
