"""Values as the text that MySQL makes of them, when a column becomes text: by ALTER TABLE, by CAST.

Arrow's types do not tell how many fractional digits a time was declared to have; the metadata of
its field do (`FRACTION`). Where they are unknown, zeros at a fraction's end are left out. A
TIMESTAMP is in UTC.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kind

from ray_canal.views.texts import decimal_texts

FLOAT_DIGITS = 6
"""Digits of a FLOAT in MySQL's text: less than it has."""
FLOAT_WIDTH, DOUBLE_WIDTH = 12, 24
"""A number that takes more characters has an exponent. (So from MySQL 8 on; 5.6 and MariaDB write
small ones with all their zeros.)"""
PLAIN_MAX = 15
"""Places before the point, and zeros behind it, of numbers without an exponent."""

FRACTION = b"canal.fraction"
"""Metadata key of a field: the declared fractional digits of a DATETIME, TIMESTAMP or TIME; empty
where they are unknown."""

_US = 1_000_000
_US_DIGITS = 6


def fraction_notes(digits: int | None) -> dict[bytes, bytes]:
    """Return the metadata of a field with so many declared fractional digits; None: unknown."""
    return {FRACTION: b"" if digits is None else str(digits).encode()}


def field_with_digits(name: str, data_type: pa.DataType, digits: int | None) -> pa.Field:
    """Return a field, with so many declared fractional digits; None: unknown, or it is no time."""
    return pa.field(name, data_type, metadata=None if digits is None else fraction_notes(digits))


def fraction_digits(field: pa.Field) -> int | None:
    """Return the declared fractional digits of a field; None: unknown."""
    found = (field.metadata or {}).get(FRACTION)
    return int(found) if found else None


def mysql_texts(values: pa.Array, digits: int | None = None) -> pa.Array:
    """Return values as strings; null stays null. `digits`: the declared fractional digits of times
    (None: unknown)."""
    given = values.type
    if kind.is_floating(given):
        return _of_distinct(values, is_float=given != pa.float64())
    if kind.is_timestamp(given):
        naive = values.cast(pa.timestamp("us", given.tz)).cast(pa.int64()).cast(pa.timestamp("us"))
        return _with_digits(naive.cast(pa.string()), digits)
    if kind.is_duration(given):
        return _with_digits(time_texts(values), digits)
    if kind.is_decimal(given):
        return decimal_texts(values)
    return values.cast(pa.string())


def number_text(value: float, *, is_float: bool) -> str:
    """Return a number as MySQL writes it, a FLOAT (`is_float`) with six digits."""
    written = f"{value:.{FLOAT_DIGITS - 1}e}" if is_float else repr(value)
    mantissa, _, power = written.lstrip("-").partition("e")
    whole, _, behind = mantissa.partition(".")
    digits = (whole + behind).lstrip("0")
    point = len(whole) + int(power or 0) - (len(whole + behind) - len(digits))
    digits = digits.rstrip("0")
    if not digits:
        return "0"
    sign = "-" if value < 0 else ""
    count = len(digits)
    if point <= 0:
        plain = f"0.{'0' * -point}{digits}"
    elif point < count:
        plain = f"{digits[:point]}.{digits[point:]}"
    else:
        plain = digits + "0" * (point - count)
    fits = len(sign + plain) <= (FLOAT_WIDTH if is_float else DOUBLE_WIDTH)
    if fits and point > -PLAIN_MAX and (point <= PLAIN_MAX or count > point):
        return sign + plain
    fraction = f".{digits[1:]}" if count > 1 else ""
    return f"{sign}{digits[0]}{fraction}e{point - 1}"


def _of_distinct(values: pa.Array, *, is_float: bool) -> pa.Array:
    words = values.dictionary_encode()
    texts = [number_text(value, is_float=is_float) for value in words.dictionary.to_pylist()]
    return pa.array(texts, pa.string()).take(words.indices)


def time_texts(values: pa.Array) -> pa.Array:
    """Return TIME values as strings with six digits behind their seconds: `-838:59:59.000000`; null
    stays null."""
    us = values.cast(pa.duration("us")).cast(pa.int64())
    numbers = np.asarray(us.fill_null(0))
    seconds, fractions = np.divmod(np.abs(numbers), _US)
    places = [seconds // 3600, seconds // 60 % 60, seconds % 60]
    parts = [pc.utf8_lpad(pa.array(each).cast(pa.string()), 2, "0") for each in places]
    fraction = pc.utf8_lpad(pa.array(fractions).cast(pa.string()), 6, "0")
    sign = pc.if_else(pa.array(numbers < 0), "-", "")
    clock = pc.binary_join_element_wise(*parts, ":")
    texts = pc.binary_join_element_wise(sign, clock, ".", fraction, "")
    return pc.if_else(us.is_null(), pa.scalar(None, pa.string()), texts)


def _with_digits(texts: pa.Array, digits: int | None) -> pa.Array:
    """Return times with six fractional digits with so many; None: without zeros at the end."""
    if digits is None:
        return pc.replace_substring_regex(texts, r"\.?0{1,6}$", "")
    if digits == _US_DIGITS:
        return texts
    return pc.utf8_slice_codeunits(texts, 0, digits - _US_DIGITS if digits else -1 - _US_DIGITS)
