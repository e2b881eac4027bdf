"""Rows that tables hold, read into a subscriber's log. (How they are read: the room `snapshot/`.)

    its calls             snapshots.py (start, pause, resume, cancel), snapshot_signals.py (by the
                          signal table)
    between the changes   snapshot_run.py, snapshot_placer.py, snapshot_pace.py, snapshot_home.py,
                          row_reader_thread.py
    of one moment         snapshot_moment.py, rows_log.py
"""
