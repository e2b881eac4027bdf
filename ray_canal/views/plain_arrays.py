"""Make Arrow arrays of numbers, marks and texts by their buffers.

`pa.array` does the same at ten times the cost, which a small batch notices, and loads pandas the
first time that a process calls it: half a second, and 40 MB.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ray_canal.model.arrays import Bools


def numbers(values: npt.NDArray[Any], kind: pa.DataType) -> pa.Array:
    """Return contiguous values of a fixed size as an array without nulls."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)], 0)


def bools(values: Bools) -> pa.Array:
    """Return an array without nulls."""
    bits = pa.py_buffer(np.packbits(values, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, bits], 0)


@lru_cache(maxsize=1024)
def strings(values: tuple[str, ...]) -> pa.Array:
    """Return texts as an array, kept for the next call: for a few short ones."""
    texts = [value.encode() for value in values]
    ends = np.zeros(len(texts) + 1, np.int32)
    np.cumsum([len(text) for text in texts], out=ends[1:])
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(texts))]
    return pa.Array.from_buffers(pa.string(), len(texts), buffers, 0)
