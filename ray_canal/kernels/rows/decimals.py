"""Convert MySQL's packed decimals (NEWDECIMAL) to two's complement integers of 8, 16 or 32 bytes.

Packed: groups of nine decimal digits in four big-endian bytes, from the point outwards, the
outermost group of each side in fewer; the first bit is flipped, a negative number has all bits
flipped.
"""

from __future__ import annotations

import numpy as np

from ray_canal.kernels.base.jit import without_refcounts
from ray_canal.kernels.base.memory import load8, load32, load_be, store32, store64

_GROUP_BYTES = np.array([0, 1, 1, 2, 2, 3, 3, 4, 4, 4], np.int64)
_POWERS = np.array([10**k for k in range(19)], np.int64)


def decimal_bytes(precision: int, scale: int) -> int:
    """Return the bytes of a packed DECIMAL(precision, scale)."""
    whole = precision - scale
    groups = whole // 9 * 4 + scale // 9 * 4
    return int(groups + _GROUP_BYTES[whole % 9] + _GROUP_BYTES[scale % 9])


@without_refcounts
def _digits_of_group(k, whole, scale):
    """Return the digits in the k-th group; 0 after the last."""
    head = whole % 9
    if head:
        if k == 0:
            return head
        k -= 1
    full = whole // 9 + scale // 9
    if k < full:
        return 9
    return scale % 9 if k == full else 0


@without_refcounts
def _group(source, at, digits, first, flip):
    """Return one group's number; -1 if it has more digits than allowed."""
    count = _GROUP_BYTES[digits]
    value = load_be(source, at, count)
    bits = 8 * count
    if first:
        value ^= 1 << (bits - 1)
    if flip:
        value ^= (1 << bits) - 1
    return value if value < _POWERS[digits] else -1


def decimal_groups(precision: int, scale: int) -> int:
    """Return the digits of a DECIMAL's groups, four bits each, the first one lowest: for up to 18
    digits."""
    whole = precision - scale
    digits = [whole % 9] + [9] * (whole // 9 + scale // 9) + [scale % 9]
    return sum(count << 4 * k for k, count in enumerate(filter(None, digits)))


@without_refcounts
def decimal64(source, at, groups):
    """Return (number, True if it is one) of up to 18 digits; `groups` is what `decimal_groups`
    returns."""
    negative = load8(source, at) < 128
    flip = -1 if negative else 0
    first = 1
    value = np.int64(0)
    while groups:
        digits = groups & 15
        count = _GROUP_BYTES[digits]
        group = load_be(source, at, count) ^ first << (8 * count - 1)
        group = (group ^ flip) & ((1 << 8 * count) - 1)
        if group >= _POWERS[digits]:
            return value, False
        value = value * _POWERS[digits] + group
        at += count
        groups >>= 4
        first = 0
    return (-value if negative else value), True


@without_refcounts
def store_decimal64(value, target, to):
    """Store a number in 16 bytes."""
    store64(target, to, value)
    store64(target, to + 8, value >> 63)


@without_refcounts
def decimal_wide(source, at, precision, scale, target, to, limbs):
    """Write a number of `limbs` 32-bit words to target[to :]; return False if the digits are
    impossible."""
    for k in range(limbs):
        store32(target, to + 4 * k, 0)
    negative = source[at] < 128
    whole = precision - scale
    k = 0
    while True:
        digits = _digits_of_group(k, whole, scale)
        if digits == 0:
            break
        carry = _group(source, at, digits, k == 0, negative)
        if carry < 0:
            return False
        for limb in range(limbs):
            product = load32(target, to + 4 * limb) * _POWERS[digits] + carry
            store32(target, to + 4 * limb, product & 0xFFFFFFFF)
            carry = product >> 32
        at += _GROUP_BYTES[digits]
        k += 1
    if negative:
        carry = 1
        for limb in range(limbs):
            word = (load32(target, to + 4 * limb) ^ 0xFFFFFFFF) + carry
            store32(target, to + 4 * limb, word & 0xFFFFFFFF)
            carry = word >> 32
    return True
