----------------------------- MODULE ConfirmsTrace -----------------------------
(* Whether recorded runs are behaviours of Confirms.

   Observed is made from traces (tools/specification.py): Behaviours is a sequence of records, each of one message: `of` is "small" or
   "large", `steps` the names of what was seen of it, in order.  What no row tells of may happen in between.                            *)
EXTENDS Confirms, Sequences, TLC, Observed

VARIABLES which,    \* the behaviour that is followed
          at        \* how many of its steps were taken

Steps == Behaviours[which].steps
Its == Behaviours[which].of

Seen(name) ==
  CASE name = "publish"    -> Publish(Its)
    [] name = "sync"       -> IndexSync
    [] name = "on disk"    -> Report(Its) /\ body[Its] = "safe"
    [] name = "cancelled"  -> Report(Its) /\ body[Its] = "removed"
    [] name = "confirm"    -> Confirm(Its)
    [] name = "deliver"    -> Deliver(Its)
    [] name = "requeue"    -> Requeue(Its)
    [] name = "ack"        -> Ack(Its)
    [] name = "drop"       -> Drop(Its)
    [] name = "crash"      -> PowerCut \/ QueueDies
    [] name = "stop"       -> CleanStop
    [] name = "stop alone" -> StoreDied
    [] name = "found"       -> Recover /\ stage'[Its] = "ready"
    [] name = "gone"        -> Recover /\ stage'[Its] # "ready"

Unseen == Write(Its) \/ StoreSync \/ Remove(Its)

Follow == at < Len(Steps) /\ Seen(Steps[at + 1]) /\ at' = at + 1
NextStep == (Follow \/ (Unseen /\ UNCHANGED at)) /\ UNCHANGED which

Start == Init /\ which \in 1..Len(Behaviours) /\ at = 0
SpecOfTrace == Start /\ [][NextStep]_<<vars, which, at>>

Told == PrintT(<<"step", which, at>>)
================================================================================
