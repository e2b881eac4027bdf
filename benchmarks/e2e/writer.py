"""Child: one writer of rows, each committed at its time; when each commit had returned is kept.

    python -m benchmarks.e2e.writer PORT FIRST_ID STEP ROWS PER_S OUT

Rows have the ids FIRST_ID, FIRST_ID + STEP, …; OUT gets them with CLOCK_MONOTONIC as an npz.
"""

from __future__ import annotations

import sys
import time

import numpy as np
import pymysql


def main(port: int, first: int, step: int, rows: int, per_s: float, out: str) -> None:
    connection = pymysql.connect(host="127.0.0.1", port=port, user="root", autocommit=True)
    ids = first + step * np.arange(rows, dtype=np.int64)
    committed_ns = np.zeros(rows, np.int64)
    with connection, connection.cursor() as cursor:
        began = time.monotonic()
        for k, number in enumerate(ids.tolist()):
            left_s = began + k / per_s - time.monotonic()
            if left_s > 0:
                time.sleep(left_s)
            cursor.execute(f"INSERT INTO bench.item (id, owner, name) VALUES ({number}, 7, 'now')")
            committed_ns[k] = time.monotonic_ns()
    np.savez(out, id=ids, ns=committed_ns)


if __name__ == "__main__":
    port, first, step, rows = map(int, sys.argv[1:5])
    main(port, first, step, rows, float(sys.argv[5]), sys.argv[6])
