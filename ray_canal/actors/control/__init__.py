"""The controller: keeps the configured destinations running, each on a node and in a process.

    what should run       controller.py, changes.py (against what runs)
    where                 homes.py, by balance.py from the figures of loads.py
    of several heads      succession.py: one is active
    who is replaced       stall_limit.py (silent), process_starts.py (ends again and again)
"""
