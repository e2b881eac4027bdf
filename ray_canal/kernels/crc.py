"""CRC-32 (zlib's polynomial, reflected), sixteen bytes a step by table look-up."""

from __future__ import annotations

from typing import Final

import numpy as np

from ray_canal.kernels.jit import bare
from ray_canal.kernels.memory import load32

_POLYNOMIAL: Final = 0xEDB88320
_STEP_BYTES: Final = 16


def _tables() -> np.ndarray:
    """tables[k][b]: the CRC of byte b followed by k zero bytes."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, table >> 1 ^ np.uint32(_POLYNOMIAL), table >> 1)
    tables = [table]
    for _ in range(_STEP_BYTES - 1):
        tables.append(tables[-1] >> 8 ^ table[tables[-1] & 0xFF])
    return np.concatenate(tables).astype(np.int64)


_T = _tables()


@bare
def crc32_update(crc, data, at, end):  # type: ignore[no-untyped-def]
    """Go on with a running (inverted) CRC over data[at:end]."""
    t = _T
    while at + 16 <= end:
        a = load32(data, at) ^ crc
        b = load32(data, at + 4)
        c = load32(data, at + 8)
        d = load32(data, at + 12)
        crc = (
            t[3840 + (a & 255)] ^ t[3584 + (a >> 8 & 255)]
            ^ t[3328 + (a >> 16 & 255)] ^ t[3072 + (a >> 24)]
            ^ t[2816 + (b & 255)] ^ t[2560 + (b >> 8 & 255)]
            ^ t[2304 + (b >> 16 & 255)] ^ t[2048 + (b >> 24)]
            ^ t[1792 + (c & 255)] ^ t[1536 + (c >> 8 & 255)]
            ^ t[1280 + (c >> 16 & 255)] ^ t[1024 + (c >> 24)]
            ^ t[768 + (d & 255)] ^ t[512 + (d >> 8 & 255)]
            ^ t[256 + (d >> 16 & 255)] ^ t[d >> 24]
        )  # fmt: skip
        at += 16
    while at < end:
        crc = crc >> 8 ^ t[(crc ^ np.int64(data[at])) & 255]
        at += 1
    return crc


@bare
def crc32_byte(crc, byte):  # type: ignore[no-untyped-def]
    """The same over one byte that is in no array."""
    return crc >> 8 ^ _T[(crc ^ byte) & 255]


@bare
def crc32(data, at, end):  # type: ignore[no-untyped-def]
    """The checksum of data[at:end]."""
    return crc32_update(np.int64(0xFFFFFFFF), data, at, end) ^ 0xFFFFFFFF
