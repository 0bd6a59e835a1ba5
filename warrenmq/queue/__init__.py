"""The decisions of one queue, as values; its process is in actors/queue (docs/queue.md).

In the order of reading:

    state               the queue: takes messages, leaves effects
    setting             what a queue is made with
    messages            what can arrive
    effects             what can be left to do
    collected           publishes and acks that grow while they wait in the mailbox
    publish_buffer      publishes until they are let in together
    overflow            publishes that a full queue refuses
    unconfirmed         the syncs that each publish waits for
    index_sync          syncs of the index; a full disk
    group_commit        whether to let others go on before a sync
    consumers           the consumers, and what each holds
    channel_record      what is kept of a channel and of each of its consumers; their turns
    limiter             the prefetch that a channel's consumers share
    output              deliveries, acks, requeues
    ack_timeout         deliveries that an application holds for too long
    arguments           x-arguments, checked and read
    limits              max-length and time to live, as functions
    expiry_and_limits   what expires, or is too much, at the front
    drops               messages that leave without a consumer
    x_death             the headers of a dead letter
    returns             x-delivery-limit
    return_counts       its counts, in a file
    unsafe_acks         the note that bodies went before their acks were safe
    failure             what a consumer notes on a message that it gives back for later
    due                 delayed messages, released when their time has come
    queue_expiry        x-expires
    ram_duration        reports to the memory monitor
    drain               waits for outstanding confirms at a close
    asleep              a queue that has no process
    trace               the rows of the trace
"""
