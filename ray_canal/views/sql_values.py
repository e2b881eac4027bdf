"""Values of a row predicate: what kinds there are, and how two of them come to one Arrow type.

A value is a function of a batch. Its type is found by running it on no rows, so that what Arrow
cannot do is told when an expression is read, before any row comes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ray_canal.errors import ConfigError

Columns = Mapping[str, pa.Array]
"""A batch as an expression sees it: `before.NAME`, `after.NAME`, and the envelope's columns."""

MOMENT_TYPE = pa.timestamp("us")
INSTANT_TYPE = pa.timestamp("us", "UTC")
SPAN_TYPE = pa.duration("us")
_DECIMAL128_DIGITS, _DECIMAL256_DIGITS = 38, 76
_INTEGER_DIGITS, _UNSIGNED_DIGITS = 19, 20
_SPAN = re.compile(r"(-?)(\d{1,3}):([0-5]\d)(?::([0-5]\d)(?:\.(\d{1,6}))?)?")


class ValueKind(Enum):
    NULL = "NULL"
    BOOL = "a condition"
    NUMBER = "a number"
    TEXT = "text"
    BYTES = "bytes"
    MOMENT = "a date or DATETIME"
    INSTANT = "a TIMESTAMP"
    SPAN = "a TIME"
    OTHER = "a list or an object"


def kind_of(kind: pa.DataType) -> ValueKind:
    """Return the kind that a type counts as."""
    if pa.types.is_null(kind):
        return ValueKind.NULL
    if pa.types.is_boolean(kind):
        return ValueKind.BOOL
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return ValueKind.NUMBER
    if pa.types.is_string(kind):
        return ValueKind.TEXT
    if pa.types.is_binary(kind):
        return ValueKind.BYTES
    if pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and kind.tz is None):
        return ValueKind.MOMENT
    if pa.types.is_timestamp(kind):
        return ValueKind.INSTANT
    return ValueKind.SPAN if pa.types.is_duration(kind) else ValueKind.OTHER


@dataclass(frozen=True, slots=True)
class Value:
    """`run` gives an array as long as the batch, or a scalar. `text`: it is this string literal,
    which may also stand for a date, a time or bytes."""

    run: Callable[[Columns], Any]
    type: pa.DataType
    text: str | None = None

    @property
    def kind(self) -> ValueKind:
        """Return what kind of value it is, by its Arrow type."""
        return kind_of(self.type)

    def cast(self, kind: pa.DataType) -> Value:
        """The same as another type."""
        if kind == self.type:
            return self
        run = self.run
        return Value(lambda columns: pc.cast(run(columns), kind), kind)


def constant(value: Any, kind: pa.DataType, text: str | None = None) -> Value:
    """A literal."""
    scalar = pa.scalar(value, kind)
    return Value(lambda _: scalar, kind, text)


def applied(function: Callable[..., Any], values: list[Value], empty: Columns) -> Value:
    """Return `function` of the results of these values. Raises ArrowInvalid,
    ArrowNotImplementedError: it cannot be computed."""

    def run(columns: Columns) -> Any:
        return function(*(value.run(columns) for value in values))

    return Value(run, run(empty).type)


def aligned(left: Value, right: Value) -> tuple[Value, Value]:
    """Two values as one type, so that they can be compared or stand for each other. Raises
    ConfigError: they are of kinds that have nothing to do with each other."""
    left, right = _read_as(left, right.kind), _read_as(right, left.kind)
    if left.type == right.type:
        # Arrow does not compare what has no type.
        return (left, right) if left.kind is not ValueKind.NULL else (
            left.cast(pa.int64()), right.cast(pa.int64())
        )  # fmt: skip
    kinds = {left.kind, right.kind}
    if ValueKind.NULL in kinds:
        return (left.cast(right.type), right) if left.kind is ValueKind.NULL else (
            left, right.cast(left.type)
        )  # fmt: skip
    if kinds == {ValueKind.BOOL, ValueKind.NUMBER}:
        left, right = _as_number(left), _as_number(right)
    elif len(kinds) > 1:
        raise ConfigError(f"{left.kind.value} and {right.kind.value} cannot be compared")
    if left.kind is ValueKind.NUMBER:
        common = number_type(left.type, right.type)
        return left.cast(common), right.cast(common)
    if left.kind is ValueKind.MOMENT:
        return left.cast(MOMENT_TYPE), right.cast(MOMENT_TYPE)
    return left, right.cast(left.type)


def _as_number(value: Value) -> Value:
    return value.cast(pa.int64()) if value.kind is ValueKind.BOOL else value


def number_type(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """A type that holds every value of both. Raises ConfigError: there is none."""
    if left == right and not pa.types.is_integer(left):
        return left
    if pa.types.is_floating(left) or pa.types.is_floating(right):
        return pa.float64()
    both = (left, right)
    if all(pa.types.is_integer(kind) for kind in both):
        if not any(pa.types.is_uint64(kind) for kind in both):
            return pa.int64()
        return pa.uint64() if left == right else pa.decimal128(_UNSIGNED_DIGITS, 0)
    shapes = [_digits(kind) for kind in both]
    scale = max(scale for _, scale in shapes)
    digits = scale + max(whole for whole, _ in shapes)
    if digits > _DECIMAL256_DIGITS:
        raise ConfigError(f"{left} and {right} have no common type; compare as DOUBLE")
    make = pa.decimal128 if digits <= _DECIMAL128_DIGITS else pa.decimal256
    return make(digits, scale)


def _digits(kind: pa.DataType) -> tuple[int, int]:
    """Return the digits before and after the point."""
    if pa.types.is_decimal(kind):
        return kind.precision - kind.scale, kind.scale
    return (_UNSIGNED_DIGITS if pa.types.is_uint64(kind) else _INTEGER_DIGITS), 0


def decimal_of(value: Value, wide: bool) -> Value:
    """A whole number or decimal as a decimal of its own scale; `wide` with room for more digits."""
    whole, scale = _digits(value.type)
    return value.cast((pa.decimal256 if wide else pa.decimal128)(whole + scale, scale))


def _read_as(value: Value, kind: ValueKind) -> Value:
    """Read a string literal as the type next to it. Raises ConfigError: it does not read so."""
    if value.text is None:
        return value
    if kind is ValueKind.MOMENT:
        return moment(value.text)
    if kind is ValueKind.INSTANT:
        return instant(value.text)
    if kind is ValueKind.SPAN:
        return span(value.text)
    if kind is ValueKind.BYTES:
        return constant(value.text.encode(), pa.binary())
    return value


def moment(text: str) -> Value:
    """A literal of a date, with or without a time."""
    try:
        return constant(pa.scalar(text).cast(MOMENT_TYPE), MOMENT_TYPE)
    except pa.ArrowInvalid:
        raise ConfigError(f"{text!r} is no date or time, like 2026-01-31 23:59:59.5") from None


def instant(text: str) -> Value:
    """A literal of an instant; without an offset in UTC."""
    try:
        return constant(pa.scalar(text).cast(INSTANT_TYPE), INSTANT_TYPE)
    except pa.ArrowInvalid:
        naive = moment(text)
        return constant(naive.run({}).cast(INSTANT_TYPE), INSTANT_TYPE)


def span(text: str) -> Value:
    """A literal of a TIME."""
    match = _SPAN.fullmatch(text)
    if match is None:
        raise ConfigError(f"{text!r} is no time, like 23:59:59.5")
    seconds = int(match[2]) * 3600 + int(match[3]) * 60 + int(match[4] or 0)
    span_us = seconds * 1_000_000 + int((match[5] or "").ljust(6, "0"))
    return constant(-span_us if match[1] else span_us, SPAN_TYPE)
