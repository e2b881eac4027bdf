"""MySQL's length-encoded integers (manual of its protocol, LengthEncodedInteger)."""

from __future__ import annotations

import numpy as np

from ray_canal.kernels.base.jit import inlined
from ray_canal.kernels.base.memory import load8, load_le


@inlined
def packed_integer(source, at, end):
    """Return (number, offset after it), the number negative if it is broken."""
    if at >= end:
        return np.int64(-1), at
    first = load8(source, at)
    if first < 251:
        return first, at + 1
    count = 2 if first == 252 else (3 if first == 253 else 8)
    if first == 251 or first == 255 or end - at <= count:
        return np.int64(-1), at
    return load_le(source, at + 1, count), at + 1 + count
