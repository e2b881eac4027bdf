"""Child: a writer of one row a transaction, each begun at its time.

    python -m benchmarks.snapshot.writer PORT FIRST_ID ROWS PER_S OUT

OUT gets each row's id, and when its commit had begun and had returned by CLOCK_MONOTONIC, as npz.
"""

from __future__ import annotations

import sys
import time

import numpy as np
import pymysql


def main(port: int, first: int, rows: int, per_s: float, out: str) -> None:
    connection = pymysql.connect(host="127.0.0.1", port=port, user="root", autocommit=True)
    ids = first + np.arange(rows, dtype=np.int64)
    times = np.zeros((2, rows), np.int64)
    with connection, connection.cursor() as cursor:
        began = time.monotonic()
        for k, number in enumerate(ids.tolist()):
            left_s = began + k / per_s - time.monotonic()
            if left_s > 0:
                time.sleep(left_s)
            times[0, k] = time.monotonic_ns()
            cursor.execute(f"INSERT INTO bench.busy VALUES ({number}, 7, 'now')")
            times[1, k] = time.monotonic_ns()
    np.savez(out, id=ids, began=times[0], ended=times[1])


if __name__ == "__main__":
    port, first, rows = map(int, sys.argv[1:4])
    main(port, first, rows, float(sys.argv[4]), sys.argv[5])
