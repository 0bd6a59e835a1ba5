"""The monitors of memory and disk, and the alarms.

In the order of reading:

    alarm               sets and clears alarms
    vm_memory_monitor   looks at the memory
    disk_monitor        looks at the disk
    memory_monitor      shares the memory out among queues that page
"""
