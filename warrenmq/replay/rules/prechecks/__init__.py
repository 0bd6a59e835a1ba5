"""Prechecks: most of a trace is fine, and arrays say so a hundred times faster than the machines.

    pieces ─► units (columns.py) ─► prechecking.py ─┬─ prechecks of the busy machines ─► open_rows by key ─► settle: fine, or unproven
                                                ├─ rows that the other machines read ─► those machines, as ever
                                                └─ actor_summaries.py ─► the TraceContext
    unproven ─► a second look at their rows, by the machines themselves

    precheck.py   what a precheck promises
    mail.py, ledger.py (with steps.py, delays.py), confirms.py, on_disk.py, references.py      a precheck for each busy machine

These need numpy, which the extra `spark` brings along.  Without it, or where a trace has pieces that overlap, the machines do
everything (engine.py).
"""
