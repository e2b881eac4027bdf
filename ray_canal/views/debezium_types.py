"""Which of Kafka Connect's types a column has in Debezium's messages, and its values in that type.

As Debezium's MySQL connector with its defaults: `time.precision.mode = adaptive_time_microseconds`,
`bigint.unsigned.handling.mode = long`, `binary.handling.mode = bytes`. `physical` turns Arrow's
values into integers, floats, texts, bytes or truth values, which JSON and Avro write each in their
way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ray_canal.kernels.base import codes
from ray_canal.model.arrays import Bytes
from ray_canal.model.table_meta import ColumnMeta
from ray_canal.types.registry import storage_code
from ray_canal.views.texts import decimal_texts, of_parts, parts_of, without_first

Decimals = Literal["precise", "string", "double"]
_GEOMETRY, _POINT = (f"io.debezium.data.geometry.{name}" for name in ("Geometry", "Point"))
_TIME = "io.debezium.time."
_DATA = "io.debezium.data."
_SRID_BYTES = 4
_POINT_HEAD_BYTES = _SRID_BYTES + 5  # the byte order and the kind


@dataclass(frozen=True)
class ConnectType:
    """A type: Connect's name of it, the name, parameters and description of what it means, and the
    function that makes values of it; of a struct (name, type, may be null) of each field.
    `fits_null`: values may be null whatever the source declares."""

    connect: str
    physical: Callable[[pa.Array], pa.Array] = field(compare=False)
    name: str = ""
    version: int = 1
    parameters: tuple[tuple[str, str], ...] = ()
    fits_null: bool = False
    doc: str = ""
    fields: tuple[tuple[str, str, bool], ...] = ()


def kind_of(arrow: pa.DataType, column: ColumnMeta | None, decimals: Decimals) -> ConnectType:
    """Return a column's type. `column` None: only Arrow's type is known."""
    is_ = pa.types
    code = storage_code(column) if column else None
    if column is not None and code == codes.BIT:
        return _bits(column)
    if code == codes.U24:
        return ConnectType("int32", _to(pa.int32()))  # MEDIUMINT, which Arrow has as 32 bits
    if code == codes.YEAR:
        return ConnectType("int32", _to(pa.int32()), f"{_TIME}Year")
    if code == codes.GEOMETRY:
        return _geometries(column)
    if is_.is_boolean(arrow):
        return ConnectType("boolean", _same)
    if is_.is_integer(arrow):
        return _integer(arrow)
    if is_.is_floating(arrow):
        return _floating(arrow, column)
    if is_.is_decimal(arrow):
        return _decimal(arrow, decimals)
    if is_.is_temporal(arrow):
        return _temporal(arrow, column)
    if is_.is_list(arrow) and is_.is_floating(arrow.value_type):
        return ConnectType("array", _same, f"{_DATA}FloatVector")
    if is_.is_list(arrow):
        return ConnectType("string", _set_texts, f"{_DATA}EnumSet", parameters=_allowed(column))
    if is_.is_dictionary(arrow):
        return ConnectType("string", _to(pa.string()), f"{_DATA}Enum", parameters=_allowed(column))
    if is_.is_binary(arrow) or is_.is_large_binary(arrow) or is_.is_fixed_size_binary(arrow):
        return ConnectType("bytes", _to(pa.large_binary()))
    names = {"json": f"{_DATA}Json", "uuid": f"{_DATA}Uuid"}
    word = column.mysql_type.lower() if column else ""
    return ConnectType("string", _to(pa.large_string()), names.get(word, ""))


def _same(values: pa.Array) -> pa.Array:
    return values


def _to(kind: pa.DataType) -> Callable[[pa.Array], pa.Array]:
    return lambda values: values.cast(kind)


def _allowed(column: ColumnMeta | None) -> tuple[tuple[str, str], ...]:
    return (("allowed", ",".join(column.labels) if column else ""),)


def _set_texts(values: pa.Array) -> pa.Array:
    return pc.binary_join(values, ",")


def _integer(arrow: pa.DataType) -> ConnectType:
    """Unsigned ones are the next wider type; BIGINT UNSIGNED is what a long has of its bits."""
    bits = arrow.bit_width
    if pa.types.is_signed_integer(arrow):
        bits = max(bits, 16)
    elif bits == 64:
        return ConnectType("int64", lambda values: values.cast(pa.int64(), safe=False))
    else:
        bits *= 2
    kind = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[bits]
    return ConnectType(f"int{bits}", _to(kind))


def _floating(arrow: pa.DataType, column: ColumnMeta | None) -> ConnectType:
    """Return the type of a FLOAT or DOUBLE column: double for DOUBLE and FLOAT(M,D), else
    float."""
    if arrow.bit_width == 64 or (column is not None and "," in column.mysql_type):
        return ConnectType("double", _to(pa.float64()))
    return ConnectType("float", _same)


def _bits(column: ColumnMeta) -> ConnectType:
    """Return the type of a BIT column: boolean for BIT(1), else Debezium's Bits."""
    length = column.length or 1
    if length == 1:
        return ConnectType(
            "boolean", lambda values: pc.not_equal(values, pa.scalar(0, values.type))
        )
    width = (length + 7) // 8

    def physical(values: pa.Array) -> pa.Array:
        """Return the bytes, the least significant first."""
        numbers = np.asarray(pc.fill_null(values, 0).cast(pa.uint64())).astype("<u8")
        parts: Bytes = np.ascontiguousarray(numbers.view(np.uint8).reshape(-1, 8)[:, :width])
        ends = width * np.arange(len(values) + 1, dtype=np.int64)
        return of_parts(parts.reshape(-1), ends, values.is_null())

    return ConnectType("bytes", physical, f"{_DATA}Bits", parameters=(("length", str(length)),))


def _decimal(arrow: pa.DataType, decimals: Decimals) -> ConnectType:
    if decimals == "string":
        return ConnectType("string", decimal_texts)
    if decimals == "double":
        return ConnectType("double", lambda values: values.cast(pa.string()).cast(pa.float64()))
    parameters = ("scale", str(arrow.scale)), ("connect.decimal.precision", str(arrow.precision))
    return ConnectType(
        "bytes", _unscaled, "org.apache.kafka.connect.data.Decimal", parameters=parameters
    )


def _unscaled(values: pa.Array) -> pa.Array:
    """Return decimals without their point, in two's complement: the highest byte first, and no byte
    more than it takes."""
    width = values.type.bit_width // 8
    _, data = values.buffers()
    count, first = len(values), values.offset
    lines = np.frombuffer(data, np.uint8).reshape(-1, width)[first : first + count, ::-1]
    sign = np.where(lines[:, :1] >= 128, 255, 0)
    # A leading byte is left out if it, and the top bit of the next one, only repeat the sign.
    repeats = (lines[:, :-1] == sign) & ((lines[:, 1:] >= 128) == (sign == 255))
    left_out = np.logical_and.accumulate(repeats, axis=1).sum(axis=1)
    kept = np.arange(width)[None, :] >= left_out[:, None]
    ends = np.concatenate([[0], np.cumsum(width - left_out)])
    return of_parts(np.ascontiguousarray(lines[kept]), ends, values.is_null())


def _temporal(arrow: pa.DataType, column: ColumnMeta | None) -> ConnectType:
    """Values may be null: dates that no calendar has are."""
    is_ = pa.types
    fraction = column.fraction if column else 6
    if is_.is_date(arrow):
        return ConnectType("int32", lambda v: v.cast(pa.date32()).cast(pa.int32()), f"{_TIME}Date",
                    fits_null=True)  # fmt: skip
    if is_.is_duration(arrow):
        return ConnectType("int64", _micros(pa.duration("us")), f"{_TIME}MicroTime")
    if is_.is_timestamp(arrow) and arrow.tz is not None:
        return ConnectType("string", _instants(fraction), f"{_TIME}ZonedTimestamp", fits_null=True)
    if fraction <= 3:
        return ConnectType("int64", _millis, f"{_TIME}Timestamp", fits_null=True)
    return ConnectType(
        "int64", _micros(pa.timestamp("us")), f"{_TIME}MicroTimestamp", fits_null=True
    )


def _micros(kind: pa.DataType) -> Callable[[pa.Array], pa.Array]:
    return lambda values: values.cast(kind).cast(pa.int64())


def _millis(values: pa.Array) -> pa.Array:
    return values.cast(pa.timestamp("ms"), safe=False).cast(pa.int64())


def _instants(fraction: int) -> Callable[[pa.Array], pa.Array]:
    """Return a function that writes instants as ISO 8601 in UTC, with so many digits."""
    end = 20 + fraction if fraction else 19

    def physical(values: pa.Array) -> pa.Array:
        texts = values.cast(pa.timestamp("us")).cast(pa.string())
        texts = pc.utf8_slice_codeunits(pc.utf8_replace_slice(texts, 10, 11, "T"), 0, end)
        return pc.binary_join_element_wise(texts, "Z", "")

    return physical


def _geometries(column: ColumnMeta | None) -> ConnectType:
    srid = ("srid", "int32", True)
    if column is not None and column.mysql_type.lower().startswith("point"):
        place = ("x", "double", False), ("y", "double", False)
        return ConnectType(
            "struct", _points, _POINT, doc="Geometry (POINT)",
            fields=(*place, ("wkb", "bytes", True), srid),
        )  # fmt: skip
    return ConnectType(
        "struct", _geometry, _GEOMETRY, doc="Geometry", fields=(("wkb", "bytes", False), srid)
    )


def _geometry(values: pa.Array) -> pa.Array:
    """Return structs of WKB and SRID (0: null) from MySQL's bytes."""
    srid = _numbers_at(values, 0, "<i4", 1)[:, 0]
    fields = [without_first(values, _SRID_BYTES), pa.array(srid, mask=srid == 0)]
    return pa.StructArray.from_arrays(fields, ["wkb", "srid"], mask=values.is_null())


def _points(values: pa.Array) -> pa.Array:
    """Return such structs with the coordinates of each point."""
    places = _numbers_at(values, _POINT_HEAD_BYTES, "<f8", 2)
    fields = [*(pa.array(places[:, k]) for k in range(2)), *_geometry(values).flatten()]
    return pa.StructArray.from_arrays(fields, ["x", "y", "wkb", "srid"], mask=values.is_null())


def _numbers_at(values: pa.Array, first: int, kind: str, count: int) -> NDArray[Any]:
    """Return the numbers, so many a row, that each value has from its byte `first` on; of a null
    anything."""
    data, offsets = parts_of(values)
    starts = np.asarray(pc.if_else(values.is_null(), 0, pa.array(offsets[:-1])))
    width = count * np.dtype(kind).itemsize
    places = starts[:, None] + first + np.arange(width)
    parts = np.pad(data, (0, first + width))[places]
    found: NDArray[Any] = np.ascontiguousarray(parts).view(kind)
    return found
