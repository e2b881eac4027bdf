"""Tell the walking kernel how the events of a file are to be read."""

from __future__ import annotations

from ray_canal.binlog.chunk import FLAVOR_MARIADB
from ray_canal.binlog.events import FormatDescription
from ray_canal.kernels.base import event_types
from ray_canal.kernels.framing import scan
from ray_canal.model.arrays import Int64s


def learn_format(state: Int64s, told: FormatDescription) -> None:
    """Tell the walking kernel what a FORMAT_DESCRIPTION says of the events that follow."""
    lengths = told.post_header_bytes
    state[scan.TRAILER_BYTES] = event_types.CHECKSUM_BYTES if told.has_checksum else 0
    state[scan.ROWS_HEADER_BYTES] = lengths[22] if len(lengths) > 22 else 8
    state[scan.MARIADB] = told.flavor == FLAVOR_MARIADB
