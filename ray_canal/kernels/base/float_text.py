"""Write IEEE 754 numbers as their shortest decimal text, in Java's form and in MySQL's.

`shortest` finds the shortest digits that read back as the same number, the closest among them:
Raffaello Giulietti's Schubfach ("The Schubfach way to render doubles"), which is also what Java has
used since 19. Formatters write forward from `pos` and return the new position; MAX_TEXT_BYTES is
enough for any number.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ray_canal.kernels.base.digits import digit_count, put_digits
from ray_canal.kernels.base.jit import without_refcounts
from ray_canal.kernels.base.memory import high_product, low_product

MAX_TEXT_BYTES: Final = 352
_K_MIN: Final = -324
_K_MAX: Final = 292

U = np.uint64
_M63: Final = U((1 << 63) - 1)
_S1: Final = U(1)
_S2: Final = U(2)
_S63: Final = U(63)
_ZERO: Final = U(0)
_TEN: Final = U(10)


def _flog2pow10(e: int) -> int:
    return (e * 913124641741) >> 38


def _powers() -> np.ndarray[tuple[int, ...], np.dtype[np.uint64]]:
    """Return a row for each k from K_MIN: the high and low 63 bits of floor(10^-k / 2^r) + 1, 126
    bits long."""
    table = np.empty((_K_MAX - _K_MIN + 1, 2), np.uint64)
    for k in range(_K_MIN, _K_MAX + 1):
        r = _flog2pow10(-k) - 125
        top = 10 ** max(-k, 0) << max(-r, 0)
        g = top // (10 ** max(k, 0) << max(r, 0)) + 1
        table[k - _K_MIN, 0] = g >> 63
        table[k - _K_MIN, 1] = g & ((1 << 63) - 1)
    return table


_POWERS = _powers()


@without_refcounts
def _rounded_odd(k, cp):
    """Return cp × g(k) / 2^127, its last bit set if anything was cut off."""
    g1, g0 = _POWERS[k - _K_MIN, 0], _POWERS[k - _K_MIN, 1]
    x1 = high_product(g0, cp)
    y1, y0 = high_product(g1, cp), low_product(g1, cp)
    z = (y0 >> _S1) + x1
    w = y1 + (z >> _S63)
    return w | (((z & _M63) + _M63) >> _S63)


@without_refcounts
def _decimal(q, c, c_min, q_min):
    """Return (digits, exponent) of c × 2^q, digits possibly with trailing zeros."""
    out = c & _S1
    cb = c << _S2
    cbr = cb + _S2
    if c != c_min or q == q_min:
        cbl = cb - _S2
        k = (q * 661971961083) >> 41
    else:
        cbl = cb - _S1
        k = (q * 661971961083 - 274743187321) >> 41
    h = U(q + ((-k * 913124641741) >> 38) + 2)
    vb = _rounded_odd(k, cb << h)
    vbl = _rounded_odd(k, cbl << h)
    vbr = _rounded_odd(k, cbr << h)
    s = vb >> _S2
    if s >= U(100):
        s10 = s // _TEN * _TEN
        t10 = s10 + _TEN
        low_in = vbl + out <= s10 << _S2
        high_in = (t10 << _S2) + out <= vbr
        if low_in != high_in:
            return (s10 if low_in else t10), k
    t = s + _S1
    low_in = vbl + out <= s << _S2
    high_in = (t << _S2) + out <= vbr
    if low_in != high_in:
        return (s if low_in else t), k
    half = (s + t) << _S1
    if vb < half or (vb == half and (s & _S1) == _ZERO):
        return s, k
    return t, k


@without_refcounts
def shortest(bits, mantissa_bits, exponent_bits):
    """Return (digits, exponent) of a finite number's bits without the sign: value = digits ×
    10^exponent, no trailing zeros. (52, 11) is for a double, (23, 8) for a float; zero is (0,
    0)."""
    bq = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1)
    t = U(bits & ((1 << mantissa_bits) - 1))
    c_min = U(1) << U(mantissa_bits)
    q_min = 2 - (1 << (exponent_bits - 1)) - mantissa_bits
    shift = 0
    if bq > 0:
        q = q_min + bq - 1
        c = c_min | t
        if -mantissa_bits <= q < 0:
            whole = c >> U(-q)
            if whole << U(-q) == c:
                return _stripped(whole, 0)
    elif t == _ZERO:
        return _ZERO, 0
    else:
        q = q_min
        c = t
        tiny = U(3) if mantissa_bits == 52 else U(8)
        if t < tiny:
            c = t * _TEN
            shift = -1
    digits, k = _decimal(q, c, c_min, q_min)
    return _stripped(digits, k + shift)


@without_refcounts
def _stripped(digits, exponent):
    while digits != _ZERO and digits % _TEN == _ZERO:
        digits //= _TEN
        exponent += 1
    return digits, exponent


@without_refcounts
def _put_word(word, out, pos):
    for i in range(len(word)):
        out[pos + i] = word[i]
    return pos + len(word)


_NAN = np.frombuffer(b"NaN", np.uint8)
_INFINITY = np.frombuffer(b"Infinity", np.uint8)


@without_refcounts
def _put_plain(digits, exponent, out, pos):
    """Write `120.5`, `0.0012`, `100.0`: no exponent, at least one digit after the point."""
    start = pos
    if exponent >= 0:
        pos = put_digits(digits, out, pos)
        for _ in range(exponent):
            out[pos] = 48
            pos += 1
        out[pos] = 46
        out[pos + 1] = 48
        return pos + 2
    end = put_digits(digits, out, pos)
    count = end - start
    whole = count + exponent
    if whole > 0:
        for i in range(end, start + whole, -1):
            out[i] = out[i - 1]
        out[start + whole] = 46
        return end + 1
    lead = 2 - whole  # "0." and zeros
    for i in range(end - 1, start - 1, -1):
        out[i + lead] = out[i]
    for i in range(lead):
        out[start + i] = 48
    out[start + 1] = 46
    return end + lead


@without_refcounts
def _put_scientific(digits, exponent, always_point, mark, out, pos):
    """Write `1.5E-7` (mark E, always with a point) or `1e100` (mark e)."""
    end = put_digits(digits, out, pos)
    count = end - pos
    power = exponent + count - 1
    if count > 1:
        for i in range(end, pos + 1, -1):
            out[i] = out[i - 1]
        out[pos + 1] = 46
        end += 1
    elif always_point:
        out[end] = 46
        out[end + 1] = 48
        end += 2
    out[end] = mark
    end += 1
    if power < 0:
        out[end] = 45
        end += 1
        power = -power
    return put_digits(U(power), out, end)


@without_refcounts
def _put_special(bits, mantissa_bits, exponent_bits, out, pos):
    """Write Infinity or NaN; return -1 for a finite number."""
    if (bits >> mantissa_bits) & ((1 << exponent_bits) - 1) != (1 << exponent_bits) - 1:
        return -1
    if bits & ((1 << mantissa_bits) - 1):
        return _put_word(_NAN, out, pos)
    if (bits >> (mantissa_bits + exponent_bits)) & 1:
        out[pos] = 45
        pos += 1
    return _put_word(_INFINITY, out, pos)


@without_refcounts
def java_text(bits, mantissa_bits, exponent_bits, out, pos):
    """Write Java's Double.toString (52, 11) or Float.toString (23, 8): `1.0`, `1.0E7`, `9.999E-4`,
    `-0.0`."""
    end = _put_special(bits, mantissa_bits, exponent_bits, out, pos)
    if end >= 0:
        return end
    if (bits >> (mantissa_bits + exponent_bits)) & 1:
        out[pos] = 45
        pos += 1
    digits, exponent = shortest(bits, mantissa_bits, exponent_bits)
    if digits == _ZERO:
        return _put_plain(digits, 0, out, pos)
    power = exponent + digit_count(digits) - 1
    if -3 <= power < 7:
        return _put_plain(digits, exponent, out, pos)
    return _put_scientific(digits, exponent, True, 69, out, pos)


@without_refcounts
def mysql_json_text(bits, out, pos):
    """Write a double as MySQL prints it inside JSON: `1.0`, `0.00001`, `1e16`,
    `1234567890123456.5`."""
    end = _put_special(bits, 52, 11, out, pos)
    if end >= 0:
        return end
    if (bits >> 63) & 1:
        out[pos] = 45
        pos += 1
    digits, exponent = shortest(bits, 52, 11)
    if digits == _ZERO:
        return _put_plain(digits, 0, out, pos)
    # Java asks for two digits of the two smallest numbers; MySQL takes the shortest.
    magnitude = bits & 0x7FFFFFFFFFFFFFFF
    if magnitude == 1:
        digits, exponent = U(5), -324
    elif magnitude == 2:
        digits, exponent = U(1), -323
    # MySQL (strings/dtoa.cc): exponent form when the point would stand more than 15 digits away,
    # but never for large numbers that have digits after the point.
    point = exponent + digit_count(digits)
    if -14 <= point and (point <= 15 or exponent < 0):
        return _put_plain(digits, exponent, out, pos)
    return _put_scientific(digits, exponent, False, 101, out, pos)
