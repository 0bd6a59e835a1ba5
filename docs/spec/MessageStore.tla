----------------------------- MODULE MessageStore -----------------------------
(* The message store: writes and removes on their way, references, files, and the collector that combines two files.

   The stories are docs/message-store.md and docs/garbage-collection.md.  Clients are queues.  What a client sends comes to the store in the
   order in which it was sent; the store handles one operation at a time.  A file is the set of messages that have a record in it.        *)
EXTENDS Naturals, Integers, Sequences, FiniteSets, TLC

CONSTANTS Clients,    \* queues
          Messages,
          LastFile,   \* files are numbered from 1; the current one is the last that was opened
          Sends,      \* how many operations a client sends in all
          Mutants     \* what may be wrong with the store, by name; {} for the store as it is meant

VARIABLES wrong,      \* what is wrong in this behaviour: one of Mutants, or "nothing"
          holds,      \* of each client: the messages that it refers to, by what it has sent
          mailbox,    \* of each client: the operations that are on their way, in order
          flying,     \* of each client and message: writes minus removes that were sent and not handled
          sent,       \* of each client: how many operations it has sent
          refs,       \* of each message: references
          place,      \* of each message in the index: its file; 0 = no entry
          records,    \* of each file: the messages that have a record in it
          current,    \* the file that is appended to
          locked,     \* files at the collector
          reader,     \* of each client: the message that it reads, and the file in which it looks; or Nobody
          deferred    \* removes of last references that wait for the collector, as messages

vars == <<wrong, holds, mailbox, flying, sent, refs, place, records, current, locked, reader, deferred>>

Known == {"the flying count is not lowered", "a cancelled remove is done", "a second reference is not counted",
          "a combine leaves records out", "the collector does not wait for readers", "a file is deleted that holds a message"}

Symmetry == Permutations(Clients) \cup Permutations(Messages)      \* one is like another, so one order of them is enough

Files == 1..LastFile
Nobody == <<>>
Live(f) == {m \in Messages : refs[m] > 0 /\ place[m] = f}

Init ==
  /\ wrong \in Mutants \cup {"nothing"}
  /\ holds = [c \in Clients |-> {}] /\ mailbox = [c \in Clients |-> <<>>]
  /\ flying = [c \in Clients |-> [m \in Messages |-> 0]]
  /\ sent = [c \in Clients |-> 0]
  /\ refs = [m \in Messages |-> 0] /\ place = [m \in Messages |-> 0]
  /\ records = [f \in Files |-> {}] /\ current = 1
  /\ locked = {} /\ reader = [c \in Clients |-> Nobody] /\ deferred = {}

(* Clients *)

Send(c, m, operation, difference) ==      \* counted before it is sent, so the store finds the count
  /\ sent[c] < Sends
  /\ sent' = [sent EXCEPT ![c] = @ + 1]
  /\ flying' = [flying EXCEPT ![c][m] = @ + difference]
  /\ mailbox' = [mailbox EXCEPT ![c] = Append(@, <<operation, m>>)]
  /\ UNCHANGED <<wrong, refs, place, records, current, locked, reader, deferred>>

SendWrite(c, m) ==
  /\ m \notin holds[c] /\ Send(c, m, "write", 1)
  /\ holds' = [holds EXCEPT ![c] = @ \cup {m}]

SendRemove(c, m) ==
  /\ m \in holds[c] /\ Send(c, m, "remove", -1)
  /\ holds' = [holds EXCEPT ![c] = @ \ {m}]

BeginRead(c, m) ==      \* not from a file at the collector: then the store reads, when it is back
  /\ reader[c] = Nobody /\ m \in holds[c] /\ place[m] # 0 /\ place[m] \notin locked
  /\ reader' = [reader EXCEPT ![c] = <<m, place[m]>>]
  /\ UNCHANGED <<wrong, holds, mailbox, flying, sent, refs, place, records, current, locked, deferred>>

EndRead(c) ==
  /\ reader[c] # Nobody
  /\ reader' = [reader EXCEPT ![c] = Nobody]
  /\ UNCHANGED <<wrong, holds, mailbox, flying, sent, refs, place, records, current, locked, deferred>>

(* The store *)

First(c) == Head(mailbox[c])
Take(c) == mailbox' = [mailbox EXCEPT ![c] = Tail(@)]

CountsWrite(seen) == seen > 0
CountsRemove(seen) == seen < 0 \/ wrong = "a cancelled remove is done"

AppendTo(m) ==
  /\ records' = [records EXCEPT ![current] = @ \cup {m}]
  /\ place' = [place EXCEPT ![m] = current]
  /\ refs' = [refs EXCEPT ![m] = 1]

WriteDone(c, m) ==      \* the table of decisions on writes; a remove that waits for the collector waits no more
  /\ flying' = [flying EXCEPT ![c][m] = IF wrong = "the flying count is not lowered" THEN @ ELSE @ - 1]
  /\ deferred' = deferred
  /\ IF place[m] = 0 \/ (refs[m] = 0 /\ place[m] \in locked)
       THEN AppendTo(m)
       ELSE /\ refs' = [refs EXCEPT ![m] = IF wrong = "a second reference is not counted" /\ @ > 0 THEN @ ELSE @ + 1]
            /\ UNCHANGED <<place, records>>

RemoveDone(c, m) ==
  /\ flying' = [flying EXCEPT ![c][m] = @ + 1]
  /\ IF refs[m] = 1 /\ place[m] \in locked
       THEN deferred' = deferred \cup {m} /\ UNCHANGED refs
       ELSE deferred' = deferred /\ refs' = [refs EXCEPT ![m] = @ - 1]
  /\ UNCHANGED <<place, records>>

Ignored == UNCHANGED <<flying, refs, place, records, deferred>>

Write(c) ==
  /\ mailbox[c] # <<>> /\ First(c)[1] = "write" /\ Take(c)
  /\ LET m == First(c)[2] IN m \notin deferred /\ IF CountsWrite(flying[c][m]) THEN WriteDone(c, m) ELSE Ignored
  /\ UNCHANGED <<wrong, holds, sent, current, locked, reader>>

Remove(c) ==
  /\ mailbox[c] # <<>> /\ First(c)[1] = "remove" /\ Take(c)
  /\ LET m == First(c)[2] IN m \notin deferred /\ IF CountsRemove(flying[c][m]) THEN RemoveDone(c, m) ELSE Ignored
  /\ UNCHANGED <<wrong, holds, sent, current, locked, reader>>

Forget(c, m) ==           \* a queue died, and its successor, whose index does not name the message, has registered
  /\ m \in holds[c] /\ mailbox[c] = <<>> /\ refs[m] > 0 /\ place[m] \notin locked
  /\ holds' = [holds EXCEPT ![c] = @ \ {m}] /\ refs' = [refs EXCEPT ![m] = @ - 1]
  /\ reader' = [reader EXCEPT ![c] = Nobody]
  /\ UNCHANGED <<wrong, mailbox, flying, sent, place, records, current, locked, deferred>>

Roll ==
  /\ current < LastFile /\ records[current] # {}
  /\ current' = current + 1
  /\ UNCHANGED <<wrong, holds, mailbox, flying, sent, refs, place, records, locked, reader, deferred>>

(* The collector *)

Lock(left, right) ==      \* the survivors are known from here on: what comes later waits
  /\ locked = {} /\ left < right /\ right < current /\ records[left] # {} /\ records[right] # {}
  /\ locked' = {left, right}
  /\ UNCHANGED <<wrong, holds, mailbox, flying, sent, refs, place, records, current, reader, deferred>>

Inside(files) == {c \in Clients : reader[c] # Nobody /\ reader[c][2] \in files}

Combine ==                \* when the last reader has left: a new file in place of the left one, then the index learns, the right one goes
  /\ locked # {}
  /\ Inside(locked) = {} \/ wrong = "the collector does not wait for readers"
  /\ LET left == CHOOSE f \in locked : \A g \in locked : f <= g
         right == CHOOSE f \in locked : f # left
         survivors == Live(left) \cup (IF wrong = "a combine leaves records out" THEN {} ELSE Live(right))
         dropped == {m \in deferred : place[m] \in locked}
     IN /\ records' = [records EXCEPT ![left] = survivors, ![right] = {}]
        /\ place' = [m \in Messages |-> IF place[m] \notin locked THEN place[m] ELSE IF refs[m] > 0 THEN left ELSE 0]
        /\ refs' = [m \in Messages |-> IF m \in dropped THEN refs[m] - 1 ELSE refs[m]]
        /\ deferred' = deferred \ dropped
  /\ locked' = {}
  /\ UNCHANGED <<wrong, holds, mailbox, flying, sent, current, reader>>

Delete(f) ==              \* a file in which nothing is referenced
  /\ f # current /\ f \notin locked /\ records[f] # {}
  /\ Live(f) = {} \/ wrong = "a file is deleted that holds a message"
  /\ Inside({f}) = {} \/ wrong = "the collector does not wait for readers"
  /\ records' = [records EXCEPT ![f] = {}]
  /\ place' = [m \in Messages |-> IF place[m] = f THEN 0 ELSE place[m]]
  /\ UNCHANGED <<wrong, holds, mailbox, flying, sent, refs, current, locked, reader, deferred>>

Next == \/ Roll \/ Combine
        \/ \E c \in Clients : Write(c) \/ Remove(c) \/ EndRead(c) \/ \E m \in Messages : SendWrite(c, m) \/ SendRemove(c, m) \/ BeginRead(c, m) \/ Forget(c, m)
        \/ \E f, g \in Files : Lock(f, g)
        \/ \E f \in Files : Delete(f)

Spec == Init /\ [][Next]_vars

(* What holds in every state *)

Quiet(m) == m \notin deferred /\ \A c \in Clients : \A i \in 1..Len(mailbox[c]) : mailbox[c][i][2] # m

ReferencesAreTrue ==      \* when nothing is on its way, each client that holds a message counts once
  \A m \in Messages : Quiet(m) => refs[m] = Cardinality({c \in Clients : m \in holds[c]})

NothingHeldIsDropped ==   \* what a client holds, and was written, has a record where the index says
  \A c \in Clients : mailbox[c] = <<>> => \A m \in holds[c] : place[m] # 0 /\ m \in records[place[m]]

ReadersFindTheirRecord == \A c \in Clients : reader[c] # Nobody => reader[c][1] \in records[reader[c][2]]

NoNegativeReferences == \A m \in Messages : refs[m] >= 0

FlyingSettles ==          \* an empty mailbox has nothing flying
  \A c \in Clients : mailbox[c] = <<>> => \A m \in Messages : flying[c][m] = 0

Sound == ReferencesAreTrue /\ NothingHeldIsDropped /\ ReadersFindTheirRecord /\ NoNegativeReferences /\ FlyingSettles
================================================================================
