"""Tables of a data lake as targets.

    what they share       lake.py (the sink), lake_types.py (columns), lake_prepared.py (rows of
                          prepared XA transactions)
    Delta                 delta.py, delta_files.py, delta_ends.py (least and greatest values)
    Iceberg               iceberg.py, iceberg_files.py, iceberg_care.py (manifests, compaction)
    one commit, shared    file_shares.py (by bucket of the key), ray_writers.py (by Ray tasks)
"""
