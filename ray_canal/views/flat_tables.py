"""Make the constant parts of a table's FlatMessages, and the kernels' records of its columns."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

import numpy as np

from ray_canal.binlog.chunk import TableLayout
from ray_canal.filter import FieldFilter
from ray_canal.kernels.base import codes
from ray_canal.kernels.base.jit import read_only
from ray_canal.kernels.render import entry_columns as entry
from ray_canal.kernels.render import flat_rows as rows
from ray_canal.kernels.render.entry_values import VALUE_BYTES_MAX
from ray_canal.model.arrays import Int64s
from ray_canal.model.table_meta import HIDDEN_KEYS, ColumnMeta, TableMeta
from ray_canal.types.registry import sql_type, sql_type_of_null, sql_type_widened
from ray_canal.views.row_arrays import Blobs, place_columns, storage_of

TABLE_ROOM = 512
_COLUMN_ROOM = VALUE_BYTES_MAX + 64


def flat_blobs() -> Blobs:
    """Return no pieces but 32 bytes: a short one is read with up to 32 bytes before it."""
    return Blobs(bytes(32))


def json_bytes(value: Any) -> bytes:
    """Return a value as Canal's JSON library writes it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


@lru_cache(maxsize=512)
def _table_pieces(
    meta: TableMeta, storage: tuple[int, ...], fields: FieldFilter | None, hashed: tuple[bool, ...]
) -> tuple[Int64s, Int64s, bytes]:
    """Return a table's record, its columns' records without places, and the blob that their offsets
    are of."""
    blob = flat_blobs()
    shown: list[tuple[ColumnMeta, int]] = []
    columns = np.zeros((len(meta.columns) + meta.hidden, rows.FLAT_FIELDS), np.int64)
    columns[:, entry.C_CODE] = entry.LEFT_OUT
    room = TABLE_ROOM
    for index, (column, code) in enumerate(zip(meta.columns, storage, strict=True)):
        record = columns[index]
        kinds = tuple(of(column, code) for of in (sql_type, sql_type_of_null, sql_type_widened))
        name = b"," + json_bytes(column.name)
        pieces = (
            name + b':"', name + b":null", name + b":" + json_bytes(column.mysql_type),
            *(name + b":%d" % kind for kind in kinds), name if column.is_key else b"",
        )  # fmt: skip
        for number, piece in enumerate(pieces):
            record[rows.F_KEY + 2 * number : rows.F_KEY + 2 * number + 2] = blob.add(piece)
        room += sum(map(len, pieces)) + _COLUMN_ROOM
        if not fields or fields.admits(meta.schema, meta.table, column.name):
            record[entry.C_CODE] = code
            shown.append((column, code))
        is_decimal = code in (codes.DEC128, codes.DEC256)
        record[entry.C_PARAMETER] = column.scale if is_decimal else column.fraction
        record[entry.C_STILL] = column.name in HIDDEN_KEYS
        record[entry.C_IS_WIDENED] = kinds[2] != kinds[0]
        record[rows.F_VARIES] = len(set(kinds)) > 1
        record[rows.F_HASHED] = hashed[index] and record[entry.C_CODE] == code
    database, up_to_old, from_old, table_ts = _message_pieces(meta, shown)
    whole = (database, up_to_old, from_old, up_to_old + b"null" + from_old, table_ts)
    places = [place for piece in whole for place in blob.add(piece)]
    varies = any(columns[:, rows.F_VARIES] & (columns[:, entry.C_CODE] != entry.LEFT_OUT))
    record = np.array([0, len(columns), room + sum(map(len, whole)), varies, *places], np.int64)
    return read_only(record), read_only(columns), blob.joined()


def _message_pieces(
    meta: TableMeta, shown: list[tuple[ColumnMeta, int]]
) -> tuple[bytes, bytes, bytes, bytes]:
    """Return the JSON that is the same in all messages of a table: from `database` to the value of
    `es`, from `isDdl` to that of `old`, from `pkNames` to that of `ts`, from `table` to that."""
    mysql_types = {column.name: column.mysql_type for column, _ in shown} or None
    sql_types = {column.name: sql_type(column, code) for column, code in shown} or None
    keys = [column.name for column, _ in shown if column.is_key] or None
    table_ts = b',"table":%s,"ts":' % json_bytes(meta.table)
    from_old = b',"pkNames":%s,"sql":"","sqlType":%s' % (json_bytes(keys), json_bytes(sql_types))
    return (
        b',"database":%s,"es":' % json_bytes(meta.schema),
        b',"isDdl":false,"mysqlType":%s,"old":' % json_bytes(mysql_types),
        from_old + table_ts,
        table_ts,
    )


def table_records(
    layouts: tuple[TableLayout, ...],
    blobs: Blobs,
    fields: FieldFilter | None,
    hashed: list[tuple[bool, ...]],
) -> tuple[Int64s, Int64s]:
    """Return the kernels' `tables` and `columns` records."""
    tables: Int64s = np.zeros((len(layouts), rows.FT_FIELDS), np.int64)
    size = sum(len(t.meta.columns) + t.meta.hidden for t in layouts)
    columns: Int64s = np.empty((size, rows.FLAT_FIELDS), np.int64)
    at = 0
    for number, table in enumerate(layouts):
        storage = storage_of(table)
        record, mine, blob = _table_pieces(table.meta, storage, fields or None, hashed[number])
        first, _ = blobs.add(blob)
        tables[number] = record
        tables[number, rows.FT_FIRST] = at
        tables[number, rows.FT_DATABASE :: 2] += first
        here = columns[at : at + len(mine)]
        here[:] = mine
        here[:, rows.F_KEY : rows.F_VARIES : 2] += first
        place_columns(here, table)
        at += len(mine)
    return tables, columns
