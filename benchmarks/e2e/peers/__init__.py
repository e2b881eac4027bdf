"""What runs in the peers' processes. Each prints lines of JSON and reads rows from a server:

    {"at": "ready", "ns": …, "rows": 0}      the program is loaded, the dump comes next
    {"at": "mark", "ns": …, "rows": …}       the part of them for warming up is there
    {"at": "end", "ns": …, "rows": …}        the last row is in its hands

`ns` is CLOCK_MONOTONIC, which all processes of a machine share. Then it waits, its dump still open,
until its standard input ends. Python scripts need the standard library and their peer alone.
"""
