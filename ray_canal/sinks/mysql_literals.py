"""Arrow columns as the text of MySQL literals, by vectors: no Python object a value.

Sessions use NO_BACKSLASH_ESCAPES and the time zone +00:00, so a quote is the one character that
needs care, and instants are written in UTC.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ray_canal.sinks.net_change import plain

_BYTES = pa.large_binary()
_DIGITS = np.frombuffer("".join(f"{value:02X}" for value in range(256)).encode(), np.uint8)
_PAIRS = _DIGITS.reshape(256, 2)


def literals(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return SQL literals, as bytes; NULL where a value is null."""
    return pc.fill_null(_literals(plain(values)), b"NULL")


def _literals(array: pa.Array) -> pa.Array:
    kind = array.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return array.cast(pa.string()).cast(_BYTES)
    if pa.types.is_decimal(kind) or pa.types.is_date(kind):
        return _quoted(array.cast(pa.string()).cast(_BYTES))
    if pa.types.is_timestamp(kind):
        return _quoted(array.cast(pa.timestamp("us")).cast(pa.string()).cast(_BYTES))
    if pa.types.is_duration(kind):
        return _quoted(pa.array(map(_time_text, array.cast(pa.int64()).to_pylist()), _BYTES))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _quoted(pc.replace_substring(array.cast(_BYTES), b"'", b"''"))
    if pa.types.is_list(kind):  # VECTOR
        offsets = array.offsets.to_numpy().astype(np.int64)
        return _hexadecimal(array, 4 * offsets, array.values.to_numpy().view(np.uint8))
    if pa.types.is_boolean(kind):
        return array.cast(pa.uint8()).cast(pa.string()).cast(_BYTES)
    array = array.cast(_BYTES)
    _, places, data = array.buffers()
    offsets = np.frombuffer(places, np.int64)[array.offset : array.offset + len(array) + 1]
    return _hexadecimal(array, offsets, np.frombuffer(data or b"", np.uint8))


def _quoted(texts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(_scalar(b"'"), texts, _scalar(b"'"), _scalar(b""))


def _scalar(text: bytes) -> pa.Scalar:
    return pa.scalar(text, _BYTES)


def _time_text(us: int | None) -> bytes | None:
    if us is None:
        return None
    seconds, fraction = divmod(abs(us), 1_000_000)
    text = f"{'-' if us < 0 else ''}{seconds // 3600:02d}:{seconds // 60 % 60:02d}"
    return f"{text}:{seconds % 60:02d}.{fraction:06d}".encode()


def _hexadecimal(
    array: pa.Array, offsets: npt.NDArray[np.int64], data: npt.NDArray[np.uint8]
) -> pa.Array:
    digits = np.ascontiguousarray(_PAIRS[data[offsets[0] : offsets[-1]]])
    places = 2 * (offsets - offsets[0])
    buffers = [None, pa.py_buffer(np.ascontiguousarray(places)), pa.py_buffer(digits)]
    texts = pa.Array.from_buffers(_BYTES, len(array), buffers)
    shown = pc.binary_join_element_wise(_scalar(b"x'"), texts, _scalar(b"'"), _scalar(b""))
    return pc.if_else(array.is_null(), pa.scalar(None, _BYTES), shown)


def tuples(table: pa.Table, bytes_max: int, rows_max: int) -> Iterator[bytes]:
    """Yield the rows as `(…),(…)`, in pieces of at most so many bytes (or one row) and rows."""
    if not table.num_rows:
        return
    columns: Sequence[pa.Array] = [literals(column) for column in table.columns]
    listed = columns[0]
    if len(columns) > 1:
        listed = pc.binary_join_element_wise(*columns, _scalar(b","))
    rows = pc.binary_join_element_wise(_scalar(b"("), listed, _scalar(b"),"), _scalar(b""))
    if isinstance(rows, pa.ChunkedArray):
        rows = rows.combine_chunks()
    _, places, data = rows.buffers()
    ends = np.frombuffer(places, np.int64)[rows.offset : rows.offset + len(rows) + 1]
    text, first = memoryview(data), 0
    while first < len(rows):
        last = int(np.searchsorted(ends, ends[first] + bytes_max, "right")) - 1
        last = min(max(last, first + 1), first + rows_max, len(rows))
        yield bytes(text[ends[first] : ends[last] - 1])
        first = last
