"""Compiling all decode kernels ahead, into the cache that later processes load them from.

`python -m ray_canal.kernels.warm` is run at installation and before a node's first decoder.
"""

from __future__ import annotations

import time

from ray_canal.kernels.jit import cache_directory


def warm() -> float:
    """Decode a tiny chunk, so that every decode kernel is compiled or loaded. Seconds it took."""
    # Here, not above: kernels/ is below binlog/, and only this errand goes through the door.
    from ray_canal.binlog.sample import decode_sample

    started = time.perf_counter()
    decode_sample()
    return time.perf_counter() - started


if __name__ == "__main__":
    print(f"decode kernels ready in {warm():.1f} s, cached in {cache_directory()}")
