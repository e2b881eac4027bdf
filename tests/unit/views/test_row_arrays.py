"""Arrays that rows are rendered with: constant pieces, time zones."""

from __future__ import annotations

import datetime as dt
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from ray_canal.demo import binlog_files
from ray_canal.errors import ConfigError
from ray_canal.kernels.base import codes
from ray_canal.offline import decode_chunks
from ray_canal.views.row_arrays import Blobs, row_arrays, zone_transitions


def test_pieces_are_where_blobs_say() -> None:
    blobs = Blobs(b"first", b"")
    places = [blobs.add(piece) for piece in (b"a", b"", b"longer")]
    whole = blobs.joined()
    assert [whole[at : at + size] for at, size in places] == [b"a", b"", b"longer"]
    assert whole.startswith(b"first")


@pytest.mark.parametrize("name", ["UTC", "Europe/Berlin", "Asia/Kathmandu", "America/Sao_Paulo"])
def test_a_zones_offsets_are_those_of_its_instants(name: str) -> None:
    transitions, offsets = zone_transitions(name)
    zone = ZoneInfo(name)
    for second in range(0, 1 << 31, 86400 * 11 + 1801):
        moment = dt.datetime.fromtimestamp(second, zone).utcoffset()
        assert moment is not None
        index = int(np.searchsorted(transitions, second, side="right")) - 1
        assert offsets[index] == moment.total_seconds()


def test_a_chunks_arrays_cannot_be_written_through() -> None:
    _, chunk = next(iter(decode_chunks(binlog_files()[:1])))
    records = np.zeros((0, 1), np.int64), np.zeros((0, 1), np.int64)
    arrays = row_arrays(chunk, records, Blobs(b"blob"), "UTC")
    assert arrays.blobs.tobytes() == b"blob"
    assert not any(array.flags.writeable for array in (arrays.events, arrays.arena, arrays.blobs))
    assert arrays.widths[codes.I32] == 4
    with pytest.raises(ConfigError, match="Mars/Olympus"):
        row_arrays(chunk, records, Blobs(), "Mars/Olympus")
