"""Take MySQL's packet framing off a dump stream: socket bytes in, binlog events out.

A packet is a 3-byte length, a 1-byte sequence number and a body; a body of 0xFFFFFF bytes is
continued in the next packet. A dump's packet starts with a status byte: 0 before an event, 0xFF
before an error, 0xFE alone at the end. Under semi-synchronous replication two bytes follow the 0:
0xEF, and 1 where the server waits for an acknowledgement.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ray_canal.kernels.base.jit import without_refcounts
from ray_canal.kernels.base.memory import copy

# Indexes into `state` (int64[STATE_SIZE]).
REMAINING_BYTES: Final = 0  # of the current packet's body, still to come
CONTINUES: Final = 1  # the current packet is followed by one that continues its event
WRITTEN_BYTES: Final = 2  # out: bytes put into `target`
ACK_WANTED: Final = 3  # the current event is to be acknowledged
STATE_SIZE: Final = 4

# Why `unpack` stopped.
MORE: Final = 0  # all of the source is used, but for a cut-off packet head at its end
ERROR: Final = 1  # an error packet starts at the returned offset (all of it is there)
END: Final = 2  # an end packet
ACK: Final = 3  # an event to be acknowledged has ended just before the returned offset
BROKEN: Final = 4  # no packet of a dump

_BODY_MAX = 0xFFFFFF


@without_refcounts
def unpack(source, at, end, target, state, semi_sync):
    """Copy event bytes of source[at:end] to `target` (as large as the source); return (code, new
    `at`)."""
    written = 0
    code = MORE
    while at < end:
        if state[REMAINING_BYTES] == 0:
            if end - at < 4:
                break
            size = (
                np.int64(source[at])
                | np.int64(source[at + 1]) << 8
                | np.int64(source[at + 2]) << 16
            )
            head = 4
            body = size
            if state[CONTINUES] == 0:
                if end - at < 5:
                    break
                status = source[at + 4]
                if status == 0xFF or (status == 0xFE and size < 9):
                    if end - at < 4 + size:
                        break
                    code = ERROR if status == 0xFF else END
                    break
                head = 7 if semi_sync else 5
                if end - at < head:
                    break
                if status != 0 or size < head - 4 or (semi_sync and source[at + 5] != 0xEF):
                    code = BROKEN
                    break
                state[ACK_WANTED] = 1 if semi_sync and source[at + 6] & 1 else 0
                body = size - (head - 4)
            at += head
            state[REMAINING_BYTES] = body
            state[CONTINUES] = 1 if size == _BODY_MAX else 0
        count = min(state[REMAINING_BYTES], end - at)
        copy(target, written, source, at, count)
        at += count
        written += count
        state[REMAINING_BYTES] -= count
        if state[REMAINING_BYTES] == 0 and state[CONTINUES] == 0 and state[ACK_WANTED]:
            state[ACK_WANTED] = 0
            code = ACK
            break
    state[WRITTEN_BYTES] = written
    return code, at
