"""Share one data directory between processes: `warrenmq.open(path, shared=True)` (needs the extra `amqp`).

    owner       a Broker, and an AMQP server on the socket in the directory
    attached    an AMQP client of that server, behind the same face

    SharedBroker ─ SharedClient ─ Links ─┬─ Owned: this process has the lock
                                         └─ Attachment: connections to the process that has it

When the owner ends, every attached process tries for the lock: one gets it, recovers the directory and serves the others.
"""
