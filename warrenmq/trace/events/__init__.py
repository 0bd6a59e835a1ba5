"""The event schema: every event that an actor can record, and the meaning of its columns.

A trace is rows of nine 64-bit integers (schema.py).  An actor numbers its rows from 1 without a gap (`seq`), so a reader can
prove that nothing is missing.

    t      hybrid logical clock, ns: strictly rising per actor, send < receive between actors
    seq    the actor's own number of this row
    msg    a message: the low 64 bits of its message id (unique in a data directory; read as signed); 0 = none
    peer   another actor's trace id; on a receive, the sender
    pseq   on a receive, the `seq` of the sender's SEND row
    a b c  as the event says
    who    actor << 16 | event << 8 | flag

An event is a class, whose attributes name the columns that it uses:

    processes.py   every actor, supervisors
    queues.py      queue processes, publishers, channels, exchanges
    stores.py      message stores, garbage collectors
    system.py      alarms, flow control, the broker, marks

Their numbers and the values of their columns are in trace/words.py, which this package gives out as well.  An
event may use peer and pseq for something else, and put several values into one column.

A block of n messages published together has consecutive message ids and consecutive sequence ids; rows that
cover such a block carry its first message, its first sequence id and n.  All bodies of a block of one PUBLISH row are in
the store, or none is.  When one message leads to several receive rows, only the first names its SEND.

Rule for maintainers: a number once given is never reused; a change of meaning raises SCHEMA_VERSION.

`says` is the sentence of a row (sentences.py): {actor} wrote it, {name} is a column in words, {messages} the messages that it
covers; a part in [brackets] is left out when one of its columns holds nothing.
"""

from warrenmq.trace.events.checked import *
from warrenmq.trace.events.covered import *
from warrenmq.trace.events.processes import *
from warrenmq.trace.events.queues import *
from warrenmq.trace.events.stores import *
from warrenmq.trace.events.system import *
from warrenmq.trace.words import *

SCHEMA_VERSION = 1
PRIORITY_SHIFT = 48
"""A sequence id's bits from here on are the priority, in queues that have any; within one ids count from 0."""
