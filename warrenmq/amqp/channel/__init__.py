"""One channel of a client (rabbit_channel).

In the order of reading:

    process          receives frames, has the parts below handle them
    content          frames become methods and contents
    methods          which part handles which method
    context          what it shares with its connection
    messages         what arrives from queues and other channels
    publishing       basic.publish
    credit           credit towards the queues
    confirms         basic.ack and nack to the publisher
    transaction      tx
    consuming        basic.consume, get, qos
    consumers        who holds deliveries at the queues
    unacked          deliveries that wait for an ack
    settling         basic.ack, nack, reject, recover
    declarations     exchanges and queues
    access           permissions
    access_methods   the class access
    message          a message between its stored form and AMQP's
    reply_to         direct reply-to
    rpc              state of the broker, for attached processes
    writer           frames to the socket
"""
