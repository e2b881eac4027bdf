"""Find the tables of a parsed chunk whose row images lack columns, without decoding rows.

The server leaves columns out by binlog_row_image (MINIMAL, NOBLOB): the bitmaps at the head of a
row event say which ones its images have.
"""

from __future__ import annotations

import numpy as np

from ray_canal.binlog.chunk import RawChunk
from ray_canal.binlog.parsed import ParsedChunk
from ray_canal.binlog.walked import table_id_bytes
from ray_canal.kernels.base.jit import read_only
from ray_canal.kernels.rows import rows as r
from ray_canal.kernels.rows.records import row_events
from ray_canal.model.arrays import Bytes, Int64s
from ray_canal.model.table_meta import TableMeta

_FLAGS_BYTES = 2
_TWO_BYTES_FOLLOW = 252
"""First byte of a column count of more than 250."""


def metas_lacking_columns(raw: RawChunk, parsed: ParsedChunk) -> list[TableMeta]:
    """Return the table versions of which some row event lacks columns, hidden ones included."""
    lines = np.empty((len(parsed.events), r.EVENT_FIELDS), np.int64)
    of_table = np.zeros(len(parsed.tables), np.int64)
    used, _ = row_events(read_only(parsed.events), read_only(parsed.bodies), lines, of_table)
    lines = lines[:used]
    id_bytes = table_id_bytes(raw.head.post_header_bytes)
    return [
        version.meta
        for table, version in enumerate(parsed.tables)
        if of_table[table] and _lacks(raw.data, lines[lines[:, r.E_TABLE] == table], id_bytes)
    ]


def _lacks(data: Bytes, lines: Int64s, id_bytes: int) -> bool:
    """Tell if the bitmaps of some of a table's events have a column less."""
    versions = lines[:, r.E_VERSION]
    at = lines[:, r.E_START] + id_bytes + _FLAGS_BYTES
    extra = _bytes_at(data, at, 2) @ np.array([1, 256])
    at = at + np.where(versions >= 2, extra, 0)
    width, low, high = (int(byte) for byte in _bytes_at(data, at[:1], 3)[0])
    at = at + 1
    if width == _TWO_BYTES_FOLLOW:
        width, at = low + 256 * high, at + 2
    size = (width + 7) // 8
    whole = np.packbits(np.ones(width, np.uint8), bitorder="little")
    two = (lines[:, r.E_TYPE] == r.UPDATE) & (versions > 0)
    starts = np.concatenate([at, at[two] + size])
    return bool(((_bytes_at(data, starts, size) & whole) != whole).any())


def _bytes_at(data: Bytes, starts: Int64s, count: int) -> Int64s:
    """Return `count` bytes from each start; damage that ends an event early is for decoding."""
    places = np.minimum(starts[:, None] + np.arange(count), data.size - 1)
    found: Int64s = data[places].astype(np.int64)
    return found
