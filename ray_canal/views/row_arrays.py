"""Arrays that the kernels of entries and of FlatMessages render a chunk's rows with."""

from __future__ import annotations

import datetime as dt
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np

from ray_canal.binlog.chunk import DecodedChunk, TableLayout
from ray_canal.errors import ConfigError
from ray_canal.kernels.base import codes
from ray_canal.kernels.base.jit import read_only
from ray_canal.kernels.render.arrays import RowArrays
from ray_canal.kernels.render.entry_columns import C_VALIDITY
from ray_canal.kernels.render.entry_values import LIMBS_MAX, VALUE_BYTES_MAX
from ray_canal.model.arrays import Int64s

_SLOT_WIDTHS = np.zeros(64, np.int64)
for _code, _width in codes.WIDTH_BYTES.items():
    _SLOT_WIDTHS[_code] = _width
_BEFORE, _AFTER = (slice(first, first + 3) for first in (C_VALIDITY, C_VALIDITY + 3))
"""Validity, values and data of a column record's sides."""


class Blobs:
    """Constant bytes that the kernels copy, one piece after the other."""

    def __init__(self, *first: bytes) -> None:
        self._parts = list(first)
        self._size = sum(map(len, first))

    def add(self, blob: bytes) -> tuple[int, int]:
        """Add a piece; return its offset and length."""
        place = self._size, len(blob)
        self._parts.append(blob)
        self._size += len(blob)
        return place

    def joined(self) -> bytes:
        """Return all pieces."""
        return b"".join(self._parts)


def row_arrays(
    chunk: DecodedChunk, records: tuple[Int64s, Int64s], blobs: Blobs, time_zone: str
) -> RowArrays:
    """Return the arrays of a chunk. `records`: `tables` and `columns`. Raises ConfigError: no such
    time zone."""
    tables, columns = records
    transitions, offsets = zone_transitions(time_zone)
    return RowArrays(
        events=read_only(chunk.events),
        tables=tables,
        columns=columns,
        widths=_SLOT_WIDTHS,
        blobs=np.frombuffer(blobs.joined(), np.uint8),
        arena=read_only(chunk.arena),
        transitions=transitions,
        offsets=offsets,
        limbs=np.zeros(LIMBS_MAX, np.int64),
        scratch=np.zeros(VALUE_BYTES_MAX, np.uint8),
    )


def storage_of(table: TableLayout) -> tuple[int, ...]:
    """Return the storage codes of a table's columns. Of a table without rows, nothing is asked."""
    side = table.before or table.after
    return tuple(c.code for c in side) if side else (codes.TEXT,) * len(table.meta.columns)


def place_columns(records: Int64s, table: TableLayout) -> None:
    """Fill in where the sides of a table's columns lie in the arena."""
    for where, layout in ((_BEFORE, table.before), (_AFTER, table.after)):
        if layout:
            records[: len(layout), where] = [column[1:4] for column in layout]


@lru_cache(maxsize=64)
def zone_transitions(name: str) -> tuple[Int64s, Int64s]:
    """Return the instants (seconds since 1970) at which a zone's offset changes, and the offset
    (seconds) from each on, for all of MySQL's TIMESTAMP range. Raises ConfigError: no such zone."""
    if name == "UTC":
        return np.array([-(1 << 62)]), np.array([0])
    try:
        zone = ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:  # OSError: a folder of zones
        raise ConfigError(f"no time zone {name!r}: {error}") from None

    def offset(seconds: int) -> int:
        moment = dt.datetime.fromtimestamp(seconds, zone).utcoffset()
        return int(moment.total_seconds()) if moment is not None else 0

    step, end = 7 * 86400, 1 << 32
    instants, offsets = [-(1 << 62)], [offset(0)]
    for low in range(0, end, step):
        high = min(low + step, end)
        # A week holds at most a few changes; halve it until each is found to the second.
        while offset(low) != offset(high):
            left, right = low, high
            while right - left > 1:
                middle = (left + right) // 2
                if offset(middle) == offset(left):
                    left = middle
                else:
                    right = middle
            instants.append(right)
            offsets.append(offset(right))
            low = right
    return np.array(instants), np.array(offsets)
