"""GTIDs as text: MySQL's `uuid:number` and `uuid:tag:number`, MariaDB's `domain-server-number`."""

from __future__ import annotations

from typing import Final

import numpy as np

from ray_canal.kernels.digits import put_digits
from ray_canal.kernels.jit import bare, inlined
from ray_canal.kernels.memory import copy, load32, load64, same_bytes, store32

GTID_TEXT_BYTES_MAX: Final = 96
_UUID_BYTES: Final = 37  # with its colon
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)


@inlined
def _number(value, out, to):  # type: ignore[no-untyped-def]
    return put_digits(np.uint64(value), out, to)


@inlined
def _uuid(records, at, out, to):  # type: ignore[no-untyped-def]
    for k in range(16):
        if k == 4 or k == 6 or k == 8 or k == 10:
            out[to] = 45
            to += 1
        byte = records[at + k]
        out[to] = _HEX[byte >> 4]
        out[to + 1] = _HEX[byte & 15]
        to += 2
    out[to] = 58
    return to + 1


@bare
def gtid_texts(records, size, fields, offsets, out):  # type: ignore[no-untyped-def]
    """Write the texts of len(records) // size GTID records one after the other; the bytes written.

    `fields`: offsets in a record of sid, gno, domain, server_id, flavor (0 none, 1 MySQL, 2
    MariaDB), tag and the tag's size. `offsets`: int32 as bytes, one more than there are records.
    `out` has GTID_TEXT_BYTES_MAX for each.
    """
    to = text = 0
    known = -1  # the last UUID in `records`; its text begins at `text`
    for row in range(records.size // size):
        at = row * size
        flavor = records[at + fields[4]]
        if flavor == 1:
            sid = at + fields[0]
            if known >= 0 and same_bytes(records, sid, known, 16):
                copy(out, to, out, text, _UUID_BYTES)
            else:
                _uuid(records, sid, out, to)
            known, text = sid, to
            to += _UUID_BYTES
            tag = at + fields[5]
            if records[tag]:
                for k in range(fields[6]):
                    if not records[tag + k]:
                        break
                    out[to] = records[tag + k]
                    to += 1
                out[to] = 58
                to += 1
            to = _number(load64(records, at + fields[1]), out, to)
        elif flavor == 2:
            to = _number(load32(records, at + fields[2]), out, to)
            out[to] = 45
            to = _number(load32(records, at + fields[3]), out, to + 1)
            out[to] = 45
            to = _number(load64(records, at + fields[1]), out, to + 1)
        store32(offsets, 4 * row + 4, to)
    return to
