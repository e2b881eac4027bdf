"""Compute SHA-256 (FIPS 180-4) and HMAC-SHA-256 (RFC 2104) of a whole column of values.

The hash of a key's two blocks is worked out once (`midstates`); a value then costs its own blocks
and one more for the outer hash.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import numpy as np

from ray_canal.kernels.base.jit import without_refcounts

BLOCK_BYTES: Final = 64
HEX_BYTES: Final = 64
SCRATCH_WORDS: Final = 64 + 8
"""Number of uint32 that a call needs: the message schedule and the state."""


def _roots(power: int, count: int) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """Return the first 32 bits of the fractional parts of the primes' roots."""
    primes: list[int] = []
    number = 2
    while len(primes) < count:
        if all(number % p for p in primes):
            primes.append(number)
        number += 1
    found = []
    for prime in primes:
        scaled = prime << (32 * power)
        low, high = 0, scaled
        while low < high:  # the whole part of the root of prime * 2^(32 * power)
            middle = (low + high + 1) // 2
            low, high = (middle, high) if middle**power <= scaled else (low, middle - 1)
        found.append(low & 0xFFFFFFFF)
    return np.array(found, np.uint32)


INITIAL = _roots(2, 8)
_K = _roots(3, 64)
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)


@without_refcounts
def _compress(w, state):
    """Add one block, whose sixteen words are in w[:16], to the state."""
    for i in range(16, 64):
        x, y = w[i - 15], w[i - 2]
        s0 = (x >> 7 | x << 25) ^ (x >> 18 | x << 14) ^ (x >> 3)
        s1 = (y >> 17 | y << 15) ^ (y >> 19 | y << 13) ^ (y >> 10)
        w[i] = np.uint32(w[i - 16] + s0 + w[i - 7] + s1)
    a, b, c, d = state[0], state[1], state[2], state[3]
    e, f, g, h = state[4], state[5], state[6], state[7]
    for i in range(64):
        s1 = np.uint32((e >> 6 | e << 26) ^ (e >> 11 | e << 21) ^ (e >> 25 | e << 7))
        t1 = np.uint32(h + s1 + ((e & f) ^ (~e & g)) + _K[i] + w[i])
        s0 = np.uint32((a >> 2 | a << 30) ^ (a >> 13 | a << 19) ^ (a >> 22 | a << 10))
        t2 = np.uint32(s0 + ((a & b) ^ (a & c) ^ (b & c)))
        h, g, f, e = g, f, e, np.uint32(d + t1)
        d, c, b, a = c, b, a, np.uint32(t1 + t2)
    state[0] += a
    state[1] += b
    state[2] += c
    state[3] += d
    state[4] += e
    state[5] += f
    state[6] += g
    state[7] += h


@without_refcounts
def _finish(data, start, end, before, w, state):
    """Add the rest of a message, data[start:end], after `before` bytes that are in the state."""
    size = end - start
    padded = (size + 8) // 64 * 64 + 64
    bits = np.uint64(before + size) * np.uint64(8)
    for block in range(0, padded, 64):
        for word in range(16):
            value = np.uint32(0)
            for k in range(4):
                at = block + 4 * word + k
                byte = np.uint32(0)
                if at < size:
                    byte = np.uint32(data[start + at])
                elif at == size:
                    byte = np.uint32(0x80)
                elif at >= padded - 8:
                    byte = np.uint32(bits >> np.uint64(8 * (padded - 1 - at))) & np.uint32(0xFF)
                value = np.uint32(value << 8 | byte)
            w[word] = value
        _compress(w, state)


@without_refcounts
def hash_column(offsets, data, keyed, inner, outer, scratch, out):
    """Write the hash of value i, data[offsets[i]:offsets[i + 1]], as 64 hexadecimal digits from
    out[64 * i] on. `keyed`: HMAC, with the midstates of its key; else `inner` is INITIAL."""
    w, state = scratch[:64], scratch[64:]
    for i in range(offsets.size - 1):
        for word in range(8):
            state[word] = inner[word]
        _finish(data, offsets[i], offsets[i + 1], 64 if keyed else 0, w, state)
        if keyed:
            for word in range(8):
                w[word] = state[word]
                w[word + 8] = 0
                state[word] = outer[word]
            w[8] = 0x80000000
            w[15] = (64 + 32) * 8
            _compress(w, state)
        for word in range(8):
            for k in range(8):
                out[64 * i + 8 * word + k] = _HEX[state[word] >> (28 - 4 * k) & 15]


@without_refcounts
def _absorb(data, w, state):
    """Add one whole block of bytes to the state."""
    for word in range(16):
        value = np.uint32(0)
        for k in range(4):
            value = np.uint32(value << 8 | np.uint32(data[4 * word + k]))
        w[word] = value
    _compress(w, state)


def midstates(key: bytes) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return the states after HMAC's inner and outer block of a key."""
    if len(key) > BLOCK_BYTES:
        key = hashlib.sha256(key).digest()
    block = np.frombuffer(key.ljust(BLOCK_BYTES, b"\0"), np.uint8)
    states = []
    for padding in (0x36, 0x5C):
        state = INITIAL.copy()
        _absorb(block ^ np.uint8(padding), np.zeros(64, np.uint32), state)
        states.append(state)
    return states[0], states[1]
