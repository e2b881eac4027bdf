"""A column's value as Canal's text, written backwards: each function ends at `pos` and returns
where it began.

Writing from the end means that lengths are known when their prefix is written; see entry_bytes.py.
Callers keep VALUE_BYTES_MAX bytes free before a fixed-width value. Text conventions are Canal's
(docs/types.md).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ray_canal.kernels import codes
from ray_canal.kernels.digits import (
    digits_back,
    integer_back,
    magnitude_back,
    pair_back,
    unsigned_back,
)
from ray_canal.kernels.float_text import MAX_TEXT_BYTES, java_text
from ray_canal.kernels.jit import bare, inlined
from ray_canal.kernels.memory import copy, load32, load64, store16

VALUE_BYTES_MAX: Final = MAX_TEXT_BYTES + 64
LIMBS_MAX: Final = 8

_BILLION = 1_000_000_000
_POWERS_OF_10 = np.array([10**k for k in range(19)], np.int64)
_U_TEN, _U_60, _U_100 = (np.uint64(k) for k in (10, 60, 100))
# Of the calendar: days and years of an era of 400 years.
_U_TWO, _U_FIVE, _U_153, _U_365, _U_400 = (np.uint64(k) for k in (2, 5, 153, 365, 400))
_U_1460, _U_36524, _U_146096, _U_ERA = (np.uint64(k) for k in (1460, 36524, 146096, 146097))


@inlined
def signed(arena, at, width):  # type: ignore[no-untyped-def]
    """The little-endian two's complement integer of 1, 2, 4 or 8 bytes."""
    if width == 8:
        return np.int64(load64(arena, at))
    value = unsigned(arena, at, width)
    sign = np.int64(1) << (8 * width - 1)
    return (value ^ sign) - sign


@inlined
def unsigned(arena, at, width):  # type: ignore[no-untyped-def]
    """The little-endian unsigned integer of 1, 2 or 4 bytes."""
    if width == 4:
        return np.int64(load32(arena, at))
    value = np.int64(arena[at])
    if width == 2:
        value |= np.int64(arena[at + 1]) << 8
    return value


@bare
def decimal_back(arena, at, width, scale, limbs, buf, pos):  # type: ignore[no-untyped-def]
    """A scaled two's complement integer of 16 or 32 bytes, with all digits of its scale."""
    negative = arena[at + width - 1] >= 128
    count = width // 4
    carry = np.int64(1) if negative else np.int64(0)
    for i in range(count):
        limb = np.int64(load32(arena, at + 4 * i))
        if negative:
            limb = (limb ^ 0xFFFFFFFF) + carry
            carry = limb >> 32
            limb &= 0xFFFFFFFF
        limbs[i] = limb
    written = 0
    while count > 0 or written <= scale:
        rest = np.int64(0)
        for i in range(count - 1, -1, -1):
            part = (rest << 32) | limbs[i]
            limbs[i] = part // _BILLION
            rest = part - limbs[i] * _BILLION
        while count > 0 and limbs[count - 1] == 0:
            count -= 1
        for _ in range(9):
            if count == 0 and rest == 0 and written > scale:
                break
            if written == scale and scale > 0:
                pos -= 1
                buf[pos] = 46
            pos -= 1
            buf[pos] = 48 + rest % 10
            rest //= 10
            written += 1
    if negative:
        pos -= 1
        buf[pos] = 45
    return pos


@inlined
def _scaled_back(value, scale, negative, buf, pos):  # type: ignore[no-untyped-def]
    """A magnitude below 2^63 with its point."""
    if scale > 0:
        quotient = np.int64(0)
        if scale <= 18:
            quotient = value // _POWERS_OF_10[scale]
            value -= quotient * _POWERS_OF_10[scale]
        pos = digits_back(value, scale, buf, pos) - 1
        buf[pos] = 46
        value = quotient
    pos = digits_back(value, 1, buf, pos)
    if negative:
        pos -= 1
        buf[pos] = 45
    return pos


@inlined
def _fraction_back(micros, fraction, buf, pos):  # type: ignore[no-untyped-def]
    if fraction <= 0:
        return pos
    pos = digits_back(micros // _POWERS_OF_10[6 - fraction], fraction, buf, pos)
    pos -= 1
    buf[pos] = 46
    return pos


@inlined
def _clock_back(seconds, buf, pos):  # type: ignore[no-untyped-def]
    rest = np.uint64(seconds)
    minutes = rest // _U_60
    hours = minutes // _U_60
    pos = pair_back(np.int64(rest - minutes * _U_60), buf, pos) - 1
    buf[pos] = 58
    pos = pair_back(np.int64(minutes - hours * _U_60), buf, pos) - 1
    buf[pos] = 58
    if hours < _U_100:
        return pair_back(np.int64(hours), buf, pos)
    return magnitude_back(hours, 2, buf, pos)


@inlined
def _ymd_back(year, month, day, buf, pos):  # type: ignore[no-untyped-def]
    pos = pair_back(day, buf, pos) - 1
    buf[pos] = 45
    pos = pair_back(month, buf, pos) - 1
    buf[pos] = 45
    return digits_back(year, 4, buf, pos)


@inlined
def _days_back(days, buf, pos):  # type: ignore[no-untyped-def]
    """Days since 1970-01-01 as a date of the proleptic Gregorian calendar (years from 0)."""
    shifted = np.uint64(days + 719468 + 146097)  # an era more: the year 0 begins in January
    era = shifted // _U_ERA
    of_era = shifted - era * _U_ERA
    year_of_era = (
        of_era - of_era // _U_1460 + of_era // _U_36524 - of_era // _U_146096
    ) // _U_365
    of_year = of_era - (_U_365 * year_of_era + (year_of_era >> _U_TWO) - year_of_era // _U_100)
    shifted_month = (_U_FIVE * of_year + _U_TWO) // _U_153
    day = np.int64(of_year - (_U_153 * shifted_month + _U_TWO) // _U_FIVE) + 1
    month = np.int64(shifted_month) + (3 if shifted_month < _U_TEN else -9)
    year = np.int64(year_of_era + era * _U_400) - 400 + (1 if month <= 2 else 0)
    return _ymd_back(year, month, day, buf, pos)


@bare
def date_back(slot, buf, pos):  # type: ignore[no-untyped-def]
    """A DATE slot."""
    if slot < codes.IRREGULAR_END32:
        packed = slot - codes.IRREGULAR32
        return _ymd_back(packed >> 9, (packed >> 5) & 15, packed & 31, buf, pos)
    return _days_back(slot, buf, pos)


@bare
def datetime_back(slot, fraction, buf, pos):  # type: ignore[no-untyped-def]
    """A DATETIME slot, or a TIMESTAMP slot moved to its zone."""
    if slot < codes.IRREGULAR_END64:
        packed = slot - codes.IRREGULAR64
        micros = packed & 0xFFFFF
        clock = packed >> 20
        date = clock >> 17
        seconds = ((clock >> 12) & 31) * 3600 + ((clock >> 6) & 63) * 60 + (clock & 63)
        pos = _fraction_back(micros, fraction, buf, pos)
        pos = _clock_back(seconds, buf, pos)
        pos -= 1
        buf[pos] = 32
        return _ymd_back(date >> 9, (date >> 5) & 15, date & 31, buf, pos)
    seconds = slot // 1_000_000
    pos = _fraction_back(slot - seconds * 1_000_000, fraction, buf, pos)
    days = seconds // 86400
    pos = _clock_back(seconds - days * 86400, buf, pos)
    pos -= 1
    buf[pos] = 32
    return _days_back(days, buf, pos)


@bare
def time_back(slot, fraction, buf, pos):  # type: ignore[no-untyped-def]
    """A TIME slot: `-838:59:59.000`."""
    micros = -slot if slot < 0 else slot
    pos = _fraction_back(micros % 1_000_000, fraction, buf, pos)
    pos = _clock_back(micros // 1_000_000, buf, pos)
    if slot < 0:
        pos -= 1
        buf[pos] = 45
    return pos


@bare
def zone_offset(seconds, transitions, offsets):  # type: ignore[no-untyped-def]
    """Seconds east of UTC at an instant; transitions[0] is before all instants."""
    low, high = 0, len(transitions)
    while high - low > 1:
        middle = (low + high) // 2
        if transitions[middle] <= seconds:
            low = middle
        else:
            high = middle
    return offsets[low]


@bare
def latin1_back(arena, start, end, buf, pos):  # type: ignore[no-untyped-def]
    """Bytes as one Latin-1 character each, in UTF-8."""
    for at in range(end - 1, start - 1, -1):
        byte = np.int64(arena[at])
        # Two bytes always, of which the first may be written over: no branch to be mispredicted.
        is_wide = byte >> 7
        two = (0x80 | byte & 63) << 8 | 0xC0 | byte >> 6
        store16(buf, pos - 2, two if is_wide else byte << 8)
        pos -= 1 + is_wide
    return pos


@inlined
def fixed_back(code, arena, values, row, parameter, transitions, offsets, limbs, scratch, buf, pos):  # type: ignore[no-untyped-def]
    """Any fixed-width value. `parameter`: scale of a decimal, fraction digits of a time."""
    if code == codes.I32 or code == codes.I24:
        return integer_back(signed(arena, values + 4 * row, 4), buf, pos)
    if code == codes.U32 or code == codes.U24:
        return digits_back(unsigned(arena, values + 4 * row, 4), 1, buf, pos)
    if code == codes.I64:
        return integer_back(signed(arena, values + 8 * row, 8), buf, pos)
    if code == codes.U64 or code == codes.BIT or code == codes.SET:
        return unsigned_back(signed(arena, values + 8 * row, 8), buf, pos)
    if code == codes.DEC128:
        at = values + 16 * row
        low = load64(arena, at)
        if load64(arena, at + 8) == low >> 63 and low != codes.NULL_SLOT64:
            return _scaled_back(-low if low < 0 else low, parameter, low < 0, buf, pos)
        return decimal_back(arena, at, 16, parameter, limbs, buf, pos)
    if code == codes.DATETIME:
        return datetime_back(signed(arena, values + 8 * row, 8), parameter, buf, pos)
    if code == codes.TIMESTAMP:
        slot = signed(arena, values + 8 * row, 8)
        if slot >= codes.IRREGULAR_END64:
            slot += zone_offset(slot // 1_000_000, transitions, offsets) * 1_000_000
        return datetime_back(slot, parameter, buf, pos)
    if code == codes.DATE:
        return date_back(signed(arena, values + 4 * row, 4), buf, pos)
    if code == codes.TIME:
        return time_back(signed(arena, values + 8 * row, 8), parameter, buf, pos)
    if code == codes.I8:
        return integer_back(signed(arena, values + row, 1), buf, pos)
    if code == codes.U8:
        return digits_back(unsigned(arena, values + row, 1), 1, buf, pos)
    if code == codes.I16:
        return integer_back(signed(arena, values + 2 * row, 2), buf, pos)
    if code == codes.U16 or code == codes.ENUM:
        return digits_back(unsigned(arena, values + 2 * row, 2), 1, buf, pos)
    if code == codes.YEAR:
        return digits_back(unsigned(arena, values + 2 * row, 2), 4, buf, pos)
    if code == codes.F64:
        size = java_text(signed(arena, values + 8 * row, 8), 52, 11, scratch, 0)
    elif code == codes.F32:
        size = java_text(unsigned(arena, values + 4 * row, 4), 23, 8, scratch, 0)
    else:
        return decimal_back(arena, values + 32 * row, 32, parameter, limbs, buf, pos)
    copy(buf, pos - size, scratch, 0, size)
    return pos - size
