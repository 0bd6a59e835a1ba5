"""Alarms and what sets them, as values; their processes are in actors/node (docs/alarms.md).

In the order of reading:

    alarms       the alarms that are set, and who waits
    memory_use   vm_memory_high_watermark
    disk_space   disk_free_limit
    resources    what the monitors measured
"""
