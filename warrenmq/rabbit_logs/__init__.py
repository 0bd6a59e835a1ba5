"""Logs of RabbitMQ's tracing plugin, and the lifecycles of a production broker's messages in them.

In the order of reading:

    record        one record of a log: a message was published, or was received by a consumer
    text_format   records of the text format
    json_format   records of the JSON format
    terms         the Erlang terms in a text log
    log_files     files in, records out, in the order of their times
    lifecycles    which delivery belongs to which publish
    order         whether a queue gave messages in the order in which they came
    traffic       rates, delays and depths
    summary       all of it for a terminal or as JSON
    spark         lifecycles as a DataFrame; it alone knows Spark
"""
