"""What FORMAT_DESCRIPTION says of later events, for the kernel that walks them."""

from __future__ import annotations

import numpy as np
import pytest

from ray_canal.binlog.chunk import FLAVOR_MARIADB, FLAVOR_MYSQL
from ray_canal.binlog.events import FormatDescription
from ray_canal.binlog.scan_format import learn_format
from ray_canal.kernels.framing import scan


@pytest.mark.parametrize(
    ("flavor", "has_checksum", "lengths", "wanted"),
    [
        (FLAVOR_MYSQL, True, bytes([6] * 40), (4, 6, 0)),
        (FLAVOR_MARIADB, False, bytes([8] * 40), (0, 8, 1)),
        (FLAVOR_MYSQL, False, b"", (0, 8, 0)),
    ],
)
def test_the_kernel_learns_checksums_heads_and_the_server(
    flavor: str, has_checksum: bool, lengths: bytes, wanted: tuple[int, int, int]
) -> None:
    state = np.zeros(scan.STATE_SIZE, np.int64)
    told = FormatDescription("1", flavor, has_checksum, lengths, 0, first_since_start=False)
    learn_format(state, told)
    found = state[[scan.TRAILER_BYTES, scan.ROWS_HEADER_BYTES, scan.MARIADB]]
    assert tuple(found.tolist()) == wanted
