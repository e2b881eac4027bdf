"""Values of Arrow columns as text for databases, by vectors where there are many."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ray_canal.views.texts import BYTES, of_parts, parts_of

_DIGITS = np.frombuffer("".join(f"{value:02X}" for value in range(256)).encode(), np.uint8)
_PAIRS = _DIGITS.reshape(256, 2)


def time_text(us: int | None) -> bytes | None:
    """Return a TIME as `-838:59:59.000000`."""
    if us is None:
        return None
    seconds, fraction = divmod(abs(us), 1_000_000)
    text = f"{'-' if us < 0 else ''}{seconds // 3600:02d}:{seconds // 60 % 60:02d}"
    return f"{text}:{seconds % 60:02d}.{fraction:06d}".encode()


def time_texts(array: pa.Array) -> pa.Array:
    """Return TIME values (microseconds) as MySQL writes them."""
    return pa.array(map(time_text, array.cast(pa.int64()).to_pylist()), BYTES)


def hexadecimal(array: pa.Array) -> pa.Array:
    """Return the digits of binary values, and of lists of float32 as they lie in memory."""
    if pa.types.is_list(array.type):
        offsets = 4 * array.offsets.to_numpy().astype(np.int64)
        data = array.values.to_numpy().view(np.uint8)
    else:
        data, offsets = parts_of(array)
    digits = np.ascontiguousarray(_PAIRS[data[offsets[0] : offsets[-1]]])
    return of_parts(digits.reshape(-1), 2 * (offsets - offsets[0]), array.is_null())
