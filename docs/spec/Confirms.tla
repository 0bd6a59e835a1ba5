------------------------------- MODULE Confirms -------------------------------
(* A queue, its index and the body of each message in a store, from publish to confirm, ack, power cut and recovery.

   The story is docs/confirms.md.  One queue; what is on the disk of each message is its entry in the index, the ack of that entry, and its
   body: of a small message a part of the entry, of a large one a record of the store.  Each is absent, written (a power cut may keep it or
   not), or safe (synced).                                                                                                              *)
EXTENDS Naturals

CONSTANTS Messages,   \* every message is published at most once
          Large,      \* those of them whose body goes to the store
          Crashes,    \* how many power cuts there may be
          Mutants     \* what may be wrong with the broker, by name; {} for the broker as it is meant

VARIABLES wrong,      \* what is wrong in this behaviour: one of Mutants, or "nothing"
          up,         \* the queue runs
          stage,      \* of each message in the queue's memory: "unsent", "ready", "unacked", "settled" or "dropped"
          entry,      \* of each message in the index: "absent", "written" or "safe"
          ack,        \* likewise: the ack of its entry
          body,       \* of each large message in the store: "absent", "flying" (a write is on its way), "written", "safe" or "removed"
          reported,   \* large messages of which the queue has heard that they are safe, or that they need no sync
          confirmed,  \* messages that were confirmed to their publishers
          crashes     \* power cuts so far

vars == <<wrong, up, stage, entry, ack, body, reported, confirmed, crashes>>

Known == {"confirm before the index is synced", "confirm before the body is safe", "remove before the ack is safe",
          "the store reports before its sync", "acks are not read"}

InQueue == {"ready", "unacked"}
OnDisk(m) == entry[m] = "safe" /\ (m \in Large => body[m] = "safe")

Init ==
  /\ wrong \in Mutants \cup {"nothing"}
  /\ up = TRUE /\ crashes = 0
  /\ stage = [m \in Messages |-> "unsent"]
  /\ entry = [m \in Messages |-> "absent"]
  /\ ack = [m \in Messages |-> "absent"]
  /\ body = [m \in Messages |-> "absent"]
  /\ reported = {} /\ confirmed = {}

(* The queue *)

Publish(m) ==
  /\ up /\ stage[m] = "unsent"
  /\ stage' = [stage EXCEPT ![m] = "ready"]
  /\ entry' = [entry EXCEPT ![m] = "written"]
  /\ body' = [body EXCEPT ![m] = IF m \in Large THEN "flying" ELSE "absent"]
  /\ UNCHANGED <<wrong, up, ack, reported, confirmed, crashes>>

IndexSync ==      \* one sync for all that was written
  /\ up
  /\ entry' = [m \in Messages |-> IF entry[m] = "written" THEN "safe" ELSE entry[m]]
  /\ ack' = [m \in Messages |-> IF ack[m] = "written" THEN "safe" ELSE ack[m]]
  /\ UNCHANGED <<wrong, up, stage, body, reported, confirmed, crashes>>

Deliver(m) ==
  /\ up /\ stage[m] = "ready"
  /\ stage' = [stage EXCEPT ![m] = "unacked"]
  /\ UNCHANGED <<wrong, up, entry, ack, body, reported, confirmed, crashes>>

Requeue(m) ==
  /\ up /\ stage[m] = "unacked"
  /\ stage' = [stage EXCEPT ![m] = "ready"]
  /\ UNCHANGED <<wrong, up, entry, ack, body, reported, confirmed, crashes>>

Ack(m) ==
  /\ up /\ stage[m] = "unacked"
  /\ stage' = [stage EXCEPT ![m] = "settled"]
  /\ ack' = [ack EXCEPT ![m] = "written"]
  /\ UNCHANGED <<wrong, up, entry, body, reported, confirmed, crashes>>

Drop(m) ==        \* expired, purged, rejected: an ack that nobody asked for
  /\ up /\ stage[m] \in InQueue
  /\ stage' = [stage EXCEPT ![m] = "settled"]
  /\ ack' = [ack EXCEPT ![m] = "written"]
  /\ UNCHANGED <<wrong, up, entry, body, reported, confirmed, crashes>>

Remove(m) ==      \* the reference in the store is given up when the ack is safe; a write on its way is cancelled
  /\ up /\ stage[m] = "settled" /\ m \in Large /\ body[m] \in {"flying", "written", "safe"}
  /\ ack[m] = "safe" \/ wrong = "remove before the ack is safe"
  /\ body' = [body EXCEPT ![m] = "removed"]
  /\ UNCHANGED <<wrong, up, stage, entry, ack, reported, confirmed, crashes>>

Confirm(m) ==     \* both parts are there
  /\ up /\ stage[m] \in InQueue \cup {"settled"} /\ m \notin confirmed
  /\ entry[m] = "safe" \/ wrong = "confirm before the index is synced"
  /\ m \in Large => m \in reported \/ wrong = "confirm before the body is safe"
  /\ confirmed' = confirmed \cup {m}
  /\ UNCHANGED <<wrong, up, stage, entry, ack, body, reported, crashes>>

(* The store *)

Write(m) ==
  /\ body[m] = "flying"
  /\ body' = [body EXCEPT ![m] = "written"]
  /\ UNCHANGED <<wrong, up, stage, entry, ack, reported, confirmed, crashes>>

StoreSync ==
  /\ body' = [m \in Messages |-> IF body[m] = "written" THEN "safe" ELSE body[m]]
  /\ UNCHANGED <<wrong, up, stage, entry, ack, reported, confirmed, crashes>>

Report(m) ==      \* the queue hears from the store
  /\ up /\ m \in Large /\ m \notin reported
  /\ body[m] \in {"safe", "removed"} \/ (body[m] = "written" /\ wrong = "the store reports before its sync")
  /\ reported' = reported \cup {m}
  /\ UNCHANGED <<wrong, up, stage, entry, ack, body, confirmed, crashes>>

(* The end, and what is found *)

Kept(what) == CASE what = "written" -> {"absent", "safe"}
                [] what = "flying" -> {"absent"}
                [] OTHER -> {what}

IndexIsCut ==     \* what is safe stays; of what was only written anything may
  /\ up /\ up' = FALSE /\ crashes < Crashes /\ crashes' = crashes + 1
  /\ \E e, a \in [Messages -> {"absent", "safe"}] :
       /\ \A m \in Messages :
            e[m] \in Kept(entry[m]) /\ a[m] \in Kept(ack[m])
            /\ (ack[m] = "written" /\ a[m] = "safe" => e[m] = "safe")      \* they follow each other in one journal
       /\ entry' = e /\ ack' = a
  /\ UNCHANGED <<wrong, stage, reported, confirmed>>

BodiesAreCut == body' \in [Messages -> {"absent", "safe", "removed"}] /\ \A m \in Messages : body'[m] \in Kept(body[m])

PowerCut == IndexIsCut /\ BodiesAreCut

QueueDies == IndexIsCut /\ UNCHANGED body      \* its process alone: the store goes on

QueueStops ==     \* cleanly: its index is synced
  /\ up /\ up' = FALSE
  /\ entry' = [m \in Messages |-> IF entry[m] = "written" THEN "safe" ELSE entry[m]]
  /\ ack' = [m \in Messages |-> IF ack[m] = "written" THEN "safe" ELSE ack[m]]
  /\ UNCHANGED <<wrong, stage, reported, confirmed, crashes>>

CleanStop ==      \* and then the store: what is on its way arrives, and is synced
  /\ QueueStops
  /\ body' = [m \in Messages |-> IF body[m] \in {"flying", "written"} THEN "safe" ELSE body[m]]

StoreDied ==      \* before the queue stopped, or before it stopped itself
  /\ QueueStops /\ BodiesAreCut

Found(m) == /\ entry[m] = "safe"
            /\ ack[m] = "absent" \/ wrong = "acks are not read"
            /\ m \in Large => body[m] \in {"written", "safe"}

Recover ==        \* what has an entry without an ack, and a body, is there again; nothing else is
  /\ ~up /\ up' = TRUE
  /\ stage' = [m \in Messages |-> IF stage[m] = "unsent" THEN "unsent"
                                  ELSE IF Found(m) THEN "ready" ELSE IF stage[m] = "settled" THEN "settled" ELSE "dropped"]
  /\ entry' = [m \in Messages |-> IF Found(m) THEN "safe" ELSE "absent"]
  /\ body' = [m \in Messages |-> IF Found(m) THEN body[m] ELSE "absent"]
  /\ reported' = {}
  /\ UNCHANGED <<wrong, ack, confirmed, crashes>>

Next == \/ IndexSync \/ StoreSync \/ PowerCut \/ QueueDies \/ CleanStop \/ StoreDied \/ Recover
        \/ \E m \in Messages : Publish(m) \/ Deliver(m) \/ Requeue(m) \/ Ack(m) \/ Drop(m) \/ Remove(m) \/ Confirm(m) \/ Write(m) \/ Report(m)

Spec == Init /\ [][Next]_vars

(* What holds in every state *)

ConfirmedIsSafe ==       \* a power cut now would not lose a message that was confirmed and not settled
  \A m \in confirmed : stage[m] \in InQueue => OnDisk(m) /\ ack[m] = "absent"

NothingConfirmedIsLost == \A m \in confirmed : stage[m] # "dropped"

SettledStaysSettled ==   \* once the ack is safe
  \A m \in Messages : ack[m] = "safe" => stage[m] = "settled"

BodyOutlivesEntry ==     \* no entry that a recovery would take up names a body that was removed
  \A m \in Large : body[m] = "removed" => ack[m] = "safe"

Sound == ConfirmedIsSafe /\ NothingConfirmedIsLost /\ SettledStaysSettled /\ BodyOutlivesEntry
================================================================================
