-------------------------------- MODULE Compact --------------------------------
(* Compaction of one file in place, while clients read it, and a power cut at any moment.

   The story is docs/garbage-collection.md.  A file is a row of places of one size.  A place holds the bytes of a message's record, whole or
   torn (without its marker), or nothing that a scan could take for a record.                                                           *)
EXTENDS Naturals, FiniteSets

CONSTANTS Messages, Clients,
          Places,     \* the file has 1..Places, and one message in each to begin with
          Mutants     \* what may be wrong with the collector, by name; {} for the collector as it is meant

VARIABLES wrong,      \* what is wrong in this behaviour: one of Mutants, or "nothing"
          live,       \* messages that are referenced
          index,      \* of each message: its place, by what the store knows
          holds,      \* of each place: the message whose bytes are there; "zeros" for a hole that was cleared
          whole,      \* places whose record has its marker
          size,       \* places that the file has
          step,       \* of the collector: "idle", "cleared", "copied", "marked", "waits"
          moves,      \* of the collector: <<message, old place, new place>>
          mark,       \* counts reads
          threshold,  \* the last read that may know old places
          reader      \* of each client: <<message, place, mark>>, or Nobody

vars == <<wrong, live, index, holds, whole, size, step, moves, mark, threshold, reader>>

Known == {"a copy goes over a living record", "the file is cut at once", "the index learns before the copies are whole",
          "the marker is written first", "holes are not cleared"}

Nobody == <<>>
Zeros == "zeros"

Init ==
  /\ wrong \in Mutants \cup {"nothing"}
  /\ live = Messages
  /\ index = CHOOSE some \in [Messages -> 1..Places] : \A m, n \in Messages : m # n => some[m] # some[n]
  /\ holds = [p \in 1..Places |-> CHOOSE m \in Messages : index[m] = p]
  /\ whole = 1..Places /\ size = Places
  /\ step = "idle" /\ moves = {} /\ mark = 0 /\ threshold = 0
  /\ reader = [c \in Clients |-> Nobody]

Remove(m) ==
  /\ m \in live /\ live' = live \ {m}
  /\ UNCHANGED <<wrong, index, holds, whole, size, step, moves, mark, threshold, reader>>

BeginRead(c) ==
  /\ reader[c] = Nobody /\ mark < Places
  /\ \E m \in live : reader' = [reader EXCEPT ![c] = <<m, index[m], mark + 1>>]
  /\ mark' = mark + 1
  /\ UNCHANGED <<wrong, live, index, holds, whole, size, step, moves, threshold>>

EndRead(c) ==
  /\ reader[c] # Nobody /\ reader' = [reader EXCEPT ![c] = Nobody]
  /\ UNCHANGED <<wrong, live, index, holds, whole, size, step, moves, mark, threshold>>

(* The collector *)

Living == {index[m] : m \in live}
Holes == {p \in 1..size : p \notin Living}
Targets == IF wrong = "a copy goes over a living record" THEN 1..size ELSE Holes

Plan ==               \* what moves where is settled, and the holes that it uses are cleared and synced
  /\ step = "idle" /\ size = Places
  /\ \E m \in live, new \in Targets :
       /\ new < index[m]
       /\ moves' = {<<m, index[m], new>>}
       /\ IF wrong = "holes are not cleared" THEN UNCHANGED <<holds, whole>>
            ELSE holds' = [holds EXCEPT ![new] = Zeros] /\ whole' = whole \ {new}
  /\ step' = "cleared"
  /\ UNCHANGED <<wrong, live, index, size, mark, threshold, reader>>

Copy ==               \* all but the last byte, synced; where that byte is already a marker, a torn copy looks whole
  /\ step = "cleared" /\ step' = "copied"
  /\ holds' = [p \in 1..Places |-> IF \E move \in moves : move[3] = p THEN (CHOOSE move \in moves : move[3] = p)[1] ELSE holds[p]]
  /\ whole' = IF wrong = "the marker is written first" THEN whole \cup {move[3] : move \in moves} ELSE whole
  /\ UNCHANGED <<wrong, live, index, size, moves, mark, threshold, reader>>

Mark ==               \* the last byte, synced
  /\ step = "copied" /\ step' = "marked"
  /\ whole' = whole \cup {move[3] : move \in moves}
  /\ UNCHANGED <<wrong, live, index, holds, size, moves, mark, threshold, reader>>

Learn ==              \* the index names the new places
  /\ step = "marked" \/ (step = "copied" /\ wrong = "the index learns before the copies are whole")
  /\ step' = "waits" /\ threshold' = mark
  /\ index' = [m \in Messages |-> IF \E move \in moves : move[1] = m /\ index[m] = move[2]
                                  THEN (CHOOSE move \in moves : move[1] = m)[3] ELSE index[m]]
  /\ UNCHANGED <<wrong, live, holds, whole, size, moves, mark, reader>>

Old == {c \in Clients : reader[c] # Nobody /\ reader[c][3] <= threshold}

Truncate ==           \* when nobody reads who may know an old place
  /\ step = "waits" /\ (Old = {} \/ wrong = "the file is cut at once")
  /\ step' = "idle" /\ moves' = {}
  /\ size' = CHOOSE n \in 0..Places : (\A p \in Living : p <= n) /\ \A k \in 0..Places : (\A p \in Living : p <= k) => n <= k
  /\ UNCHANGED <<wrong, live, index, holds, whole, mark, threshold, reader>>

Next == \/ Plan \/ Copy \/ Mark \/ Learn \/ Truncate
        \/ \E c \in Clients : BeginRead(c) \/ EndRead(c)
        \/ \E m \in Messages : Remove(m)

Spec == Init /\ [][Next]_vars

(* What holds in every state *)

Intact(m, p) == p <= size /\ holds[p] = m /\ p \in whole

ReadersFindTheirRecord ==  \* also a reader of a message that was given up meanwhile
  \A c \in Clients : reader[c] # Nobody /\ reader[c][1] \in live => Intact(reader[c][1], reader[c][2])

IndexIsTrue == \A m \in live : Intact(m, index[m])

NoTornCopyLooksWhole ==    \* a power cut while copies are written tears them: a scan must not take one for a record
  step = "cleared" => \A move \in moves : move[3] \notin whole

MarkedLast ==
  step = "copied" => \A move \in moves : move[3] \notin whole

Sound == ReadersFindTheirRecord /\ IndexIsTrue /\ NoTornCopyLooksWhole /\ MarkedLast
================================================================================
