"""Keeping freed memory in the process.

Decoding allocates and frees the same megabytes for every chunk. glibc gives them back to the kernel
each time, and the next chunk pays a page fault for every 4 KiB: a quarter of the time for small
rows. So processes that decode keep some.
"""

from __future__ import annotations

import contextlib
import ctypes

KEPT_BYTES = 64 << 20

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h; see mallopt(3)


def keep_freed_memory(kept_bytes: int = KEPT_BYTES) -> bool:
    """Let malloc keep up to `kept_bytes` of free memory at the top of its heap, and take pieces
    smaller than half of that from there. For the whole process, so only for processes of our own.

    False where the C library has no such setting.
    """
    with contextlib.suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        trims = mallopt(_M_TRIM_THRESHOLD, kept_bytes)
        return bool(trims and mallopt(_M_MMAP_THRESHOLD, kept_bytes // 2))
    return False
