"""Values of Arrow columns as text for databases, by vectors where there are many."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

BYTES = pa.large_binary()
_DIGITS = np.frombuffer("".join(f"{value:02X}" for value in range(256)).encode(), np.uint8)
_PAIRS = _DIGITS.reshape(256, 2)


def scalar(text: bytes) -> pa.Scalar:
    return pa.scalar(text, BYTES)


def wrapped(texts: pa.Array, before: bytes, after: bytes) -> pa.Array:
    """Return texts with something around each; null stays null."""
    return pc.binary_join_element_wise(scalar(before), texts, scalar(after), scalar(b""))


def time_text(us: int | None) -> bytes | None:
    """Return a TIME as `-838:59:59.000000`."""
    if us is None:
        return None
    seconds, fraction = divmod(abs(us), 1_000_000)
    text = f"{'-' if us < 0 else ''}{seconds // 3600:02d}:{seconds // 60 % 60:02d}"
    return f"{text}:{seconds % 60:02d}.{fraction:06d}".encode()


def time_texts(array: pa.Array) -> pa.Array:
    return pa.array(map(time_text, array.cast(pa.int64()).to_pylist()), BYTES)


def hexadecimal(array: pa.Array) -> pa.Array:
    """Return the digits of binary values, and of lists of float32 as they lie in memory."""
    if pa.types.is_list(array.type):
        offsets = 4 * array.offsets.to_numpy().astype(np.int64)
        data = array.values.to_numpy().view(np.uint8)
    else:
        large = array.cast(BYTES)
        _, places, values = large.buffers()
        offsets = np.frombuffer(places, np.int64)[large.offset : large.offset + len(large) + 1]
        data = np.frombuffer(values or b"", np.uint8)
    digits = np.ascontiguousarray(_PAIRS[data[offsets[0] : offsets[-1]]])
    places = 2 * (offsets - offsets[0])
    buffers = [None, pa.py_buffer(np.ascontiguousarray(places)), pa.py_buffer(digits)]
    texts = pa.Array.from_buffers(BYTES, len(array), buffers)
    return pc.if_else(array.is_null(), pa.scalar(None, BYTES), texts)
