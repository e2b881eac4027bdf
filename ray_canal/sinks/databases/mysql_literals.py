"""Arrow columns as the text of MySQL literals, by vectors: no Python object a value.

Sessions use NO_BACKSLASH_ESCAPES and the time zone +00:00, so a quote is the one character that
needs care, and instants are written in UTC.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ray_canal.sinks.databases.mysql_types import has_long_scale
from ray_canal.sinks.databases.value_texts import hexadecimal
from ray_canal.sinks.net_change import plain
from ray_canal.views.mysql_texts import time_texts
from ray_canal.views.texts import BYTES, decimal_texts, scalar, wrapped


def literals(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return SQL literals, as bytes; NULL where a value is null."""
    return pc.fill_null(_literals(plain(values)), b"NULL")


def literal(value: pa.Array) -> str:
    """Return the literal of an array's one value."""
    return bytes(literals(value)[0].as_py()).decode()


def known_values(version: str, rows: pa.Table) -> pa.Table:
    """Return rows as a server of this version has them in tables that are made for it: decimals
    that MySQL cannot have are text there."""
    if "mariadb" not in version.lower():
        for number, field in enumerate(rows.schema):
            if has_long_scale(field.type):
                rows = rows.set_column(number, field.name, decimal_texts(plain(rows[field.name])))
    return rows


def comparable(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return SQL expressions that equal a column's values exactly, as bytes; NULL for null. (A
    decimal as text would be compared as a DOUBLE.)"""
    kind = values.type
    if pa.types.is_decimal(kind):
        cast = f"' AS DECIMAL({kind.precision},{kind.scale}))".encode()
        texts = plain(values).cast(pa.string()).cast(BYTES)
        return pc.fill_null(wrapped(texts, b"CAST('", cast), b"NULL")
    return literals(values)


def has_values(column: str, values: pa.ChunkedArray) -> list[bytes]:
    """Return a condition for each row. Text is compared as bytes (a collation may pad it with
    spaces), and so is a VECTOR, which MySQL compares with nothing; JSON, which equals no text, as
    its text."""
    kind, end = values.type, b""
    is_vector = pa.types.is_list(kind) and not pa.types.is_string(kind.value_type)
    is_set = pa.types.is_list(kind) and not is_vector
    start = f"CAST({column} AS BINARY) <=> " if is_vector else f"{column} <=> "
    if pa.types.is_string(kind) or pa.types.is_dictionary(kind) or is_set:
        start, end = f"CAST(CAST({column} AS CHAR) AS BINARY) <=> CAST(", b" AS BINARY)"
    return [start.encode() + text + end for text in comparable(values).to_pylist()]


def _literals(array: pa.Array) -> pa.Array:
    kind = array.type
    if pa.types.is_integer(kind):
        return array.cast(pa.string()).cast(BYTES)
    if pa.types.is_floating(kind):
        return _floats(array)
    if has_long_scale(kind):
        return _quoted(decimal_texts(array).cast(BYTES))
    if pa.types.is_decimal(kind) or pa.types.is_date(kind):
        return _quoted(array.cast(pa.string()).cast(BYTES))
    if pa.types.is_timestamp(kind):
        return _quoted(array.cast(pa.timestamp("us")).cast(pa.string()).cast(BYTES))
    if pa.types.is_duration(kind):
        return _quoted(time_texts(array).cast(BYTES))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _quoted(pc.replace_substring(array.cast(BYTES), b"'", b"''"))
    if pa.types.is_boolean(kind):
        return array.cast(pa.uint8()).cast(pa.string()).cast(BYTES)
    return wrapped(hexadecimal(array), b"x'", b"'")  # a VECTOR, too


def _floats(array: pa.Array) -> pa.Array:
    """Return numbers as DOUBLE literals. A FLOAT is the DOUBLE that it is exactly: the fewest
    digits that tell the greatest one from others are a number beyond it, which is refused."""
    texts = array.cast(pa.float64()).cast(pa.string()).cast(BYTES)
    return pc.if_else(pc.equal(texts, scalar(b"-0")), scalar(b"-0e0"), texts)  # -0 is an integer


def _quoted(texts: pa.Array) -> pa.Array:
    return wrapped(texts, b"'", b"'")


def tuples(
    table: pa.Table,
    bytes_max: int,
    rows_max: int,
    texts: Callable[[pa.ChunkedArray], pa.Array] = literals,
) -> Iterator[bytes]:
    """Yield the rows as `(…),(…)`, in pieces of at most so many bytes (or one row) and rows."""
    if not table.num_rows:
        return
    columns: Sequence[pa.Array] = [texts(column) for column in table.columns]
    listed = columns[0]
    if len(columns) > 1:
        listed = pc.binary_join_element_wise(*columns, scalar(b","))
    rows = wrapped(listed, b"(", b"),")
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
