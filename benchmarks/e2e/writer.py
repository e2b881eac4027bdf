"""Child: one writer of rows, each committed at its time; when each commit had returned is kept.

    python -m benchmarks.e2e.writer PORT FIRST_ID STEP ROWS PER_S OUT

Rows have the ids FIRST_ID, FIRST_ID + STEP, …; OUT gets them with CLOCK_MONOTONIC as an npz.
"""

from __future__ import annotations

import sys
import time

import numpy as np
import pymysql

from ray_canal.model.arrays import Int64s


def write(port: int, insert: str, ids: Int64s, per_s: float) -> Int64s:
    """Insert a row for each id, so many a second; return when each commit had begun, and had
    returned (int64[2, rows], ns). `insert`: a statement with %d for the id."""
    times = np.zeros((2, len(ids)), np.int64)
    connection = pymysql.connect(host="127.0.0.1", port=port, user="root", autocommit=True)
    with connection, connection.cursor() as cursor:
        began = time.monotonic()
        for k, number in enumerate(ids.tolist()):
            left_s = began + k / per_s - time.monotonic()
            if left_s > 0:
                time.sleep(left_s)
            times[0, k] = time.monotonic_ns()
            cursor.execute(insert % number)
            times[1, k] = time.monotonic_ns()
    return times


def main(port: int, first: int, step: int, rows: int, per_s: float, out: str) -> None:
    ids = first + step * np.arange(rows, dtype=np.int64)
    insert = "INSERT INTO bench.item (id, owner, name) VALUES (%d, 7, 'now')"
    times = write(port, insert, ids, per_s)
    np.savez(out, id=ids, ns=times[1])


if __name__ == "__main__":
    port, first, step, rows = map(int, sys.argv[1:5])
    main(port, first, step, rows, float(sys.argv[5]), sys.argv[6])
