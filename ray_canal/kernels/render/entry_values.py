"""Write a column's value as Canal's text, backwards: each function ends at `pos` and returns where
its text begins.

Written from the end, a text's length is known when its prefix is written; see entry_bytes.py.
Callers keep VALUE_BYTES_MAX bytes free before a fixed-width value. Text conventions are Canal's
(docs/reference/types.md).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ray_canal.kernels.base import codes
from ray_canal.kernels.base.digits import (
    digits_back,
    eight_digits,
    integer_back,
    magnitude_back,
    pair_back,
    unsigned_back,
)
from ray_canal.kernels.base.float_text import MAX_TEXT_BYTES, java_text
from ray_canal.kernels.base.jit import inlined, without_refcounts
from ray_canal.kernels.base.memory import load32, load64, store8, store16, store64
from ray_canal.kernels.render.protobuf import short_back

VALUE_BYTES_MAX: Final = MAX_TEXT_BYTES + 64
LIMBS_MAX: Final = 8
_SHORT_BYTES: Final = 32  # short_back copies so many

_BILLION = 1_000_000_000
_POWERS_OF_10 = np.array([10**k for k in range(19)], np.int64)
_U_POWERS_OF_10 = _POWERS_OF_10.astype(np.uint64)
_U_EIGHT, _U_SIX, _U_60, _U_100 = (np.uint64(k) for k in (8, 6, 60, 100))
_U_MILLION = np.uint64(1_000_000)
_ERA_DAYS: Final = 146_097  # of 400 years


@inlined
def signed(arena, at, width):
    """Read a little-endian two's complement integer of 1, 2, 4 or 8 bytes."""
    if width == 8:
        return np.int64(load64(arena, at))
    value = unsigned(arena, at, width)
    sign = np.int64(1) << (8 * width - 1)
    return (value ^ sign) - sign


@inlined
def unsigned(arena, at, width):
    """Read a little-endian unsigned integer of 1, 2 or 4 bytes."""
    if width == 4:
        return np.int64(load32(arena, at))
    value = np.int64(arena[at])
    if width == 2:
        value |= np.int64(arena[at + 1]) << 8
    return value


@without_refcounts
def decimal_back(arena, at, width, scale, limbs, buf, pos):
    """Write a scaled two's complement integer of 16 or 32 bytes, with all digits of its scale."""
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
def _scaled_back(value, scale, negative, buf, pos):
    """Write a magnitude below 2^63 with its point."""
    if scale > 0:
        quotient = np.int64(0)
        if scale <= 18:
            quotient = np.int64(np.uint64(value) // _U_POWERS_OF_10[scale])
            value -= quotient * _POWERS_OF_10[scale]
        pos = digits_back(value, scale, buf, pos) - 1
        store8(buf, pos, 46)
        value = quotient
    pos = digits_back(value, 1, buf, pos)
    if negative:
        pos -= 1
        buf[pos] = 45
    return pos


@inlined
def _fraction_back(micros, fraction, buf, pos):
    """Write the first digits of microseconds; eight bytes before `pos` may be overwritten."""
    if fraction <= 0:
        return pos
    digits = eight_digits(np.uint64(micros)) << _U_EIGHT * (_U_SIX - np.uint64(fraction))
    store64(buf, pos - 8, np.int64(digits))  # the last one wanted is now its last byte
    pos -= fraction + 1
    store8(buf, pos, 46)
    return pos


@inlined
def _clock_back(seconds, buf, pos):
    """Write seconds as `hh:mm:ss`, the hours with more digits if they need them."""
    rest = np.uint64(seconds)
    minutes = rest // _U_60
    hours = minutes // _U_60
    pos = pair_back(np.int64(rest - minutes * _U_60), buf, pos) - 1
    store8(buf, pos, 58)
    pos = pair_back(np.int64(minutes - hours * _U_60), buf, pos) - 1
    store8(buf, pos, 58)
    if hours < _U_100:
        return pair_back(np.int64(hours), buf, pos)
    return magnitude_back(hours, 2, buf, pos)


@inlined
def _ymd_back(year, month, day, buf, pos):
    """Write `yyyy-mm-dd`."""
    pos = pair_back(day, buf, pos) - 1
    store8(buf, pos, 45)
    pos = pair_back(month, buf, pos) - 1
    store8(buf, pos, 45)
    if not 0 <= year < 10_000:
        return digits_back(year, 4, buf, pos)
    century = np.int64(np.uint64(year) // _U_100)
    return pair_back(century, buf, pair_back(year - 100 * century, buf, pos))


@inlined
def _days_back(days, buf, pos):
    """Write days since 1970-01-01 as a date of the proleptic Gregorian calendar (years from 0).

    Years begin in March here: C. Neri, L. Schneider, "Euclidean affine functions and their
    application to calendar algorithms", 2022.
    """
    quarters = np.uint64(4 * (days + 719_468 + _ERA_DAYS) + 3)  # an era more: none is negative
    century = quarters // np.uint64(_ERA_DAYS)
    quarters = (quarters - century * np.uint64(_ERA_DAYS)) | np.uint64(3)
    years = np.uint64(2_939_745) * quarters  # 2^32 of them are a year
    of_year = np.int64((years & np.uint64(0xFFFFFFFF)) // np.uint64(4 * 2_939_745))
    months = np.uint64(2141 * of_year + 197_913)  # 2^16 of them are a month
    day = np.int64((months & np.uint64(0xFFFF)) // np.uint64(2141)) + 1
    is_next = 1 if of_year >= 306 else 0  # January and February
    month = np.int64(months >> np.uint64(16)) - 12 * is_next
    year = 100 * np.int64(century) + np.int64(years >> np.uint64(32)) - 400 + is_next
    return _ymd_back(year, month, day, buf, pos)


@inlined
def date_back(slot, buf, pos):
    """Write a DATE slot."""
    if slot < codes.IRREGULAR_END32:
        packed = slot - codes.IRREGULAR32
        return _ymd_back(packed >> 9, (packed >> 5) & 15, packed & 31, buf, pos)
    return _days_back(slot, buf, pos)


@inlined
def datetime_back(slot, fraction, buf, pos):
    """Write a DATETIME slot, or a TIMESTAMP slot moved to its zone."""
    if slot < codes.IRREGULAR_END64:
        packed = slot - codes.IRREGULAR64
        micros = packed & 0xFFFFF
        clock = packed >> 20
        date = clock >> 17
        seconds = ((clock >> 12) & 31) * 3600 + ((clock >> 6) & 63) * 60 + (clock & 63)
        pos = _fraction_back(micros, fraction, buf, pos)
        pos = _clock_back(seconds, buf, pos)
        pos -= 1
        store8(buf, pos, 32)
        return _ymd_back(date >> 9, (date >> 5) & 15, date & 31, buf, pos)
    seconds = slot // 1_000_000
    pos = _fraction_back(slot - seconds * 1_000_000, fraction, buf, pos)
    days = seconds // 86400
    pos = _clock_back(seconds - days * 86400, buf, pos)
    pos -= 1
    store8(buf, pos, 32)
    return _days_back(days, buf, pos)


@inlined
def time_back(slot, fraction, buf, pos):
    """Write a TIME slot: `-838:59:59.000`."""
    micros = np.uint64(-slot if slot < 0 else slot)
    seconds = micros // _U_MILLION
    pos = _fraction_back(micros - seconds * _U_MILLION, fraction, buf, pos)
    pos = _clock_back(seconds, buf, pos)
    if slot < 0:
        pos -= 1
        buf[pos] = 45
    return pos


@without_refcounts
def zone_offset(seconds, transitions, offsets):
    """Return the seconds east of UTC at an instant; transitions[0] is before all instants."""
    low, high = 0, len(transitions)
    while high - low > 1:
        middle = (low + high) // 2
        if transitions[middle] <= seconds:
            low = middle
        else:
            high = middle
    return offsets[low]


@without_refcounts
def latin1_back(arena, start, end, buf, pos):
    """Write bytes as one Latin-1 character each, in UTF-8."""
    for at in range(end - 1, start - 1, -1):
        byte = np.int64(arena[at])
        # Always two bytes, of which the first may be overwritten: no branch to mispredict.
        is_wide = byte >> 7
        two = (0x80 | byte & 63) << 8 | 0xC0 | byte >> 6
        store16(buf, pos - 2, two if is_wide else byte << 8)
        pos -= 1 + is_wide
    return pos


@inlined
def fixed_back(rows, code, values, row, parameter, buf, pos):
    """Write any fixed-width value. `parameter`: scale of a decimal, fraction digits of a time."""
    arena, limbs, scratch = rows.arena, rows.limbs, rows.scratch
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
    if code == codes.DATETIME or code == codes.TIMESTAMP:
        slot = signed(arena, values + 8 * row, 8)
        if code == codes.TIMESTAMP and slot >= codes.IRREGULAR_END64:
            east = rows.offsets[0]
            if len(rows.transitions) > 1:
                east = zone_offset(slot // 1_000_000, rows.transitions, rows.offsets)
            slot += east * 1_000_000
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
        end = java_text(signed(arena, values + 8 * row, 8), 52, 11, scratch, _SHORT_BYTES)
    elif code == codes.F32:
        end = java_text(unsigned(arena, values + 4 * row, 4), 23, 8, scratch, _SHORT_BYTES)
    else:
        return decimal_back(arena, values + 32 * row, 32, parameter, limbs, buf, pos)
    return short_back(scratch, _SHORT_BYTES, end - _SHORT_BYTES, buf, pos)
