"""Print INTVAR, RAND and USER_VAR events as SET statements, as Canal does.

They say what the statement behind them was run with, where the log has statements, not rows.

Formats (little-endian): INTVAR is a kind byte (1 LAST_INSERT_ID, 2 INSERT_ID) and uint64. RAND is
two uint64 seeds. USER_VAR is uint32 length and name, a byte that is not 0 for NULL, and else a type
byte, uint32 collation, uint32 length, the value, and from MySQL 5.6 on a flag byte (1: unsigned).
Every reader raises CorruptEvent where bytes are missing.
"""

from __future__ import annotations

import struct

import numpy as np

from ray_canal.binlog.events import event_name
from ray_canal.errors import CorruptEvent
from ray_canal.kernels.base import event_types
from ray_canal.kernels.base.float_text import MAX_TEXT_BYTES, java_text
from ray_canal.types.charsets import charset_of_collation, decode_text

_STRING, _REAL, _INTEGER, _DECIMAL = 0, 1, 2, 4  # MySQL's Item_result
_UNSIGNED_FLAG = 1

_BYTES_OF_DIGITS = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
_DECIMAL_DIGITS_MAX = 81


def text_of(kind: int, body: bytes) -> str:
    """The SET statement of an INTVAR (5), RAND (13) or USER_VAR (14) event's body.

    Canal writes `SET INSERT_ID` for both kinds of INTVAR, and so does this; seeds are signed.
    """
    try:
        if kind == event_types.INTVAR:
            return f"SET INSERT_ID = {struct.unpack_from('<q', body, 1)[0]}"
        if kind == event_types.RAND:
            first, second = struct.unpack_from("<qq", body)
            return f"SET SESSION rand_seed1 = {first} , rand_seed2 = {second}"
        return _user_var(body)
    except struct.error:
        raise CorruptEvent(f"{event_name(kind)}: the event is too short") from None


def _user_var(body: bytes) -> str:
    (name_bytes,) = struct.unpack_from("<I", body)
    (is_null,) = struct.unpack_from("<B", body, 4 + name_bytes)
    name = decode_text(body[4 : 4 + name_bytes], "utf8mb4")
    if is_null:
        return f"SET @{name} := NULL"
    value_type, collation, size = struct.unpack_from("<BII", body, 5 + name_bytes)
    start = 14 + name_bytes
    if len(body) - start < size:
        raise CorruptEvent(f"USER_VAR @{name}: the value is cut off")
    value, flags = body[start : start + size], body[start + size : start + size + 1]
    is_unsigned = bool(flags) and bool(flags[0] & _UNSIGNED_FLAG)
    return f"SET @{name} := {_value(value_type, value, collation, is_unsigned)}"


def _value(value_type: int, value: bytes, collation: int, is_unsigned: bool) -> str:
    if value_type == _STRING:
        text = decode_text(value, charset_of_collation(collation))
        return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"
    if value_type == _INTEGER and len(value) in (4, 8):
        return str(int.from_bytes(value, "little", signed=len(value) == 8 and not is_unsigned))
    if value_type == _REAL and len(value) == 8:
        out = np.empty(MAX_TEXT_BYTES, np.uint8)
        bits = int.from_bytes(value, "little", signed=True)
        return out[: java_text(bits, 52, 11, out, 0)].tobytes().decode("ascii")
    if value_type == _DECIMAL and len(value) > 2:
        return _decimal(value[2:], value[0], value[1])
    raise CorruptEvent(f"USER_VAR: a value of type {value_type} in {len(value)} bytes")


def _decimal(packed: bytes, precision: int, scale: int) -> str:
    """MySQL's binary decimal: groups of nine digits, big-endian, inverted when negative; the sign
    is the first bit, set for positive."""
    whole = precision - scale
    if whole < 0 or precision > _DECIMAL_DIGITS_MAX:
        raise CorruptEvent(f"USER_VAR: a decimal of impossible size ({precision},{scale})")
    groups = [whole % 9, *[9] * (whole // 9)], [*[9] * (scale // 9), scale % 9]
    if len(packed) < sum(_BYTES_OF_DIGITS[digits] for side in groups for digits in side):
        raise CorruptEvent("USER_VAR: a decimal is cut off")
    negative = not packed[0] & 0x80
    plain = bytes((packed[0] ^ 0x80, *packed[1:]))
    if negative:
        plain = bytes(byte ^ 0xFF for byte in plain)
    at, texts = 0, []
    for side in groups:
        text = ""
        for digits in side:
            size = _BYTES_OF_DIGITS[digits]
            if digits:
                text += str(int.from_bytes(plain[at : at + size], "big")).zfill(digits)
            at += size
        texts.append(text)
    number = texts[0].lstrip("0") or "0"
    return "-" * negative + number + (f".{texts[1]}" if scale else "")
