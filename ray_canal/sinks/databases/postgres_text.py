"""Arrow columns in PostgreSQL's COPY text format, by vectors, and the types that they have there.

The text format, not CSV: PostgreSQL before 18 takes a line `\\.` in a quoted CSV value for the end.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from ray_canal.sinks.databases.value_texts import hexadecimal
from ray_canal.sinks.net_change import plain
from ray_canal.views.mysql_texts import time_texts
from ray_canal.views.texts import BYTES, scalar, wrapped

_ESCAPED = ((b"\\", b"\\\\"), (b"\n", b"\\n"), (b"\r", b"\\r"), (b"\t", b"\\t"))
_INTEGERS = {
    pa.int8(): "smallint", pa.int16(): "smallint", pa.int32(): "integer", pa.int64(): "bigint",
    pa.uint8(): "smallint", pa.uint16(): "integer", pa.uint32(): "bigint",
    pa.uint64(): "numeric(20,0)",
}  # fmt: skip
_BY_DECLARATION = {"json": "jsonb", "uuid": "uuid", "inet4": "inet", "inet6": "inet"}


def copy_text(table: pa.Table) -> memoryview:
    """Return rows as COPY … FROM STDIN reads them."""
    columns: Sequence[pa.Array] = [_texts(plain(column)) for column in table.columns]
    rows = pc.binary_join_element_wise(
        *columns, scalar(b"\t"), null_handling="replace", null_replacement="\\N"
    )
    lines = wrapped(rows, b"", b"\n")
    if isinstance(lines, pa.ChunkedArray):
        lines = lines.combine_chunks()
    if not len(lines):
        return memoryview(b"")
    _, places, data = lines.buffers()
    ends = memoryview(places).cast("q")
    return memoryview(data)[ends[lines.offset] : ends[lines.offset + len(lines)]]


def literal(value: pa.Array) -> str:
    """Return the one value of an array as an SQL string: it has the escapes of COPY."""
    text = bytes(_texts(plain(value))[0].as_py()).decode()
    return "E'" + text.replace("'", "''") + "'"


def _texts(array: pa.Array) -> pa.Array:
    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _escaped(array.cast(BYTES))
    if pa.types.is_duration(kind):
        return time_texts(array).cast(BYTES)
    if pa.types.is_list(kind):
        listed = pc.list_parent_indices(array), array.flatten().cast(pa.string())
        texts: list[list[str]] = [[] for _ in range(len(array))]
        for row, text in zip(*(each.to_pylist() for each in listed), strict=True):
            texts[row].append(text)
        joined = pa.array([("{" + ",".join(each) + "}").encode() for each in texts], BYTES)
        return pc.if_else(array.is_null(), pa.scalar(None, BYTES), joined)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return wrapped(hexadecimal(array), b"\\\\x", b"")
    return array.cast(pa.string()).cast(BYTES)


def _escaped(texts: pa.Array) -> pa.Array:
    for character, written in _ESCAPED:
        if pc.any(pc.match_substring(texts, character)).as_py():
            texts = pc.replace_substring(texts, character, written)
    return texts


def postgres_type(kind: pa.DataType, declared: str = "", charset: str = "") -> str:
    """Return PostgreSQL's type, as its format_type() shows it. `declared`: MySQL's, where known;
    `charset`: of text. JSON that has one is MariaDB's, a text that need not be valid."""
    types = pa.types
    if kind in _INTEGERS:
        word = declared.lower()
        is_short = word.partition("(")[0] == "bit" and word != "bit(64)"
        return "bigint" if is_short else _INTEGERS[kind]
    if types.is_floating(kind):
        return "double precision" if kind.bit_width == 64 else "real"
    if types.is_decimal(kind):
        return f"numeric({kind.precision},{kind.scale})"
    if types.is_boolean(kind):
        return "boolean"
    if types.is_date(kind):
        return "date"
    if types.is_timestamp(kind):
        return f"timestamp {'with' if kind.tz else 'without'} time zone"
    if types.is_duration(kind):
        return "interval"
    if types.is_binary(kind) or types.is_large_binary(kind):
        return "bytea"
    if types.is_list(kind) and types.is_floating(kind.value_type):
        return "real[]"
    if charset and declared.lower() == "json":
        return "text"
    return _BY_DECLARATION.get(declared.lower(), "text")
