"""Write protobuf's wire format backwards: each function ends at `pos` and returns where its bytes
begin.

Format: protobuf.dev/programming-guides/encoding. The caller has left room.
"""

from __future__ import annotations

import numpy as np

from ray_canal.kernels.base.jit import inlined
from ray_canal.kernels.base.memory import copy, copy32, store8, store16


@inlined
def varint_back(value, buf, pos):
    """Write a varint; negative numbers take ten bytes."""
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
    """Write a tag and a varint."""
    if 0 <= value < 128:
        store16(buf, pos - 2, value << 8 | tag)
        return pos - 2
    pos = varint_back(value, buf, pos) - 1
    store8(buf, pos, tag)
    return pos


@inlined
def close_back(tag, end, buf, pos):
    """Write length and tag before the message between `pos` and `end`."""
    return number_back(tag, np.int64(end - pos), buf, pos)


@inlined
def blob_back(source, at, size, buf, pos):
    """Write source[at : at + size]."""
    copy(buf, pos - size, source, at, size)
    return pos - size


@inlined
def short_back(source, at, size, buf, pos):
    """Do as `blob_back` for bytes that are mostly short: up to 32 go without a call, and the
    surplus before them is overwritten later. The caller has left room for 32 bytes."""
    if size <= 32 and at + size >= 32:
        copy32(buf, pos - 32, source, at + size - 32)
    else:
        copy(buf, pos - size, source, at, size)
    return pos - size


@inlined
def text_back(tag, source, at, size, buf, pos):
    """Write a length-delimited field: tag, length, source[at : at + size]."""
    return close_back(tag, pos, buf, blob_back(source, at, size, buf, pos))
