-------------------------- MODULE MessageStoreTrace --------------------------
(* Whether recorded runs are behaviours of MessageStore.

   Observed is made from traces (tools/specification.py): Behaviours is a sequence of records, each of one message in one life of a store: `of`
   is the references that its recovery counted, `steps` what the store wrote of it, in order: the operation, the client, the flying count that
   was seen, what was decided, and the references afterwards.  What clients send, no row of the store tells.                            *)
EXTENDS MessageStore, Observed

VARIABLES which,    \* the behaviour that is followed
          at        \* how many of its steps were taken

Steps == Behaviours[which].steps
CONSTANT It         \* the message

Done(c, name, step) ==
  /\ flying[c][It] = step[3]
  /\ CASE step[4] = "append"  -> name = "write" /\ Write(c) /\ place[It] = 0 /\ place'[It] = current
       [] step[4] = "count"   -> name = "write" /\ Write(c) /\ place[It] # 0 /\ refs'[It] = refs[It] + 1
       [] step[4] = "remove"  -> name = "remove" /\ Remove(c) /\ refs'[It] = refs[It] - 1
       [] step[4] = "ignore"  -> (IF name = "write" THEN Write(c) ELSE Remove(c)) /\ UNCHANGED <<refs, flying>>
  /\ refs'[It] = step[5]

Seen(step) ==
  IF step[1] = "drop" THEN \E c \in Clients : Forget(c, It) /\ refs'[It] = step[5] ELSE Done(step[2], step[1], step)

Unseen == \E c \in Clients : Len(mailbox[c]) < 2 /\ (SendWrite(c, It) \/ SendRemove(c, It))

Follow == at < Len(Steps) /\ (LET step == Steps[at + 1] IN Seen(step)) /\ at' = at + 1
NextStep == (Follow \/ (Unseen /\ UNCHANGED at)) /\ UNCHANGED which

Start ==
  /\ which \in 1..Len(Behaviours) /\ at = 0
  /\ wrong = "nothing" /\ current = 2 /\ locked = {} /\ deferred = {}
  /\ mailbox = [c \in Clients |-> <<>>] /\ sent = [c \in Clients |-> 0] /\ reader = [c \in Clients |-> Nobody]
  /\ flying = [c \in Clients |-> [m \in Messages |-> 0]]
  /\ LET found == Behaviours[which].of
     IN /\ \E owners \in SUBSET Clients :
             Cardinality(owners) = found /\ holds = [c \in Clients |-> IF c \in owners THEN {It} ELSE {}]
        /\ refs = [m \in Messages |-> found]
        /\ place = [m \in Messages |-> IF found > 0 THEN 1 ELSE 0]
        /\ records = [f \in Files |-> IF f = 1 /\ found > 0 THEN {It} ELSE {}]

SpecOfTrace == Start /\ [][NextStep]_<<vars, which, at>>

Told == PrintT(<<"step", which, at>>)
================================================================================
