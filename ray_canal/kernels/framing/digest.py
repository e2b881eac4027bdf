"""Digest a transaction into two numbers that are the same wherever it was replicated to.

The numbers are polynomials over the bytes of its rows and statements, in the log's order, modulo
two primes. To each byte, what it belongs to is added: the table's name, the kind of change, which
columns are there, the second of the event's header. So they depend neither on offsets, table ids
and server ids nor on how a server cuts rows into events; and pieces of a transaction can be put
together: H(ab) = H(a) * BASE ** len(b) + H(b).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ray_canal.kernels.base import event_types as ev
from ray_canal.kernels.base.jit import inlined, without_refcounts
from ray_canal.kernels.base.memory import load16, load_le
from ray_canal.kernels.framing import query as q
from ray_canal.kernels.framing import table_maps as m
from ray_canal.kernels.framing.query import text_of_query

PRIMES: Final = (2147483647, 2147483629)
BASES: Final = (1103515245, 1664525013)

# Fields of a piece: what one chunk has of one transaction.
END: Final = 0  # offset in the file after the transaction's end; 0: it continues
FIRST: Final = 1  # the two numbers
SECOND: Final = 2
BYTES: Final = 3  # how many bytes they are about
BEGINS: Final = 4  # whether the transaction begins in this chunk
PIECE_FIELDS: Final = 5

_P1, _P2 = PRIMES
_POWERS = np.array(
    [[pow(base, k, prime) for k in range(9)] for base, prime in zip(BASES, PRIMES, strict=True)],
    np.int64,
)
_SUMS = _POWERS[:, :8].sum(axis=1) % np.array(PRIMES)
_STATEMENT: Final = 9


@inlined
def _labelled(number, data, start, end, lane, prime):
    """Continue a number over some bytes; for short ones."""
    for k in range(start, end):
        number = (number * _POWERS[lane, 1] + np.int64(data[k]) + 1) % prime
    return number


@inlined
def _continued(number, data, start, end, label, lane, prime):
    """Return polynomial `number` (base and prime of `lane`) extended by data[start:end], `label`
    added to each byte: eight bytes a step, none of which exceeds 63 bits."""
    at = start
    added = label * _SUMS[lane] % prime
    while end - at >= 8:
        step = number * _POWERS[lane, 8] + added
        for k in range(8):
            step += np.int64(data[at + k]) * _POWERS[lane, 7 - k]
        number = step % prime
        at += 8
    while at < end:
        number = (number * _POWERS[lane, 1] + np.int64(data[at]) + label) % prime
        at += 1
    return number


@without_refcounts
def _rows_at(data, body, end, kind, id_bytes, images):
    """Return the offsets of a row event's column bitmaps and first row image; -1: too short."""
    at = body + id_bytes + 2
    if kind >= 30:  # version 2, which has extra data
        if end - at < 2:
            return -1, -1
        at += load16(data, at)
    if at >= end:
        return -1, -1
    width = np.int64(data[at])
    at += 1
    if width > 250:
        count = 2 if width == 252 else (3 if width == 253 else 8)
        if end - at < count:
            return -1, -1
        width = load_le(data, at, count)
        at += count
    if width < 0 or width > 1 << 16:
        return -1, -1
    rows = at + images * ((width + 7) >> 3)
    return (at, rows) if rows <= end else (-1, -1)


@without_refcounts
def _names_end(data, start, end):
    """Return the offset after schema and table of a TABLE_MAP; -1: too short."""
    at = start
    for _ in range(2):
        if at >= end:
            return -1
        at += np.int64(data[at]) + 2
    return at if at <= end else -1


@without_refcounts
def transaction_pieces(data, events, bodies, maps, id_bytes, pieces):
    """Fill `pieces`, one line per transaction of a walked chunk; return how many. It ends at an
    event that is too short, which the decoder will report.

    `pieces` is zero and has a line more than `events`. A transaction without rows and statements
    has a line with BYTES 0."""
    count = 0
    for entry in range(events.size):
        event = events[entry]
        kind, code = event["kind"], event["type_code"]
        body, end = bodies[entry, 0], bodies[entry, 1]
        statement = kind == q.KIND_SPECIAL and (
            code == ev.QUERY or code == ev.EXECUTE_LOAD_QUERY
        )
        meaning = kind
        if kind == q.KIND_SPECIAL and code == ev.QUERY:
            meaning = q.entry_of_query(data, body, end)
        begins = kind == q.KIND_BEGIN or meaning == q.XA_BEGINS
        alone = statement and event["flags"] & 1 == 0 and not begins
        if begins or (alone and pieces[count, BYTES] == 0):
            if pieces[count, BYTES]:  # nothing has ended the one before: a piece of its own
                count += 1
            pieces[count, BEGINS] = 1
        if kind == q.KIND_ROWS or statement:
            # A label of the header's second, the kind, the names, the columns; then the bytes.
            what = np.int64(_STATEMENT)
            columns = start = names = names_end = end
            if kind == q.KIND_ROWS:
                what = np.int64(event["event_type"])
                columns, start = _rows_at(data, body, end, code, id_bytes, 2 if what == 2 else 1)
                names = maps[m.M_START, event["table"]] + 2  # after the flags
                names_end = _names_end(data, names, maps[m.M_END, event["table"]])
                if start < 0 or names_end < 0:
                    return count
            elif code == ev.QUERY:
                columns = start = names_end = text_of_query(data, body, end)
                if start < 0:
                    return count
                names = start - np.int64(data[body + 8]) - 1
            seed = (np.int64(event["timestamp"]) << 4) + what
            for lane in range(2):
                prime = _P1 if lane == 0 else _P2
                label = _labelled(seed % prime, data, names, names_end, lane, prime)
                label = _labelled(label, data, columns, start, lane, prime)
                number = pieces[count, FIRST + lane]
                number = _continued(number, data, start, end, label, lane, prime)
                if start == end:  # its text names a file of the server: the label alone
                    number = (number * _POWERS[lane, 1] + label) % prime
                pieces[count, FIRST + lane] = number
            pieces[count, BYTES] += max(1, end - start)
        if kind == q.KIND_END or alone or meaning == q.XA_ENDS:
            pieces[count, END] = event["position"] + np.int64(event["length"])
            count += 1
    return count + (1 if pieces[count, BYTES] or pieces[count, BEGINS] else 0)
