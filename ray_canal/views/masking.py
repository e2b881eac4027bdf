"""Mask a column's values that a subscriber must not see: by a constant, a few of its characters, or
a hash. NULL stays NULL. Whole columns at once."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ray_canal.errors import ConfigError
from ray_canal.kernels.base.jit import read_only
from ray_canal.kernels.base.sha256 import (
    HEX_BYTES,
    INITIAL,
    SCRATCH_WORDS,
    hash_column,
    midstates,
)
from ray_canal.views.texts import decimal_texts

_HASHED_MAX = ((1 << 31) - 1) // HEX_BYTES
"""Values of one column in a batch: the digits' offsets are int32."""


@dataclass(frozen=True, slots=True)
class Keep:
    """Show the first and last characters of a text; `fill` stands for each of the others. A text
    that has no others is filled whole."""

    first: int = 0
    last: int = 0
    fill: str = "*"

    def __post_init__(self) -> None:
        if self.first < 0 or self.last < 0 or len(self.fill) != 1:
            raise ConfigError(f"{self}: expected counts from 0 on, and one character to fill with")


Mask = Keep | str | int | float | bool | None
"""A constant of the column's type, None for NULL, or Keep."""


def masked(column: pa.Array, mask: Mask, name: str) -> pa.Array:
    """The column with the mask in place of its values. Raises ConfigError: it has no such type."""
    if mask is None:
        return pa.nulls(len(column), column.type)
    if isinstance(mask, Keep):
        if not pa.types.is_string(column.type):
            raise ConfigError(f"mask of {name}: Keep is for text, the column is {column.type}")
        return _kept(column, mask)
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    constant = _constant(mask, kind, name)
    if pa.types.is_dictionary(column.type):
        index = pc.if_else(column.indices.is_valid(), pa.scalar(0, column.type.index_type), None)
        return pa.DictionaryArray.from_arrays(index, pa.array([mask], kind))
    return pc.if_else(column.is_valid(), constant, pa.scalar(None, kind))


def _constant(mask: Mask, kind: pa.DataType, name: str) -> pa.Scalar:
    """The mask as a value of the type, given as such or as its text."""
    if not pa.types.is_nested(kind):
        with contextlib.suppress(pa.ArrowException, TypeError, OverflowError):
            return pa.scalar(mask, kind)
        with contextlib.suppress(pa.ArrowException):
            return pa.scalar(str(mask)).cast(kind)
    raise ConfigError(f"mask of {name}: {mask!r} is no {kind}")


def _kept(column: pa.Array, keep: Keep) -> pa.Array:
    length = pc.utf8_length(column)
    hides = pc.greater(length, keep.first + keep.last)
    first = pc.utf8_slice_codeunits(column, 0, keep.first)
    last = pc.utf8_slice_codeunits(column, -keep.last) if keep.last else pa.scalar("")
    hidden = pc.if_else(hides, pc.subtract(length, keep.first + keep.last), length)
    middle = pc.binary_repeat(keep.fill, hidden)
    shown = pc.binary_join_element_wise(first, middle, last, "")
    return pc.if_else(hides, shown, middle)


class Hashing:
    """SHA-256 of a column's values as hexadecimal digits; with a key HMAC-SHA-256, so that nobody
    without it can try values out. Text and bytes are hashed as they are, numbers, dates and ENUMs
    as text: equal values have equal hashes in every table."""

    def __init__(self, key: bytes) -> None:
        self._keyed = bool(key)
        states: tuple[np.ndarray[Any, Any], ...] = midstates(key) if key else (INITIAL, INITIAL)
        self._inner, self._outer = states

    def hashed(self, column: pa.Array, name: str) -> pa.Array:
        """Return the hashes of a column's values. Raises ConfigError: a column of lists or floating
        point numbers."""
        values = _as_bytes(column, name)
        if not values.null_count:
            return self._digits(values)
        # An INSERT has no before, a DELETE no after: half of a column may be NULL.
        is_there = values.is_valid()
        place = pc.subtract(pc.cumulative_sum(is_there.cast(pa.int32())), 1)
        digits = self._digits(values.drop_null())
        return digits.take(pc.if_else(is_there, place, pa.scalar(None, pa.int32())))

    def _digits(self, values: pa.Array) -> pa.Array:
        count = len(values)
        if count > _HASHED_MAX:
            raise ConfigError(f"{count} values to hash in one batch; set a smaller chunk_bytes")
        _, offsets, data = values.buffers()
        bounds = np.zeros(1, np.int32)
        if count:
            bounds = np.frombuffer(offsets, np.int32)[values.offset : values.offset + count + 1]
        source = np.frombuffer(data if data is not None else b"", np.uint8)
        out = np.empty(HEX_BYTES * count, np.uint8)
        hash_column(
            read_only(bounds), read_only(source), self._keyed, self._inner, self._outer,
            np.empty(SCRATCH_WORDS, np.uint32), out,
        )  # fmt: skip
        ends = np.arange(0, HEX_BYTES * (count + 1), HEX_BYTES, dtype=np.int32)
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(out)]
        return pa.Array.from_buffers(pa.string(), count, buffers)


def _as_bytes(column: pa.Array, name: str) -> pa.Array:
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return column
    if pa.types.is_nested(kind) or pa.types.is_floating(kind):
        raise ConfigError(f"hash of {name}: there is one text for each value of text, bytes, whole "
                          f"and decimal numbers, dates and ENUM, not of {kind}")  # fmt: skip
    if pa.types.is_decimal(kind):
        return decimal_texts(column)
    try:
        return column.cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ConfigError(f"hash of {name}: {kind} has no text ({error})") from None
