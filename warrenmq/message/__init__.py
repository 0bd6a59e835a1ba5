"""One message, in memory and as bytes.

In the order of reading:

    properties         AMQP's basic properties
    typed_headers      headers that keep AMQP's types
    stored             the bytes of a message
    queue_message      a message of one queue
    runs               runs of sequence ids
    columns            many messages that are alike
    header_changes     stored bytes with other headers
    plain_properties   properties of RabbitMQ's own messages
    extent             where damaged bytes of one end
"""
