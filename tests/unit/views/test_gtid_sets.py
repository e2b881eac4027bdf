"""The set executed with each transaction goes on from what was before the chunk."""

from __future__ import annotations

import numpy as np

from ray_canal.binlog.chunk import (
    GTID,
    GTID_ANONYMOUS,
    GTID_MARIADB,
    GTID_MYSQL,
    ChunkLayout,
    DecodedChunk,
)
from ray_canal.model.arrays import Records
from ray_canal.views.gtid_sets import executed_sets

UUID = "01010101-0101-0101-0101-010101010101"


def sets_of(gtids: Records, before: str) -> list[tuple[int, str]]:
    layout = ChunkLayout("b.000001", 0, 0, 0, len(gtids), 0, 0, ())
    return list(executed_sets(DecodedChunk(layout, gtids.view(np.uint8)), before))


def test_mysqls_grow_and_anonymous_ones_have_none() -> None:
    gtids = np.zeros(4, GTID)
    gtids["flavor"] = GTID_MYSQL, GTID_ANONYMOUS, GTID_MYSQL, GTID_MYSQL
    gtids["sid"] = np.uint8(1)
    gtids["gno"], gtids["tag"] = (6, 0, 7, 1), (b"", b"", b"", b"blue")
    assert sets_of(gtids, f"{UUID}:1-5") == [
        (0, f"{UUID}:1-6"),
        (2, f"{UUID}:1-7"),
        (3, f"{UUID}:1-7:blue:1"),
    ]


def test_mariadbs_have_the_last_of_each_domain() -> None:
    gtids = np.zeros(2, GTID)
    gtids["flavor"], gtids["domain"] = GTID_MARIADB, (0, 3)
    gtids["server_id"], gtids["gno"] = 9, (12, 4)
    assert sets_of(gtids, "0-1-11") == [(0, "0-9-12"), (1, "0-9-12,3-9-4")]
