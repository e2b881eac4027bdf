"""Check the checksums of many events in one pass, as if they were one long message.

A CRC's register is the same constant after every message that ends with its own right CRC. So the
next event's register need not be set again: what lies between that constant and a register at the
beginning is laid over the event's first four bytes instead, and one comparison at the end tells of
all events. What an event costs apart, the reduction to 32 bits, is then paid once in a run.

Where the processor multiplies without carry (crc.FOLDS); elsewhere a run is one event.
"""

from __future__ import annotations

from typing import Any, Final

import llvmlite.binding as llvm
import numpy as np

from ray_canal.kernels.base import event_types as ev
from ray_canal.kernels.base.crc import FOLDS, TABLES, crc32, crc32_byte, crc32_update
from ray_canal.kernels.base.jit import inlined, without_refcounts
from ray_canal.kernels.base.memory import load8, load32

RUN_BYTES: Final = 24 << 10
"""They are in the processor's nearest cache still when the walk comes to them."""

_BLOCK: Final = 64
_EVENT_BYTES_MIN: Final = 23  # header and checksum
_IN_USE_FLAG: Final = 1
_BEGINNING: Final = 0xFFFFFFFF
_AFTER_CRC: Final = 0xDEBB20E3
"""The register after a message and its CRC."""


@inlined
def _event_fits(data, at, end):
    """Tell if the event data[at:end] ends with its CRC-32."""
    tail = end - 4
    if load8(data, at + 4) == ev.FORMAT_DESCRIPTION and load8(data, at + 17) & _IN_USE_FLAG:
        # The server computed it before it set "this file is in use".
        crc = crc32_update(np.int64(_BEGINNING), data, at, at + 17)
        crc = crc32_byte(crc, load8(data, at + 17) & ~_IN_USE_FLAG)
        crc = crc32_update(crc, data, at + 18, tail) ^ 0xFFFFFFFF
    else:
        crc = crc32(data, at, tail)
    return crc == load32(data, tail)


def _over_zeros(register: int, count: int) -> list[int]:
    """Return a register after 0, 1, … count - 1 bytes of zeros."""
    registers = [register]
    for _ in range(count - 1):
        registers.append(registers[-1] >> 8 ^ int(TABLES[registers[-1] & 0xFF]))
    return registers


_LINE: Final = 128
_CENTRE: Final = _BLOCK - 4


def _lines(words: list[int]) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return a line for each register: the block that begins k bytes before its centre has the word
    at byte k."""
    lines = np.zeros((len(words), _LINE), np.uint8)
    lines[:, _CENTRE : _CENTRE + 4] = np.array(words, "<u4").view(np.uint8).reshape(-1, 4)
    return lines.reshape(-1)


_EXPECTED = np.array(_over_zeros(_AFTER_CRC, _BLOCK), np.int64)
_FIRST: Final = 4  # the line of a run's first event
_SETS = _lines([*_over_zeros(_BEGINNING ^ _AFTER_CRC, _FIRST), _BEGINNING])
"""Blocks that are laid over an event's beginning; lines 1 to 3: that many bytes after it."""
_NOTHING: Final = _BLOCK  # from there, no word

if FOLDS:
    from llvmlite import ir
    from numba.core import cgutils, types
    from numba.extending import intrinsic, models, register_model

    from ray_canal.kernels.base.crc import BY_16, Folder

    _BY_64 = (0x154442BD4, 0x1C6E41596)  # x^(512+32), x^(512-32)
    _FEATURES = llvm.get_host_cpu_features()
    _BY_WIDTH = _FEATURES.get("vpclmulqdq")
    _WORDS: Final = 8 if _BY_WIDTH and _FEATURES.get("avx512f") else 4 if _BY_WIDTH else 2
    _PART = ir.VectorType(ir.IntType(64), _WORDS)
    _PARTS = ir.ArrayType(_PART, 8 // _WORDS)

    class _BlockType(types.Type):  # type: ignore[misc]
        """64 bytes in the processor's registers: a block, or what is congruent to all before it."""

        def __init__(self) -> None:
            super().__init__("Block")

    _Block = _BlockType()

    @register_model(_BlockType)
    class _BlockModel(models.PrimitiveModel):  # type: ignore[misc]
        def __init__(self, manager: Any, kind: Any) -> None:
            super().__init__(manager, kind, _PARTS)

    def _each(builder: Any, change: Any, *blocks: Any) -> Any:
        """Return a block of what a function makes of its parts."""
        parts = [cgutils.unpack_tuple(builder, block) for block in blocks]
        return cgutils.pack_array(builder, [change(*part) for part in zip(*parts, strict=True)])

    def _loaded(builder: Any, where: Any) -> Any:
        first = builder.bitcast(where, _PART.as_pointer())
        places = (cgutils.gep(builder, first, number) for number in range(_PARTS.count))
        return cgutils.pack_array(builder, [builder.load(place, align=1) for place in places])

    @intrinsic
    def _block(typing_context, source, at):
        """Load source[at : at + 64]."""

        def generate(context, builder, signature, args):
            data = context.make_array(signature.args[0])(context, builder, args[0]).data
            return _loaded(builder, builder.gep(data, [args[1]]))

        return _Block(source, types.int64), generate

    @intrinsic
    def _last_block(typing_context, source, at, count):
        """Load source[at : at + count], then zeros."""

        def generate(context, builder, signature, args):
            data = context.make_array(signature.args[0])(context, builder, args[0]).data
            room = cgutils.alloca_once(builder, _PARTS)
            builder.store(ir.Constant(_PARTS, None), room)
            cgutils.raw_memcpy(builder, room, builder.gep(data, [args[1]]), args[2], 1)
            return _loaded(builder, room)

        return _Block(source, types.int64, types.int64), generate

    @intrinsic
    def _both(typing_context, one, other):
        """Return the exclusive or of two blocks."""

        def generate(context, builder, signature, args):
            return _each(builder, builder.xor, *args)

        return _Block(_Block, _Block), generate

    @intrinsic
    def _further(typing_context, block):
        """Return what is congruent to a block one block further on."""

        def generate(context, builder, signature, args):
            fold = Folder(builder)
            return _each(builder, lambda part: fold.folded(part, _BY_64), args[0])

        return _Block(_Block), generate

    @intrinsic
    def _register(typing_context, block):
        """Reduce a block to the 32 bits of the CRC."""

        def generate(context, builder, signature, args):
            fold = Folder(builder)
            room = cgutils.alloca_once_value(builder, args[0])
            start = builder.bitcast(room, cgutils.voidptr_t)
            value, *others = (fold.block(start, ir.IntType(64)(at)) for at in range(0, _BLOCK, 16))
            for other in others:
                value = builder.xor(fold.folded(value, BY_16), other)
            return fold.reduced(value)

        return types.int64(_Block), generate

    @inlined
    def _passed(data, here, end, state, sets):
        """Return (state, sets, here) after the last whole block before `end`."""
        while here + _BLOCK <= end:
            state = _both(_further(state), _both(_block(data, here), sets))
            sets = _block(_SETS, np.int64(_NOTHING))
            here += _BLOCK
        return state, sets, here

    @without_refcounts
    def _run_fits(data, at, limit):
        """Return (end of the run, True if its checksums fit)."""
        state = sets = _block(_SETS, np.int64(_NOTHING))
        here = event = at
        line = np.int64(_FIRST)
        while limit - event >= _EVENT_BYTES_MIN:
            kind, length = load8(data, event + 4), load32(data, event + 9)
            if length < _EVENT_BYTES_MIN or length > data.size - event:
                break
            if kind == ev.FORMAT_DESCRIPTION or kind == ev.TRANSACTION_PAYLOAD:
                break
            state, sets, here = _passed(data, here, event + 3, state, sets)
            if event < here:  # its first four bytes lie in two blocks
                line = here - event
            sets = _both(sets, _block(_SETS, _LINE * line + _CENTRE - max(event - here, 0)))
            line = np.int64(0)
            event += length
        state, sets, here = _passed(data, here, event, state, sets)
        left = event - here
        if left > 0:
            state = _both(_further(state), _both(_last_block(data, here, left), sets))
        return event, _register(state) == _EXPECTED[(_BLOCK - left) & (_BLOCK - 1)]


@without_refcounts
def fitting_run(data, at):
    """Return where a run of events from `at` on ends whose checksums fit; `at` if its own does not.

    The event at `at` is whole. A run has `RUN_BYTES` and what is left of its last event. It ends
    before a format description, before a TRANSACTION_PAYLOAD (after a frame nothing has a
    checksum, see walk.py), and before what cannot be an event."""
    if FOLDS:
        end, fits = _run_fits(data, at, min(data.size, at + RUN_BYTES))
        if fits and end > at:
            return end
    end = at + load32(data, at + 9)
    return end if _event_fits(data, at, end) else at
