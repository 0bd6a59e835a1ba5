"""The line of a queue's messages: where each is, in memory or on disk, and in which order they leave (docs/queue.md).

In the order of reading:

    protocol         what a queue asks of it
    variable_queue   the line of one queue; where messages are in memory is up to one of the next two
    read_ahead       a head in memory, a tail on disk (RabbitMQ from 3.12)
    memory_target    q1, q2, delta, q3, q4 (RabbitMQ to 3.11)
    paging           when memory_target pages, and how much, as functions
    rates            how fast messages enter and leave
    priority_queue   a line for each priority
    delayed          a line in the order of due times
    parts            what all of them share
"""
