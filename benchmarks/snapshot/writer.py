"""Child: a writer of one row a transaction, each begun at its time.

    python -m benchmarks.snapshot.writer PORT FIRST_ID ROWS PER_S OUT

OUT gets each row's id, and when its commit had begun and had returned by CLOCK_MONOTONIC, as npz.
"""

from __future__ import annotations

import sys

import numpy as np

from benchmarks.e2e.writer import write


def main(port: int, first: int, rows: int, per_s: float, out: str) -> None:
    ids = first + np.arange(rows, dtype=np.int64)
    times = write(port, "INSERT INTO bench.busy VALUES (%d, 7, 'now')", ids, per_s)
    np.savez(out, id=ids, began=times[0], ended=times[1])


if __name__ == "__main__":
    port, first, rows = map(int, sys.argv[1:4])
    main(port, first, rows, float(sys.argv[4]), sys.argv[5])
