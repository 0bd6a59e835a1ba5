"""The only places that touch the system: disk, memory, descriptors.

In the order of reading:

    disk          files and folders, as storage code sees them
    disk_errors   what may go wrong with them
    real_disk     those of the operating system
    fenced_disk   a disk whose owner can lose the right to write
    blocking      code that is about to wait says so to its scheduler
    syncs         how often something was made durable
    salvage       reads around a bad sector
    memory        what the process uses
    descriptors   how many files it may open
"""
