"""The process around warrenmq/queue.

In the order of reading:

    process       receives, has the state decide, carries out its effects
    recovery      what it does before the first message
    priorities    which of its messages come first
    dead_letter   publishes copies to the dead-letter exchange
    release       publishes delayed messages whose time has come
"""
