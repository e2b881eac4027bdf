"""Keeping freed memory in the process.

Decoding allocates and frees the same megabytes for every chunk. glibc gives them back to the kernel
each time, and the next chunk pays a page fault for every 4 KiB: a quarter of the time for small
rows. So processes that decode keep some.
"""

from __future__ import annotations

import contextlib
import ctypes

KEPT_BYTES = 64 << 20

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3  # malloc.h; see mallopt(3)


def keep_freed_memory(kept_bytes: int = KEPT_BYTES) -> bool:
    """Let malloc keep up to `kept_bytes` of free memory at the top of its heap, and take pieces
    smaller than half of that from there. For the whole process, so only for processes of our own.

    False where the C library has no such setting.
    """
    with contextlib.suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        # A thread's heap has 64 MiB, and then it gets another one, which goes when it is empty if
        # the one before has as much room as the pad: so with so large a pad it stays.
        kept = mallopt(_M_TRIM_THRESHOLD, kept_bytes) and mallopt(_M_TOP_PAD, kept_bytes)
        return bool(kept and mallopt(_M_MMAP_THRESHOLD, kept_bytes // 2))
    return False
