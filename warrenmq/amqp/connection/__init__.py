"""One connection of a client (rabbit_reader).

In the order of reading:

    process             receives bytes, speaks channel 0
    phases              what is allowed when
    handshake           protocol, login, virtual host
    server_properties   what the server says of itself
    channels            its channels, by number
    throttle            whether the socket is read
    blocking            what a blocked connection does
    messages            what can arrive
"""
