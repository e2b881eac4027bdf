"""End to end: from the server's dump to the rows in a client's hands, beside peers, in one run.

server.py      the server that everything reads from, and when it began a dump
systems.py     who reads: command lines, where peers are installed
peers/         what runs in the peers' processes
ours.py        what runs in ours: a Ray cluster, destinations, a client
child.py       a started process and the lines it prints
processes.py   CPU seconds and memory of groups of processes
rounds.py      throughput: rounds over all readers
figures.py     medians, ratios, goals, tables, the comparison with committed figures
__main__.py    `python -m benchmarks.e2e`
"""
