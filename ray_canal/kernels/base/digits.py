"""Write integers as decimal digits, backwards: each function ends at `pos` and returns where its
digits begin. DIGITS_ROOM bytes before `pos` may be overwritten."""

from __future__ import annotations

from typing import Final

import numpy as np

from ray_canal.kernels.base.jit import inlined
from ray_canal.kernels.base.memory import bit_length, load16, store16, store64

DIGITS_ROOM: Final = 24
_PAIRS = np.frombuffer("".join(f"{k:02d}" for k in range(100)).encode(), np.uint8)
_U_POWERS = np.array([10**k for k in range(20)], np.uint64)
_U_ONE, _U8, _U10, _U16, _U20, _U32 = (np.uint64(k) for k in (1, 8, 10, 16, 20, 32))
_U_TOP = np.uint64(1 << 63)
_U_TEN, _U_100, _U103, _U_10000, _U10486 = (np.uint64(k) for k in (10, 100, 103, 10_000, 10_486))
_U_1E8 = np.uint64(10**8)
# 10486 / 2^20 and 103 / 2^10 are a hundredth and a tenth, exact enough below 10,000 and 100.
_LANES_2, _LANES_4 = np.uint64(0x7F0000007F), np.uint64(0x000F000F000F000F)
_ZEROS = np.uint64(0x3030303030303030)


@inlined
def eight_digits(value):
    """Return the digits of a number below 10^8 as the eight bytes of a word, all lanes at once."""
    high = value // _U_10000
    pairs = high | (value - high * _U_10000) << _U32  # two lanes below 10,000
    hundreds = pairs * _U10486 >> _U20 & _LANES_2
    pairs = hundreds | (pairs - hundreds * _U_100) << _U16  # four below 100
    tens = pairs * _U103 >> _U10 & _LANES_4
    return tens | (pairs - tens * _U_TEN) << _U8 | _ZEROS


@inlined
def digit_count(value):
    """Return the number of decimal digits of a number below 2^64; 1 for zero."""
    value = value | _U_ONE  # zero has a digit, too
    estimate = bit_length(value) * 1233 >> 12
    return estimate + (1 if value >= _U_POWERS[estimate] else 0)


@inlined
def magnitude_back(value, count, buf, pos):
    """Write a uint64 in at least `count` digits."""
    digits = max(digit_count(value), count)
    rest = value // _U_1E8
    store64(buf, pos - 8, np.int64(eight_digits(value - rest * _U_1E8)))
    if digits > 8:
        top = rest // _U_1E8
        store64(buf, pos - 16, np.int64(eight_digits(rest - top * _U_1E8)))
        if digits > 16:
            store64(buf, pos - 24, np.int64(eight_digits(top)))
    for at in range(pos - digits, pos - DIGITS_ROOM):
        buf[at] = 48
    return pos - digits


@inlined
def digits_back(value, count, buf, pos):
    """Write a non-negative integer in at least `count` digits. It needs DIGITS_ROOM bytes before
    `pos`, as the functions below do."""
    return magnitude_back(np.uint64(value), count, buf, pos)


@inlined
def pair_back(value, buf, pos):
    """Write a number below 100 in two digits."""
    store16(buf, pos - 2, load16(_PAIRS, 2 * value))
    return pos - 2


@inlined
def integer_back(value, buf, pos):
    """Write a signed 64-bit integer."""
    if value >= 0:
        return digits_back(value, 1, buf, pos)
    pos = magnitude_back(np.uint64(~value) + _U_ONE, 1, buf, pos) - 1
    buf[pos] = 45
    return pos


@inlined
def unsigned_back(value, buf, pos):
    """Write a 64-bit pattern as an unsigned integer."""
    if value >= 0:
        return digits_back(value, 1, buf, pos)
    return magnitude_back(np.uint64(value & 0x7FFFFFFFFFFFFFFF) | _U_TOP, 1, buf, pos)


@inlined
def _put_word(value, out, pos):
    digits = digit_count(value)
    store64(out, pos, np.int64(eight_digits(value) >> np.uint64(64 - 8 * digits)))
    return pos + digits


@inlined
def put_words(value, out, pos):
    """Write a uint64 forwards, eight digits at once; return the offset after it. Up to seven bytes
    after that are overwritten."""
    rest = value // _U_1E8
    if rest:
        value -= rest * _U_1E8
        top = rest // _U_1E8
        if top:
            pos = _put_word(top, out, pos)
            store64(out, pos, np.int64(eight_digits(rest - top * _U_1E8)))
            pos += 8
        else:
            pos = _put_word(rest, out, pos)
        store64(out, pos, np.int64(eight_digits(value)))
        return pos + 8
    return _put_word(value, out, pos)


@inlined
def put_digits(value, out, pos):
    """Write a uint64 forwards and without a byte more; return the offset after it."""
    end = at = pos + digit_count(value)
    while value >= _U_100:
        rest = value // _U_100
        at = pair_back(np.int64(value - rest * _U_100), out, at)
        value = rest
    if value >= _U_TEN:
        pair_back(np.int64(value), out, at)
    else:
        out[pos] = np.uint8(48 + np.int64(value))
    return end
