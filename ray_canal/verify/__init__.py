"""A second opinion on a binlog: decode it with mysql-replication, too, and report each difference.

`runs.py` reads files or a live server with both decoders, `compare.py` joins their row events by
file and position, `values.py` says which values can be compared and when they are equal.
"""
