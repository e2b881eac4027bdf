"""Compute CRC-32 (zlib's polynomial, reflected), sixteen bytes a step: by carry-less multiplication
where the processor has it, else by table look-up.

Folding and its constants: V. Gopal et al., "Fast CRC Computation for Generic Polynomials Using
PCLMULQDQ Instruction", Intel 2009.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final

import llvmlite.binding as llvm
import numpy as np
from numba.core import config

from ray_canal.kernels.base.jit import CHECKED, inlined, without_refcounts
from ray_canal.kernels.base.memory import load32

_POLYNOMIAL: Final = 0xEDB88320
_STEP_BYTES: Final = 16

FOLDS: Final = (
    not CHECKED
    and not config.CPU_NAME  # set by the user: the code may be for another processor
    and not config.CPU_FEATURES
    and bool(llvm.get_host_cpu_features().get("pclmul"))
)


def _tables() -> np.ndarray[Any, np.dtype[np.uint32]]:
    """Return tables[k][b]: the CRC of byte b followed by k zero bytes."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, table >> 1 ^ np.uint32(_POLYNOMIAL), table >> 1)
    tables = [table]
    for _ in range(_STEP_BYTES - 1):
        tables.append(tables[-1] >> 8 ^ table[tables[-1] & 0xFF])
    return np.concatenate(tables).astype(np.uint32)


TABLES = _tables()

if FOLDS:
    from llvmlite import ir
    from numba.core import cgutils, types
    from numba.extending import intrinsic

    _WORD, _WIDE, _PAIR = ir.IntType(64), ir.IntType(128), ir.VectorType(ir.IntType(64), 2)

    # Remainders of powers of x by the polynomial, and its reciprocal; bits reflected.
    BY_16 = (0x1751997D0, 0x0CCAA009E)  # x^(128+32), x^(128-32)
    _BY_4, _RECIPROCAL, _WHOLE = 0x163CD6124, 0x1F7011641, 0x1DB710641

    _PRODUCT = {
        2: "llvm.x86.pclmulqdq",
        4: "llvm.x86.pclmulqdq.256",
        8: "llvm.x86.pclmulqdq.512",
    }

    class Folder:
        """Emit the steps of the algorithm as instructions; values are one to four pairs of 64-bit
        numbers, each pair on its own."""

        def __init__(self, builder: Any) -> None:
            self._builder = builder

        def product(self, value: Any, keys: tuple[int, int], halves: int) -> Any:
            """Return the carry-less product of a half of `value` and one of `keys`."""
            kind, byte = value.type, ir.IntType(8)
            multiply = cgutils.get_or_insert_function(
                self._builder.module,
                ir.FunctionType(kind, [kind, kind, byte]),
                _PRODUCT[kind.count],
            )
            factors = ir.Constant(kind, keys * (kind.count // 2))
            return self._builder.call(multiply, [value, factors, byte(halves)])

        def folded(self, value: Any, keys: tuple[int, int]) -> Any:
            """Return what is congruent to `value` as many bytes further on as the keys say."""
            low, high = self.product(value, keys, 0x00), self.product(value, keys, 0x11)
            return self._builder.xor(low, high)

        def block(self, start: Any, offset: Any, kind: Any = _PAIR) -> Any:
            """Load sixteen bytes."""
            where = self._builder.gep(start, [offset])
            return self._builder.load(self._builder.bitcast(where, kind.as_pointer()), align=1)

        def half(self, value: Any, number: int) -> Any:
            return self._builder.extract_element(value, ir.IntType(32)(number))

        def reduced(self, value: Any) -> Any:
            """Reduce 128 bits to the 32 of the CRC (Barrett)."""
            builder, zero = self._builder, ir.Constant(_PAIR, (0, 0))

            def low32_times(number: Any, key: int) -> Any:
                low = builder.and_(number, _WORD(0xFFFFFFFF))
                pair = builder.insert_element(zero, low, ir.IntType(32)(0))
                return self.half(self.product(pair, (key, 0), 0x00), 0)

            shifted = self.product(value, BY_16, 0x10)
            low = builder.xor(self.half(value, 1), self.half(shifted, 0))
            high = self.half(shifted, 1)
            upper = builder.or_(builder.lshr(low, _WORD(32)), builder.shl(high, _WORD(32)))
            number = builder.xor(upper, low32_times(low, _BY_4))
            rest = low32_times(low32_times(number, _RECIPROCAL), _WHOLE)
            return builder.lshr(builder.xor(number, rest), _WORD(32))

    @contextlib.contextmanager
    def _steps(builder: Any, at: Any, end: Any, size: int) -> Iterator[Any]:
        """Emit a loop: the body is given `at`, which advances by `size` while that fits before
        `end`."""
        check, body, done = (builder.append_basic_block(name) for name in ("check", "body", "done"))
        builder.branch(check)
        builder.position_at_end(check)
        now = builder.load(at)
        after = builder.add(now, _WORD(size))
        builder.cbranch(builder.icmp_signed("<=", after, end), body, done)
        builder.position_at_end(body)
        yield now
        builder.store(after, at)
        builder.branch(check)
        builder.position_at_end(done)

    @intrinsic
    def _folded(typing_context, source, at, count, crc):
        """Continue a running CRC over sixteen bytes or more."""

        def generate(context, builder, signature, args):
            data = context.make_array(signature.args[0])(context, builder, args[0]).data
            start, count, crc = builder.gep(data, [args[1]]), args[2], args[3]
            fold = Folder(builder)
            # The bytes beyond a multiple of sixteen come first, as a block that begins with zeros:
            # those change nothing. The old CRC lies over the first four bytes, wherever they are.
            odd = builder.and_(count, _WORD(15))
            odd_bits = builder.shl(odd, _WORD(3))
            wide = builder.xor(fold.block(start, _WORD(0), _WIDE), builder.zext(crc, _WIDE))
            shift = builder.and_(builder.sub(_WORD(128), odd_bits), _WORD(127))
            wide = builder.shl(wide, builder.zext(shift, _WIDE))
            is_even = builder.icmp_unsigned("==", odd, _WORD(0))
            wide = builder.select(is_even, _WIDE(0), wide)
            # Beyond four bytes nothing is left of it; beyond 63 bits a shift would be undefined.
            spill = builder.lshr(
                crc, builder.select(builder.icmp_unsigned(">", odd, _WORD(4)), _WORD(32), odd_bits)
            )
            pair = builder.insert_element(ir.Constant(_PAIR, (0, 0)), spill, ir.IntType(32)(0))
            first = builder.xor(fold.block(start, odd), pair)
            head = fold.folded(builder.bitcast(wide, _PAIR), BY_16)
            state = cgutils.alloca_once_value(builder, builder.xor(head, first))
            at = cgutils.alloca_once_value(builder, builder.add(odd, _WORD(16)))
            with _steps(builder, at, count, 16) as now:
                old = fold.folded(builder.load(state), BY_16)
                builder.store(builder.xor(old, fold.block(start, now)), state)
            return fold.reduced(builder.load(state))

        return types.int64(source, types.int64, types.int64, types.int64), generate

else:

    @without_refcounts
    def _folded(source, at, count, crc):
        return np.int64(0)  # never called


@inlined
def _eight(low, high, base):
    """Return the CRC, by tables, of eight bytes, given as two words, followed by base / 256 zero
    bytes."""
    t = TABLES
    return np.int64(
        t[base + 1792 + (low & 255)] ^ t[base + 1536 + (low >> 8 & 255)]
        ^ t[base + 1280 + (low >> 16 & 255)] ^ t[base + 1024 + (low >> 24 & 255)]
        ^ t[base + 768 + (high & 255)] ^ t[base + 512 + (high >> 8 & 255)]
        ^ t[base + 256 + (high >> 16 & 255)] ^ t[base + (high >> 24 & 255)]
    )  # fmt: skip


@without_refcounts
def crc32_update(crc, data, at, end):
    """Continue a running (inverted) CRC over data[at:end]."""
    if FOLDS and end - at >= _STEP_BYTES:
        return _folded(data, at, end - at, np.int64(crc))
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
            TABLES[768 + (word & 255)] ^ TABLES[512 + (word >> 8 & 255)]
            ^ TABLES[256 + (word >> 16 & 255)] ^ TABLES[word >> 24 & 255]
        )  # fmt: skip
        at += 4
    while at < end:
        crc = crc >> 8 ^ np.int64(TABLES[(crc ^ np.int64(data[at])) & 255])
        at += 1
    return crc


@without_refcounts
def crc32_byte(crc, byte):
    """Continue a running (inverted) CRC over one byte that is in no array."""
    return crc >> 8 ^ np.int64(TABLES[(crc ^ byte) & 255])


@without_refcounts
def crc32(data, at, end):
    """Return the checksum of data[at:end]."""
    return crc32_update(np.int64(0xFFFFFFFF), data, at, end) ^ 0xFFFFFFFF

