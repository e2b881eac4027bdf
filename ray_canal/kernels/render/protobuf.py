"""Protobuf's wire format written backwards: each function ends at `pos` and returns where it began.

Format: protobuf.dev/programming-guides/encoding. The caller has left room.
"""

from __future__ import annotations

import numpy as np

from ray_canal.kernels.base.jit import inlined
from ray_canal.kernels.base.memory import copy, copy32, store8, store16


@inlined
def varint_back(value, buf, pos):
    """A varint; negative numbers take ten bytes."""
    if 0 <= value < 1 << 14:
        if value < 128:
            store8(buf, pos - 1, value)
            return pos - 1
        store16(buf, pos - 2, value & 127 | 128 | value >> 7 << 8)
        return pos - 2
    count = 1
    rest = (value >> 7) & 0x01FFFFFFFFFFFFFF
    while rest:
        rest >>= 7
        count += 1
    pos -= count
    for i in range(count):
        buf[pos + i] = (value & 127) | (128 if i < count - 1 else 0)
        value = (value >> 7) & 0x01FFFFFFFFFFFFFF
    return pos


@inlined
def number_back(tag, value, buf, pos):
    if 0 <= value < 128:
        store16(buf, pos - 2, value << 8 | tag)
        return pos - 2
    pos = varint_back(value, buf, pos) - 1
    store8(buf, pos, tag)
    return pos


@inlined
def close_back(tag, end, buf, pos):
    """Length and tag before the message that lies between pos and end."""
    return number_back(tag, np.int64(end - pos), buf, pos)


@inlined
def blob_back(source, at, size, buf, pos):
    copy(buf, pos - size, source, at, size)
    return pos - size


@inlined
def short_back(source, at, size, buf, pos):
    """`blob_back` for what is mostly short: 32 bytes up to its end go without a call, and what was
    too much in front is written over later. The caller has left room for 32 bytes."""
    if size <= 32 and at + size >= 32:
        copy32(buf, pos - 32, source, at + size - 32)
    else:
        copy(buf, pos - size, source, at, size)
    return pos - size


@inlined
def text_back(tag, source, at, size, buf, pos):
    return close_back(tag, pos, buf, blob_back(source, at, size, buf, pos))
