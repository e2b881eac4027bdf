"""Debezium's change events written plainly, a Python object a value: the judge of
views/debezium.py and views/avro.py; and random tables to try them on."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import random
import struct
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ray_canal.binlog.chunk import EVENT
from ray_canal.model.table_meta import ColumnMeta, TableMeta
from ray_canal.types import mysql
from ray_canal.views.arrow import arrow_schema
from ray_canal.views.envelope import EVENT_TYPES

TS_US = 1_700_000_000_123_456
EPOCH = dt.datetime(1970, 1, 1)
LETTERS = "aZ09 _'\"\\%\n\t\x00\x1f\x7f~éß漢🚀/"
Random = random.Random


class Column(NamedTuple):
    """A type: its ColumnMeta, a random value, and that value as Debezium has it."""

    meta: ColumnMeta
    value: Callable[[Random], Any]
    shown: Callable[[Any], Any] = lambda value: value


def text(r: Random) -> str:
    return "".join(r.choice(LETTERS) for _ in range(r.choice([0, 1, 7, 30])))


def column(code: int, mysql_type: str, value: Any, shown: Any = lambda v: v, **more: Any) -> Column:
    return Column(ColumnMeta("", code, mysql_type, **more), value, shown)


def _micros(value: dt.datetime) -> int:
    return (value.replace(tzinfo=None) - EPOCH) // dt.timedelta(microseconds=1)


def _moment(r: Random, digits: int) -> dt.datetime:
    step = 10 ** (6 - digits)
    micros = r.randrange(-62_135_596_800_000_000, 253_402_300_799_000_000) // step * step
    return EPOCH + dt.timedelta(microseconds=micros)


def _instant(value: dt.datetime, digits: int) -> str:
    found = value.strftime("%Y").zfill(4) + value.strftime("-%m-%dT%H:%M:%S")
    return found + (f".{value.microsecond:06d}"[: digits + 1] if digits else "") + "Z"


def _unscaled(value: decimal.Decimal, scale: int) -> bytes:
    with decimal.localcontext(decimal.Context(prec=80)):
        number = int(value.scaleb(scale))
    size = next(n for n in range(1, 40) if -(1 << 8 * n - 1) <= number < 1 << 8 * n - 1)
    return number.to_bytes(size, "big", signed=True)


def _decimal(r: Random, precision: int, scale: int) -> decimal.Decimal:
    digits = r.choice([1, 2, 4, precision])
    number = r.choice([0, 127, 128, 255, 32768, 10**digits - 1, r.randrange(10**digits)])
    with decimal.localcontext(decimal.Context(prec=80)):
        return decimal.Decimal(min(number, 10**precision - 1) * r.choice([-1, 1])).scaleb(-scale)


def _integers() -> list[Column]:
    found = []
    for code, word, bits in ((mysql.TINY, "tinyint", 8), (mysql.SHORT, "smallint", 16),
                             (mysql.INT24, "mediumint", 24), (mysql.LONG, "int", 32),
                             (mysql.LONGLONG, "bigint", 64)):  # fmt: skip
        for unsigned in (False, True):
            low, high = (0, 2**bits) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1))
            found.append(column(
                code, word + " unsigned" * unsigned,
                lambda r, low=low, high=high: r.choice([low, high - 1, r.randrange(low, high)]),
                (lambda v: v - 2**64 if v >= 2**63 else v) if bits == 64 else lambda v: v,
                unsigned=unsigned,
            ))  # fmt: skip
    return found


def _times() -> list[Column]:
    found = [column(mysql.DATE, "date", lambda r: _moment(r, 0).date(),
                    lambda v: (v - EPOCH.date()).days)]  # fmt: skip
    for digits in (0, 2, 3, 6):
        found.append(column(
            mysql.DATETIME2, f"datetime({digits})", lambda r, d=digits: _moment(r, d),
            (lambda v: _micros(v) // 1000) if digits <= 3 else _micros, fraction=digits,
        ))  # fmt: skip
        found.append(column(
            mysql.TIMESTAMP2, f"timestamp({digits})",
            lambda r, d=digits: _moment(r, d).replace(tzinfo=dt.timezone.utc),
            lambda v, d=digits: _instant(v, d), fraction=digits,
        ))  # fmt: skip
        found.append(column(
            mysql.TIME2, f"time({digits})",
            lambda r: dt.timedelta(microseconds=r.randrange(-3_020_399_000_000, 3_020_399_000_000)),
            lambda v: v // dt.timedelta(microseconds=1), fraction=digits,
        ))  # fmt: skip
    return found


def _float32(value: float) -> float:
    return float(np.float32(value))


def _double(value: bytes, at: int) -> float:
    found: float = struct.unpack_from("<d", value, at)[0]
    return found


def _wkb(value: bytes) -> dict[str, Any]:
    return {"wkb": value[4:], "srid": int.from_bytes(value[:4], "little") or None}


def _geometry(r: Random) -> bytes:
    return struct.pack("<IBIdd", r.choice([0, 4326]), 1, 1, r.random(), r.random())


KINDS = [
    *_integers(),
    *_times(),
    column(mysql.YEAR, "year", lambda r: r.choice([0, 1901, 2155])),
    column(mysql.FLOAT, "float", lambda r: _float32(r.choice([0, 0.1, -1e30, r.random()]))),
    column(mysql.DOUBLE, "double", lambda r: r.choice([0.0, 0.1, -1e300, 1e-300, r.random()])),
    *(
        column(mysql.NEWDECIMAL, f"decimal({p},{s})", lambda r, p=p, s=s: _decimal(r, p, s),
               lambda v, s=s: _unscaled(v, s), precision=p, scale=s)
        for p, s in ((5, 0), (10, 2), (38, 10), (65, 30))
    ),
    column(mysql.BIT, "bit(1)", lambda r: r.randrange(2), bool, length=1),
    column(mysql.BIT, "bit(12)", lambda r: r.randrange(1 << 12), lambda v: v.to_bytes(2, "little"),
           length=12),
    column(mysql.BIT, "bit(64)", lambda r: r.randrange(1 << 64), lambda v: v.to_bytes(8, "little"),
           length=64),
    column(mysql.VARCHAR, "varchar(50)", text, charset="utf8mb4", length=50),
    column(mysql.BLOB, "text", text, charset="utf8mb4"),
    column(mysql.BLOB, "blob", lambda r: r.randbytes(r.choice([0, 1, 2, 3, 40])), charset="binary"),
    column(mysql.JSON, "json", lambda r: '{"a": [1, "x\\n"]}', charset="utf8mb4"),
    column(mysql.ENUM, "enum('a','it''s')", lambda r: r.choice(["a", "it's", ""]),
           labels=("a", "it's"), charset="utf8mb4"),
    column(mysql.SET, "set('x','y')", lambda r: r.choice([[], ["x"], ["x", "y"]]), ",".join,
           labels=("x", "y"), charset="utf8mb4"),
    column(mysql.FLOAT, "float(7,3)", lambda r: _float32(r.choice([0, 1.1, -1e30]))),
    column(mysql.GEOMETRY, "point", _geometry,
           lambda v: {"x": _double(v, 9), "y": _double(v, 17), **_wkb(v)}),
    column(mysql.GEOMETRY, "geometry", _geometry, lambda v: _wkb(v)),
]  # fmt: skip


class Table(NamedTuple):
    """A random table, its changes as an Arrow batch, and what is known of its chunk. `rows` are the
    batch's as Python's objects."""

    meta: TableMeta
    batch: pa.RecordBatch
    chunk: Any
    rows: list[dict[str, Any]]
    columns: list[Column]


def random_table(seed: int, count: int = 40) -> Table:
    """A table of random columns, the first of which are its key (or it has none)."""
    r = Random(seed)
    chosen = [r.choice(KINDS[:10]), *r.sample(KINDS, r.randrange(1, 12))]
    keys = r.randrange(3)
    columns = [
        each._replace(meta=ColumnMeta(**{
            **{name: getattr(each.meta, name) for name in ColumnMeta.__slots__},
            "name": f"c{n} {r.choice(['x', 'ü', chr(34)])}", "is_key": n < keys,
            "nullable": n >= keys,
        }))
        for n, each in enumerate(chosen)
    ]  # fmt: skip
    meta = TableMeta("sh op", 't"b', tuple(each.meta for each in columns))
    rows = [_row(r, columns, number) for number in range(count)]
    schema = arrow_schema(meta)
    arrays = [_array([row[field.name] for row in rows], field.type) for field in schema]
    events = np.zeros(count, EVENT)
    events["position"] = [row["position"] for row in rows]
    events["server_id"] = [row["server_id"] for row in rows]
    chunk = SimpleNamespace(
        events=events, layout=SimpleNamespace(flavor="mysql", event_count=count)
    )
    return Table(meta, pa.RecordBatch.from_arrays(arrays, schema=schema), chunk, rows, columns)


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(kind):
        return pa.array(values, kind.value_type).dictionary_encode().cast(kind)
    if pa.types.is_struct(kind):
        arrays = [
            _array([None if value is None else value[field.name] for value in values], field.type)
            for field in kind
        ]
        mask = pa.array([value is None for value in values])
        return pa.StructArray.from_arrays(arrays, fields=list(kind), mask=mask)
    return pa.array(values, kind)


def _row(r: Random, columns: list[Column], number: int) -> dict[str, Any]:
    def image() -> dict[str, Any]:
        return {
            each.meta.name: None if each.meta.nullable and r.random() < 0.2 else each.value(r)
            for each in columns
        }

    kind = r.choice(["INSERT", "UPDATE", "DELETE", "READ"])
    assert kind in EVENT_TYPES
    before, after = image(), image()
    if r.random() < 0.6:  # the key stays
        after |= {each.meta.name: before[each.meta.name] for each in columns if each.meta.is_key}
    seconds = r.randrange(1 << 31)
    return {
        "event_type": kind, "timeline": 1, "journal_name": "bin.000001", "position": 4 + number,
        "row": 0, "execute_time": dt.datetime.fromtimestamp(seconds, dt.timezone.utc),
        "gtid": r.choice([None, f"u:{number}"]), "transaction": "x", "transaction_row": 0,
        "before": None if kind in ("INSERT", "READ") else before,
        "after": None if kind == "DELETE" else after, "server_id": r.randrange(1 << 32),
    }  # fmt: skip


# --- the judge -----------------------------------------------------------------------------------


def messages(table: Table, prefix: str, *, tombstones: bool = True) -> list[tuple[Any, Any]]:
    """(key, message) of each change, bytes as bytes; the message of a tombstone is None."""
    found: list[tuple[Any, Any]] = []
    for row in table.rows:
        keys = [_key(table, row[side]) for side in ("before", "after")]
        kind, before, after = (row[name] for name in ("event_type", "before", "after"))
        if kind == "DELETE" or (kind == "UPDATE" and keys[0] != keys[1]):
            found.append((keys[0], _message(table, prefix, row, "d", before, None)))
            if tombstones:
                found.append((keys[0], None))
            if kind == "UPDATE":
                found.append((keys[1], _message(table, prefix, row, "c", None, after)))
        else:
            op = {"INSERT": "c", "UPDATE": "u", "READ": "r"}[kind]
            found.append((keys[1], _message(table, prefix, row, op, before, after)))
    return found


def _key(table: Table, image: dict[str, Any] | None) -> Any:
    if image is None:
        return None
    shown = _shown(table, image) or {}
    return {c.meta.name: shown[c.meta.name] for c in table.columns if c.meta.is_key} or None


def _shown(table: Table, image: dict[str, Any] | None) -> Any:
    if image is None:
        return None
    return {
        each.meta.name: None if image[each.meta.name] is None else each.shown(image[each.meta.name])
        for each in table.columns
    }


def _message(
    table: Table, prefix: str, row: dict[str, Any], op: str, before: Any, after: Any
) -> Any:
    seconds = int(row["execute_time"].timestamp())
    source = {
        "version": "0.1.0", "connector": "mysql", "name": prefix, "ts_ms": seconds * 1000,
        "snapshot": "true" if row["event_type"] == "READ" else "false", "db": table.meta.schema,
        "sequence": None, "ts_us": seconds * 10**6, "ts_ns": seconds * 10**9,
        "table": table.meta.table, "server_id": row["server_id"], "gtid": row["gtid"],
        "file": row["journal_name"], "pos": row["position"], "row": row["row"], "thread": None,
        "query": None,
    }  # fmt: skip
    return {
        "before": _shown(table, before), "after": _shown(table, after), "source": source,
        "transaction": None, "op": op, "ts_ms": TS_US // 1000, "ts_us": TS_US,
        "ts_ns": TS_US * 1000,
    }  # fmt: skip


def with_base64(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, dict):
        return {key: with_base64(each) for key, each in value.items()}
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value
