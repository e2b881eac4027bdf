"""Keeping freed memory in the process.

Decoding allocates and frees the same megabytes for every chunk. glibc gives them back to the kernel
each time, and the next chunk pays a page fault for every 4 KiB: a quarter of the time for small
rows. So processes that decode keep some: malloc what is small, and `large` what a chunk's bytes and
its columns are in. Those are made by one thread and freed by another, and malloc keeps for each
thread by itself, so it held half as much again as was ever in use.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import time
import weakref
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

KEPT_BYTES = 64 << 20

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h; see mallopt(3)
_LARGE_BYTES, _LARGE_BYTES_MAX = 1 << 20, 128 << 20
"""Outside of this nothing is kept: small pieces are malloc's, giant ones are rare."""
_HUGE_BYTES = 4 << 20  # from here on numpy asks for huge pages, too
_KEPT_S = 2.0  # a stream uses each much more often
_TIMES_MAX = 4  # as large as is asked for may a room be that was used for something larger


@dataclass(eq=False, slots=True)
class _Room:
    """Memory that nobody uses."""

    pages: mmap.mmap
    since: float  # time.monotonic()


_keeping = False
# Changed by `append` and `remove` alone, each of which is one step for all threads; no lock, for
# what gives back may run in the midst of anything, collecting garbage.
_kept: list[_Room] = []


def keep_freed_memory(kept_bytes: int = KEPT_BYTES) -> bool:
    """Let malloc keep up to `kept_bytes` of free memory at the top of its heap, and take pieces
    smaller than half of that from there; and let `large` keep. For the whole process, so only for
    processes of our own.

    False where the C library has no such setting.
    """
    global _keeping
    _keeping = True
    with contextlib.suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        trims = mallopt(_M_TRIM_THRESHOLD, kept_bytes)
        return bool(trims and mallopt(_M_MMAP_THRESHOLD, kept_bytes // 2))
    return False


def large(size_bytes: int) -> npt.NDArray[np.uint8]:
    """uint8[size_bytes], not set; in memory that an earlier one has given back, if it is large and
    this process keeps such. Raises MemoryError."""
    if not _keeping or not _LARGE_BYTES <= size_bytes <= _LARGE_BYTES_MAX:
        return np.empty(size_bytes, np.uint8)
    # Powers of two, so that what has been used for one size does for others: pages that nobody has
    # touched are none.
    room_bytes = 1 << (size_bytes - 1).bit_length()
    pages = _taken(room_bytes) or _mapped(room_bytes)
    lent = (ctypes.c_uint8 * size_bytes).from_buffer(pages)
    weakref.finalize(lent, _give_back, pages).atexit = False
    return np.frombuffer(memoryview(lent), np.uint8)


def shortened(array: npt.NDArray[np.uint8], size_bytes: int) -> npt.NDArray[np.uint8]:
    """The beginning of an array of `large` that nothing else refers to, without the memory behind
    it."""
    if array.flags.owndata:
        array.resize(size_bytes, refcheck=False)
        return array
    return array[:size_bytes] if size_bytes >= _LARGE_BYTES else array[:size_bytes].copy()


def give_up_unused(kept_s: float = _KEPT_S) -> None:
    """Give back to the kernel what nobody has used for so long."""
    now = time.monotonic()
    for room in list(_kept):
        if now - room.since >= kept_s:
            _removed(room)


def _taken(room_bytes: int) -> mmap.mmap | None:
    # The smallest that is large enough, and of these the last one: it is perhaps still in the
    # caches. Chunks that have become smaller use what larger ones have left.
    sizes = range(room_bytes, _TIMES_MAX * room_bytes + 1)
    fitting = (room for room in reversed(list(_kept)) if len(room.pages) in sizes)
    for room in sorted(fitting, key=lambda room: len(room.pages)):
        if _removed(room):
            give_up_unused()
            return room.pages
    for room in list(_kept):  # chunks have grown
        if len(room.pages) < room_bytes:
            _removed(room)
    return None


def _removed(room: _Room) -> bool:
    """False: another thread was first."""
    with contextlib.suppress(ValueError):
        _kept.remove(room)
        return True
    return False


def _mapped(room_bytes: int) -> mmap.mmap:
    try:
        pages = mmap.mmap(-1, room_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"no {room_bytes} bytes: {error}") from None
    if room_bytes >= _HUGE_BYTES:
        with contextlib.suppress(AttributeError, OSError):  # a kernel without them
            pages.madvise(mmap.MADV_HUGEPAGE)
    return pages


def _give_back(pages: mmap.mmap) -> None:
    _kept.append(_Room(pages, time.monotonic()))
