"""Number a chunk's transactions: where each begins and ends, and its name."""

from __future__ import annotations

from typing import Final

import numpy as np

from ray_canal.kernels.base.digits import put_digits
from ray_canal.kernels.base.jit import without_refcounts
from ray_canal.kernels.base.memory import copy, load32, store32
from ray_canal.kernels.rows.records import closes

# Fields of `found`.
T_BEGIN: Final = 0  # where its first event starts in the file
T_GTID: Final = 1  # index of its GTID event, which may be anonymous; -1: none
T_CLOSER: Final = 2  # number of the event that ends it, -1: none in this chunk
T_ROWS: Final = 3  # up to its end or the chunk's
TRANSACTION_FIELDS: Final = 4

PLACE_BYTES_MAX: Final = 21
"""A colon and a position."""


@without_refcounts
def split_transactions(events, gtids, open_begin, open_rows, numbers, found):
    """Number the events' transactions and fill a line of `found` for each; return how many.

    The first one began at `open_begin` with `open_rows` rows before the chunk; -1: it begins here.
    """
    count = 0
    is_open = False
    for i in range(events.size):
        event = events[i]
        if not is_open:
            gtid = event["gtid"]
            begin = gtids[gtid]["position"] if gtid >= 0 else event["position"]
            rows = 0
            if i == 0 and open_begin >= 0:
                begin = open_begin
                rows = open_rows
            found[count, T_BEGIN] = begin
            found[count, T_GTID] = gtid
            found[count, T_CLOSER] = -1
            found[count, T_ROWS] = rows
            count += 1
            is_open = True
        numbers[i] = count - 1
        found[count - 1, T_ROWS] += event["rows"]
        if closes(events, i):
            found[count - 1, T_CLOSER] = i
            is_open = False
    return count


@without_refcounts
def gather_texts(arena, starts, sizes, offsets, out):
    """Copy pieces of the arena one after the other; `offsets` (int32) has one more."""
    to = 0
    offsets[0] = 0
    for k in range(starts.size):
        copy(out, to, arena, starts[k], sizes[k])
        to += sizes[k]
        offsets[k + 1] = to


@without_refcounts
def name_transactions(found, journal, gtid_offsets, gtid_text, offsets, out):
    """Write the names of transactions, one after the other; return the bytes written.

    A name is its GTID's text (`gtid_text`, which ends at `gtid_offsets`, int32 as bytes), if it has
    one, else `journal`, a colon and where it begins. `offsets`: int32 as bytes, one more than there
    are transactions. `out` has room for the longest name of each.
    """
    to = 0
    store32(offsets, 0, 0)
    for k in range(found.shape[0]):
        gtid = found[k, T_GTID]
        start = size = 0
        if gtid >= 0:
            start = load32(gtid_offsets, 4 * gtid)
            size = load32(gtid_offsets, 4 * gtid + 4) - start
        if size > 0:
            copy(out, to, gtid_text, start, size)
            to += size
        else:
            copy(out, to, journal, 0, journal.size)
            to += journal.size
            out[to] = 58
            to = put_digits(np.uint64(found[k, T_BEGIN]), out, to + 1)
        store32(offsets, 4 * k + 4, to)
    return to
