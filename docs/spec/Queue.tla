--------------------------------- MODULE Queue ---------------------------------
(* One queue and its consumers: order, acks, requeues, prefetch counts and redelivered flags.

   The story is docs/queue.md.  Messages are numbered from 1 in the order in which they are published: their sequence ids.               *)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS Consumers,
          Last,         \* messages are 1..Last
          Prefetch,     \* the most that a consumer holds
          Deliveries,   \* how often a message is delivered at most
          Mutants       \* what may be wrong with the queue, by name; {} for the queue as it is meant

VARIABLES wrong,        \* what is wrong in this behaviour: one of Mutants, or "nothing"
          published,    \* messages so far
          line,         \* ready messages, as they wait
          held,         \* of each consumer: what was delivered to it and not settled, in the order of delivery
          settled,      \* messages that the queue has given up
          acked,        \* messages that consumers acked, by what they know
          times,        \* of each message: deliveries
          flagged       \* messages whose last delivery said redelivered

vars == <<wrong, published, line, held, settled, acked, times, flagged>>

Known == {"an ack settles the oldest", "a requeue goes behind the others", "a cancelled consumer keeps its messages",
          "one message more than the prefetch count", "the redelivered flag is forgotten", "the newest goes first"}

Messages == 1..Last
Range(s) == {s[i] : i \in 1..Len(s)}
Without(s, n) == SelectSeq(s, LAMBDA each : each # n)
Sorted(s) == \A i, j \in 1..Len(s) : i < j => s[i] < s[j]
Back(s, n) == SelectSeq(s, LAMBDA each : each < n) \o <<n>> \o SelectSeq(s, LAMBDA each : each > n)

RECURSIVE AllBack(_, _)
AllBack(s, numbers) == IF numbers = <<>> THEN s ELSE AllBack(Back(s, Head(numbers)), Tail(numbers))

Init ==
  /\ wrong \in Mutants \cup {"nothing"}
  /\ published = 0 /\ line = <<>> /\ held = [c \in Consumers |-> <<>>]
  /\ settled = {} /\ acked = {} /\ times = [n \in Messages |-> 0] /\ flagged = {}

Publish ==
  /\ published < Last
  /\ published' = published + 1 /\ line' = Append(line, published + 1)
  /\ UNCHANGED <<wrong, held, settled, acked, times, flagged>>

Limit == IF wrong = "one message more than the prefetch count" THEN Prefetch + 1 ELSE Prefetch

Deliver(c) ==
  /\ line # <<>> /\ Len(held[c]) < Limit
  /\ LET n == IF wrong = "the newest goes first" THEN line[Len(line)] ELSE Head(line)
     IN /\ times[n] < Deliveries
        /\ line' = Without(line, n)
        /\ held' = [held EXCEPT ![c] = Append(@, n)]
        /\ times' = [times EXCEPT ![n] = @ + 1]
        /\ flagged' = IF times[n] > 0 /\ wrong # "the redelivered flag is forgotten" THEN flagged \cup {n} ELSE flagged
  /\ UNCHANGED <<wrong, published, settled, acked>>

Ack(c, n) ==          \* any that it holds, not only the oldest
  /\ n \in Range(held[c])
  /\ LET gone == IF wrong = "an ack settles the oldest" THEN Head(held[c]) ELSE n
     IN held' = [held EXCEPT ![c] = Without(@, gone)] /\ settled' = settled \cup {gone}
  /\ acked' = acked \cup {n}
  /\ UNCHANGED <<wrong, published, line, times, flagged>>

Requeue(c, n) ==      \* to its old place
  /\ n \in Range(held[c])
  /\ held' = [held EXCEPT ![c] = Without(@, n)]
  /\ line' = IF wrong = "a requeue goes behind the others" THEN Append(line, n) ELSE Back(line, n)
  /\ UNCHANGED <<wrong, published, settled, acked, times, flagged>>

Leave(c) ==           \* the consumer's channel ends: all that it holds goes back
  /\ held[c] # <<>>
  /\ held' = [held EXCEPT ![c] = <<>>]
  /\ line' = IF wrong = "a cancelled consumer keeps its messages" THEN line ELSE AllBack(line, held[c])
  /\ UNCHANGED <<wrong, published, settled, acked, times, flagged>>

Next == \/ Publish
        \/ \E c \in Consumers : Deliver(c) \/ Leave(c) \/ \E n \in Messages : Ack(c, n) \/ Requeue(c, n)

Spec == Init /\ [][Next]_vars

(* What holds in every state *)

EachIsInOnePlace ==        \* nothing is lost, nothing is there twice
  \A n \in 1..published :
    Cardinality({c \in Consumers : n \in Range(held[c])}) + (IF n \in Range(line) THEN 1 ELSE 0) + (IF n \in settled THEN 1 ELSE 0) = 1

AnAckIsOfItsOwn == settled = acked

TheOldestWaitsInFront == Sorted(line)

FirstInFirstOut ==         \* by the time a message is first delivered, all before it were
  \A n \in Messages : times[n] > 0 => \A m \in 1..n : times[m] > 0

WithinPrefetch == \A c \in Consumers : Len(held[c]) <= Prefetch

RedeliveredIsTold == \A n \in Messages : times[n] > 1 <=> n \in flagged

Sound == EachIsInOnePlace /\ AnAckIsOfItsOwn /\ TheOldestWaitsInFront /\ FirstInFirstOut /\ WithinPrefetch /\ RedeliveredIsTold
================================================================================
