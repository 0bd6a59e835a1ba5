"""The face: an open data directory as an application sees it (docs/embedding.md).

In the order of reading:

    broker            Broker: what users call
    handles           QueueHandle and Exchange, which it gives them
    embedded          `open` in this process
    arguments         checks of what users pass
    message_options   the keywords of a publish
    publisher         one thread's way to the queues: alarms, routing, credit
    transaction       tx
    getter            gets
    consumer          the iterator over deliveries
    delivery          a message, and the ways to settle it
    retry             retries, by the policy of a queue
    stats             what `Broker.stats` returns
    engine            the directory and the supervision tree behind it
    client            calls, publishing and acks of all threads
    calls             calls that wait while a process is restarted
    parts             what Broker needs of these, which another process may have
    run_trace         the trace of one run
    simple_queue      warrenmq.Queue
    codecs            its items as bytes
    migration         messages that come from another directory
"""
