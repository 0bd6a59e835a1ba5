"""The process of a virtual host, which declares and starts its queues.

In the order of reading:

    process                 brings up queues, answers requests
    messages                its requests
    vhost                   its tables
    queue_declarations      declaring and deleting queues
    exchange_declarations   exchanges and bindings
    equivalence             whether a repeated declaration is the same
    parameters              policies and limits
    routing_trace           the rows of the trace on exchanges and bindings
"""
