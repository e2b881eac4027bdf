"""CRC-32 (zlib's polynomial, reflected): sixteen bytes a step, by carry-less multiplication where
the processor has it, else by table look-up.

Folding: V. Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ
Instruction", Intel 2009. What is folded into the last sixteen bytes has the CRC of the whole, so
tables do the rest.
"""

from __future__ import annotations

from typing import Any, Final

import llvmlite.binding as llvm
import numpy as np
from numba.core import config

from ray_canal.kernels.jit import CHECKED, bare, inlined
from ray_canal.kernels.memory import load32

_POLYNOMIAL: Final = 0xEDB88320
_STEP_BYTES: Final = 16
_FOLD_BYTES_MIN: Final = 48
"""Below this, tables are as fast."""

FOLDS: Final = (
    not CHECKED
    and not config.CPU_NAME  # set by the user: the code may be for another processor
    and not config.CPU_FEATURES
    and bool(llvm.get_host_cpu_features().get("pclmul"))
)


def _tables() -> np.ndarray[Any, np.dtype[np.uint32]]:
    """tables[k][b]: the CRC of byte b followed by k zero bytes."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, table >> 1 ^ np.uint32(_POLYNOMIAL), table >> 1)
    tables = [table]
    for _ in range(_STEP_BYTES - 1):
        tables.append(tables[-1] >> 8 ^ table[tables[-1] & 0xFF])
    return np.concatenate(tables).astype(np.uint32)


_T = _tables()

if FOLDS:
    from llvmlite import ir
    from numba.core import cgutils, types
    from numba.extending import intrinsic

    _FOLD_LOW, _FOLD_HIGH = 0x1751997D0, 0x0CCAA009E  # x^(128+32) and x^128-32, reflected

    @intrinsic
    def _folded(typing_context, source, at, blocks, crc):  # type: ignore[no-untyped-def]
        """(low, high) 64 bits that `blocks` (1 or more) times sixteen bytes fold into."""

        def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
            word, pair = ir.IntType(64), ir.VectorType(ir.IntType(64), 2)
            data = context.make_array(signature.args[0])(context, builder, args[0]).data
            start = builder.bitcast(builder.gep(data, [args[1]]), pair.as_pointer())
            multiply = cgutils.get_or_insert_function(
                builder.module,
                ir.FunctionType(pair, [pair, pair, ir.IntType(8)]),
                "llvm.x86.pclmulqdq",
            )
            keys = ir.Constant(pair, [_FOLD_LOW, _FOLD_HIGH])
            first = builder.load(start, align=1)
            old = builder.insert_element(ir.Constant(pair, [0, 0]), args[3], ir.IntType(32)(0))
            state = cgutils.alloca_once_value(builder, builder.xor(first, old))
            with cgutils.for_range_slice(builder, word(1), args[2], word(1), word) as (index, _):
                now = builder.load(state)
                low = builder.call(multiply, [now, keys, ir.IntType(8)(0x00)])
                high = builder.call(multiply, [now, keys, ir.IntType(8)(0x11)])
                block = builder.load(builder.gep(start, [index]), align=1)
                builder.store(builder.xor(builder.xor(low, high), block), state)
            final = builder.load(state)
            halves = [builder.extract_element(final, ir.IntType(32)(k)) for k in (0, 1)]
            return context.make_tuple(builder, signature.return_type, halves)

        result = types.UniTuple(types.int64, 2)
        return result(source, types.int64, types.int64, types.int64), generate

else:

    @bare
    def _folded(source, at, blocks, crc):  # type: ignore[no-untyped-def]
        return np.int64(0), np.int64(0)  # never called


@inlined
def _eight(low, high, base):  # type: ignore[no-untyped-def]
    """Table CRC of eight bytes, given as two words, followed by base / 256 zero bytes."""
    t = _T
    return np.int64(
        t[base + 1792 + (low & 255)] ^ t[base + 1536 + (low >> 8 & 255)]
        ^ t[base + 1280 + (low >> 16 & 255)] ^ t[base + 1024 + (low >> 24 & 255)]
        ^ t[base + 768 + (high & 255)] ^ t[base + 512 + (high >> 8 & 255)]
        ^ t[base + 256 + (high >> 16 & 255)] ^ t[base + (high >> 24 & 255)]
    )  # fmt: skip


@bare
def crc32_update(crc, data, at, end):  # type: ignore[no-untyped-def]
    """Go on with a running (inverted) CRC over data[at:end]."""
    if FOLDS and end - at >= _FOLD_BYTES_MIN:
        blocks = (end - at) >> 4
        low, high = _folded(data, at, blocks, np.int64(crc))
        crc = _eight(low, low >> 32, 2048) ^ _eight(high, high >> 32, 0)
        at += blocks << 4
    while at + 16 <= end:
        crc = _eight(load32(data, at) ^ crc, load32(data, at + 4), 2048) ^ _eight(
            load32(data, at + 8), load32(data, at + 12), 0
        )
        at += 16
    if at + 8 <= end:
        crc = _eight(load32(data, at) ^ crc, load32(data, at + 4), 0)
        at += 8
    if at + 4 <= end:
        word = load32(data, at) ^ crc
        crc = np.int64(
            _T[768 + (word & 255)] ^ _T[512 + (word >> 8 & 255)]
            ^ _T[256 + (word >> 16 & 255)] ^ _T[word >> 24 & 255]
        )  # fmt: skip
        at += 4
    while at < end:
        crc = crc >> 8 ^ np.int64(_T[(crc ^ np.int64(data[at])) & 255])
        at += 1
    return crc


@bare
def crc32_byte(crc, byte):  # type: ignore[no-untyped-def]
    """The same over one byte that is in no array."""
    return crc >> 8 ^ np.int64(_T[(crc ^ byte) & 255])


@bare
def crc32(data, at, end):  # type: ignore[no-untyped-def]
    """The checksum of data[at:end]."""
    return crc32_update(np.int64(0xFFFFFFFF), data, at, end) ^ 0xFFFFFFFF
