"""The processes around warrenmq/message_store.

In the order of reading:

    messages    what they send each other
    process     the store: receives, has its state decide, sends the effects
    client      the store's end in each queue process
    collector   the garbage collector
"""
