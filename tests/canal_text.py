"""Canal's text of a value, computed from the Arrow value and its type: a second opinion on entries.

Conventions of Canal's Column.value (docs/reference/types.md), written without any of ray_canal's
code.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa


def java_float(value: float, single: bool) -> str:
    """Shortest digits that give the number back, laid out as Java's toString does."""
    number: np.floating[Any] = np.float32(value) if single else np.float64(value)
    if np.isnan(number) or np.isinf(number):
        return "NaN" if np.isnan(number) else ("-Infinity" if number < 0 else "Infinity")
    if number == 0:
        return "-0.0" if np.signbit(number) else "0.0"
    mantissa, _, exponent = np.format_float_scientific(abs(number), unique=True).partition("e")
    digits, power = mantissa.replace(".", "").rstrip("0") or "0", int(exponent)
    if len(digits) == 1:  # Java shows two digits at least, and chooses the nearest two
        near, _, at = f"{abs(float(number)):.1e}".partition("e")
        if type(number)(f"{near}e{at}") == abs(number):
            digits, power = near.replace(".", "").rstrip("0"), int(at)
    sign = "-" if number < 0 else ""
    if 1e-3 <= abs(number) < 1e7:
        if power < 0:
            return f"{sign}0.{'0' * (-power - 1)}{digits}"
        padded = digits.ljust(power + 1, "0")
        return f"{sign}{padded[: power + 1]}.{padded[power + 1 :] or '0'}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{power}"


def canal_text(value: Any, kind: pa.DataType, column_type: str, labels: tuple[str, ...]) -> str:
    """`value` is Arrow's Python value, never None; `column_type` is COLUMN_TYPE's text."""
    word = column_type.split("(")[0].split()[0].lower()
    digits = 0
    if word in ("time", "datetime", "timestamp") and "(" in column_type:
        digits = int(column_type.partition("(")[2].partition(")")[0])
    if word == "year":
        return f"{value:04d}"
    if pa.types.is_floating(kind):
        return java_float(value, kind == pa.float32())
    if pa.types.is_decimal(kind):
        return format(value, "f")
    if isinstance(value, dt.datetime):
        clock = value.strftime("%H:%M:%S") + f".{value.microsecond:06d}"[: digits + bool(digits)]
        return f"{value.year:04d}-{value.month:02d}-{value.day:02d} {clock}"
    if isinstance(value, dt.timedelta):
        micros = value // dt.timedelta(microseconds=1)
        whole, rest = divmod(abs(micros), 10**6)
        clock = f"{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"
        return "-" * (micros < 0) + clock + f".{rest:06d}"[: digits + bool(digits)]
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if word.startswith("vector"):
        return np.array(value, "<f4").tobytes().decode("latin-1")
    if word == "enum":
        return str(labels.index(value) + 1 if value in labels else 0)
    if word == "set":
        return str(sum(1 << labels.index(label) for label in value))
    return str(value)
