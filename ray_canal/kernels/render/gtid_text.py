"""Write GTIDs as text: MySQL's `uuid:number` and `uuid:tag:number`, MariaDB's
`domain-server-number`."""

from __future__ import annotations

from typing import Final

import numpy as np

from ray_canal.kernels.base.digits import put_digits
from ray_canal.kernels.base.jit import inlined, without_refcounts
from ray_canal.kernels.base.memory import copy, load32, load64, same_bytes, store32
from ray_canal.kernels.framing import gtid_events as g

GTID_TEXT_BYTES_MAX: Final = 96
_UUID_TEXT_BYTES: Final = 37  # with its colon
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)


@inlined
def _number(value, out, to):
    return put_digits(np.uint64(value), out, to)


@inlined
def _uuid(records, at, out, to):
    for k in range(g.UUID_BYTES):
        if k == 4 or k == 6 or k == 8 or k == 10:
            out[to] = 45
            to += 1
        byte = records[at + k]
        out[to] = _HEX[byte >> 4]
        out[to + 1] = _HEX[byte & 15]
        to += 2
    out[to] = 58
    return to + 1


@without_refcounts
def gtid_texts(records, offsets, out):
    """Write the texts of GTID records, given as bytes; return the bytes written.

    `offsets`: int32 as bytes, one more than there are records. `out` has GTID_TEXT_BYTES_MAX for
    each.
    """
    to = text = 0
    known = -1  # the last UUID in `records`; its text begins at `text`
    for row in range(records.size // g.RECORD_BYTES):
        at = row * g.RECORD_BYTES
        flavor = records[at + g.FLAVOR]
        if flavor == g.MYSQL:
            sid = at + g.SID
            if known >= 0 and same_bytes(records, sid, known, g.UUID_BYTES):
                copy(out, to, out, text, _UUID_TEXT_BYTES)
            else:
                _uuid(records, sid, out, to)
            known, text = sid, to
            to += _UUID_TEXT_BYTES
            tag = at + g.TAG
            if records[tag]:
                for k in range(g.TAG_BYTES):
                    if not records[tag + k]:
                        break
                    out[to] = records[tag + k]
                    to += 1
                out[to] = 58
                to += 1
            to = _number(load64(records, at + g.GNO), out, to)
        elif flavor == g.MARIADB:
            to = _number(load32(records, at + g.DOMAIN), out, to)
            out[to] = 45
            to = _number(load32(records, at + g.SERVER_ID), out, to + 1)
            out[to] = 45
            to = _number(load64(records, at + g.GNO), out, to + 1)
        store32(offsets, 4 * row + 4, to)
    return to
