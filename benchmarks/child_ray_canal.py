"""Child: ray_canal decodes binlog files, to Arrow or to entries; one JSON line says how it went.

    python -m benchmarks.child_ray_canal arrow|entries FILE…

Kernels are loaded before the clock starts; `python -m benchmarks` states that time on its own.
"""

from __future__ import annotations

import os
import sys

from benchmarks.clock import Clock
from ray_canal.malloc import keep_freed_memory
from ray_canal.offline import decode_entries, decode_files
from ray_canal.warm import warm


def main(view: str, files: list[str]) -> None:
    keep_freed_memory()  # as `ray-canal decode` and the actors do
    warm()
    rows = done_bytes = 0
    whole_bytes = sum(map(os.path.getsize, files))

    def note(size_bytes: int) -> None:
        nonlocal done_bytes
        done_bytes += size_bytes
        # (Of files of a chunk or two all counts.)
        if not clock.marked and whole_bytes // 4 <= done_bytes < whole_bytes // 2:
            clock.mark(rows if view == "arrow" else None, done_bytes)

    with Clock() as clock:
        if view == "arrow":
            for batch in decode_files(files, on_bytes=note):
                rows += batch.num_rows
        else:
            for entries in decode_entries(files, on_bytes=note):
                clock.out_bytes += len(entries)
    clock.report(rows if view == "arrow" else None)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
