"""Sieves: most of a trace is fine, and arrays say so a hundred times faster than the machines.

    pieces ─► units (columns.py) ─► sifting.py ─┬─ sieves of the busy machines ─► leftovers by key ─► settle: fine, or a suspect
                                                ├─ rows that the other machines read ─► those machines, as ever
                                                └─ landmarks.py ─► the World
    suspects ─► a second look at their rows, by the machines themselves

    sieve.py   what a sieve promises
    mail.py, ledger.py (with steps.py, delays.py), confirms.py, on_disk.py, references.py      a sieve for each busy machine

These need numpy, which the extra `spark` brings along.  Without it, or where a trace has pieces that overlap, the machines do
everything (engine.py).
"""
