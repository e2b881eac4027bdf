"""Values of Arrow columns as text for databases, by vectors where there are many."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ray_canal.views.texts import of_parts, parts_of

_DIGITS = np.frombuffer("".join(f"{value:02X}" for value in range(256)).encode(), np.uint8)
_PAIRS = _DIGITS.reshape(256, 2)


def hexadecimal(array: pa.Array) -> pa.Array:
    """Return the digits of binary values, and of lists of float32 as they lie in memory."""
    if pa.types.is_list(array.type):
        offsets = 4 * array.offsets.to_numpy().astype(np.int64)
        data = array.values.to_numpy().view(np.uint8)
    else:
        data, offsets = parts_of(array)
    digits = np.ascontiguousarray(_PAIRS[data[offsets[0] : offsets[-1]]])
    return of_parts(digits.reshape(-1), 2 * (offsets - offsets[0]), array.is_null())
