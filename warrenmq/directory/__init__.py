"""The data directory, apart from what queues and stores keep in it.

In the order of reading:

    layout              its files and folders
    owner_lock          one owner at a time
    definitions         durable queues, exchanges and bindings
    definition_frames   the bytes of their log
    recovery_terms      what a clean stop says of a queue
    torn                the end of a file after a power cut
    quarantine          where damaged bytes are kept
    damage_log          what was found damaged
    foreign             directories that RabbitMQ wrote
"""
