"""Load, store and copy unaligned bytes: little- and big-endian integers at any offset of a byte
array; and bits of a number.

Compiled, they are single machine instructions through a pointer and check nothing: the caller has
checked its bounds. Under NUMBA_DISABLE_JIT=1 or NUMBA_BOUNDSCHECK=1 the same names are checked
twins made of array indexing. All numbers are int64; `u64` is the bit pattern.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ray_canal.kernels.base.codes import ALIGNMENT_BYTES
from ray_canal.kernels.base.jit import CHECKED, inlined, without_refcounts

if not CHECKED:
    from llvmlite import ir
    from numba.core import cgutils, types
    from numba.extending import intrinsic

    def _address(context: Any, builder: Any, array_type: Any, array: Any, at: Any) -> Any:
        data = context.make_array(array_type)(context, builder, array).data
        return builder.gep(data, [at])

    def _check(array: Any) -> None:
        if not (isinstance(array, types.Array) and array.dtype == types.uint8):
            raise TypeError("a uint8 array is expected")

    def _loader(bits: int) -> Any:
        @intrinsic
        def load(typing_context, source, at):
            _check(source)

            def generate(context, builder, signature, args):
                where = _address(context, builder, signature.args[0], args[0], args[1])
                word = ir.IntType(bits)
                value = builder.load(builder.bitcast(where, word.as_pointer()), align=1)
                return value if bits == 64 else builder.zext(value, ir.IntType(64))

            return types.int64(source, types.int64), generate

        return load

    def _storer(bits: int) -> Any:
        @intrinsic
        def store(typing_context, target, at, value):
            _check(target)

            def generate(context, builder, signature, args):
                where = _address(context, builder, signature.args[0], args[0], args[1])
                word = ir.IntType(bits)
                cut = args[2] if bits == 64 else builder.trunc(args[2], word)
                builder.store(cut, builder.bitcast(where, word.as_pointer()), align=1)
                return context.get_dummy_value()

            return types.void(target, types.int64, types.int64), generate

        return store

    @intrinsic
    def copy(typing_context, target, to, source, at, count):
        """Copy source[at : at + count] to target[to :]; the two do not overlap."""
        _check(target)
        _check(source)

        def generate(context, builder, signature, args):
            there = _address(context, builder, signature.args[0], args[0], args[1])
            here = _address(context, builder, signature.args[2], args[2], args[3])
            cgutils.raw_memcpy(builder, there, here, args[4], 1)
            return context.get_dummy_value()

        number = types.int64
        return types.void(target, number, source, number, number), generate

    @intrinsic
    def copy32(typing_context, target, to, source, at):
        """Copy source[at : at + 32] to target[to :], in two instructions."""
        _check(target)
        _check(source)

        def generate(context, builder, signature, args):
            there = _address(context, builder, signature.args[0], args[0], args[1])
            here = _address(context, builder, signature.args[2], args[2], args[3])
            words = ir.VectorType(ir.IntType(64), 4).as_pointer()
            loaded = builder.load(builder.bitcast(here, words), align=1)
            builder.store(loaded, builder.bitcast(there, words), align=1)
            return context.get_dummy_value()

        return types.void(target, types.int64, source, types.int64), generate

    @intrinsic
    def word(typing_context, words, at):
        """Return words[at] of a contiguous int64 array; `at` is not negative."""

        def generate(context, builder, signature, args):
            return builder.load(_address(context, builder, signature.args[0], args[0], args[1]))

        return types.int64(words, types.int64), generate

    @intrinsic
    def set_word(typing_context, words, at, value):
        """Set words[at] of a contiguous int64 array; `at` is not negative."""

        def generate(context, builder, signature, args):
            where = _address(context, builder, signature.args[0], args[0], args[1])
            builder.store(args[2], where)
            return context.get_dummy_value()

        return types.void(words, types.int64, types.int64), generate

    @intrinsic
    def prefetch(typing_context, source, at):
        """Fetch source[at]'s cache line ahead; `at` may be outside."""
        _check(source)

        def generate(context, builder, signature, args):
            where = _address(context, builder, signature.args[0], args[0], args[1])
            number = ir.IntType(32)
            kind = ir.FunctionType(ir.VoidType(), [where.type, number, number, number])
            name = "llvm.prefetch.p0i8"
            fetch = cgutils.get_or_insert_function(builder.module, kind, name)
            builder.call(fetch, [where, number(0), number(3), number(1)])  # read, keep, data
            return context.get_dummy_value()

        return types.void(source, types.int64), generate

    @intrinsic
    def _swapped(typing_context, value):
        def generate(context, builder, signature, args):
            return builder.bswap(args[0])

        return types.int64(types.int64), generate

    @inlined
    def load64_be(source, at):
        """Load eight bytes, the first one highest."""
        return _swapped(load64(source, at))

    @intrinsic
    def high_product(typing_context, a, b):
        """Return the upper 64 bits of the product of two uint64."""

        def generate(context, builder, signature, args):
            wide = ir.IntType(128)
            product = builder.mul(*(builder.zext(each, wide) for each in args))
            return builder.trunc(builder.lshr(product, wide(64)), ir.IntType(64))

        return types.uint64(types.uint64, types.uint64), generate

    @inlined
    def low_product(a, b):
        """Return the lower 64 bits of the product of two uint64."""
        return a * b

    @intrinsic
    def bit_length(typing_context, value):
        """Return the number of bits of a uint64 up to its highest one."""

        def generate(context, builder, signature, args):
            zeros = builder.ctlz(args[0], ir.IntType(1)(0))
            return builder.sub(ir.IntType(64)(64), zeros)

        return types.int64(types.uint64), generate

    load8, load16, load32, load64 = _loader(8), _loader(16), _loader(32), _loader(64)
    store8, store16, store32, store64 = _storer(8), _storer(16), _storer(32), _storer(64)

else:

    @without_refcounts
    def load8(source, at):
        return np.int64(source[at])

    @without_refcounts
    def load16(source, at):
        return np.int64(source[at]) | np.int64(source[at + 1]) << 8

    @without_refcounts
    def load32(source, at):
        return load16(source, at) | load16(source, at + 2) << 16

    @without_refcounts
    def load64(source, at):
        return load32(source, at) | load32(source, at + 4) << 32

    @without_refcounts
    def load64_be(source, at):
        """Load eight bytes, the first one highest."""
        value = np.int64(0)
        for k in range(8):
            value = value << 8 | np.int64(source[at + k])
        return value

    @without_refcounts
    def word(words, at):
        """Return words[at] of a contiguous int64 array; `at` is not negative."""
        return words[at]

    @without_refcounts
    def set_word(words, at, value):
        """Set words[at] of a contiguous int64 array; `at` is not negative."""
        words[at] = value

    @without_refcounts
    def prefetch(source, at):
        """Fetch source[at]'s cache line ahead; `at` may be outside."""

    @without_refcounts
    def copy32(target, to, source, at):
        """Copy source[at : at + 32] to target[to :]."""
        copy(target, to, source, at, 32)

    @without_refcounts
    def store8(target, at, value):
        target[at] = value & 0xFF

    @without_refcounts
    def store16(target, at, value):
        for k in range(2):
            target[at + k] = (value >> (8 * k)) & 0xFF

    @without_refcounts
    def store32(target, at, value):
        for k in range(4):
            target[at + k] = (value >> (8 * k)) & 0xFF

    @without_refcounts
    def store64(target, at, value):
        for k in range(8):
            target[at + k] = (value >> (8 * k)) & 0xFF

    @without_refcounts
    def high_product(a, b):
        """Return the upper 64 bits of the product of two uint64."""
        low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
        a1, a0, b1, b0 = a >> half, a & low, b >> half, b & low
        middle = a1 * b0 + (a0 * b0 >> half)
        other = a0 * b1 + (middle & low)
        return a1 * b1 + (middle >> half) + (other >> half)

    @without_refcounts
    def low_product(a, b):
        """Return the lower 64 bits of the product of two uint64."""
        low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
        a1, a0, b1, b0 = a >> half, a & low, b >> half, b & low
        middle = (a1 * b0 & low) + (a0 * b1 & low) + (a0 * b0 >> half)
        return (middle & low) << half | a0 * b0 & low

    @without_refcounts
    def bit_length(value):
        """Return the number of bits of a uint64 up to its highest one."""
        count = 0
        while value:
            value = value >> np.uint64(1)
            count += 1
        return count

    @without_refcounts
    def copy(target, to, source, at, count):
        """Copy source[at : at + count] to target[to :]; the two do not overlap."""
        if count < 0 or at < 0 or to < 0 or at + count > source.size or to + count > target.size:
            raise IndexError  # slices would be clipped in silence
        target[to : to + count] = source[at : at + count]


@inlined
def aligned(size):
    """Round a size up to the next region of an arena."""
    return (size + ALIGNMENT_BYTES - 1) & -ALIGNMENT_BYTES


_ONE = np.uint64(1)


@inlined
def next_bit(mask):
    """Return (lowest bit's number, the mask without it)."""
    bits = np.uint64(mask)
    rest = bits & (bits - _ONE)
    return bit_length(bits ^ rest) - 1, np.int64(rest)


@inlined
def clear(target, start, end):
    """Zero target[start:end]."""
    for at in range(start, end):
        store8(target, at, 0)


@inlined
def load_le(source, at, count):
    """Load a little-endian number of `count` (0 … 8) bytes."""
    if 0 < count and source.size - at >= 8:
        unused = 64 - 8 * count
        return np.int64(np.uint64(load64(source, at)) << np.uint64(unused) >> np.uint64(unused))
    value = np.int64(0)
    for k in range(count):
        value |= np.int64(source[at + k]) << (8 * k)
    return value


@inlined
def load_be(source, at, count):
    """Load a big-endian number of `count` (0 … 8) bytes."""
    if 0 < count and source.size - at >= 8:
        return np.int64(np.uint64(load64_be(source, at)) >> np.uint64(64 - 8 * count))
    value = np.int64(0)
    for k in range(count):
        value = value << 8 | np.int64(source[at + k])
    return value


@inlined
def same_bytes(source, a, b, count):
    """Tell if source[a : a + count] and source[b : b + count] are equal."""
    k = 0
    while count - k >= 8:
        if load64(source, a + k) != load64(source, b + k):
            return False
        k += 8
    if count >= 8:  # the last word lies over the one before
        return load64(source, a + count - 8) == load64(source, b + count - 8)
    while k < count:
        if source[a + k] != source[b + k]:
            return False
        k += 1
    return True
