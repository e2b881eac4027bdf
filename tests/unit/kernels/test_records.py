"""Records: which entries are told to close a transaction, against the rule in NumPy's words; which
GTIDs go on where the one before ended."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from ray_canal.binlog.chunk import (
    ENTRY,
    EVENT,
    EVENT_CLOSES,
    EVENT_IN_TRANSACTION,
    EVENT_SILENT,
    GTID,
    GTID_MYSQL,
)
from ray_canal.kernels import gtid_events
from ray_canal.kernels.jit import read_only
from ray_canal.kernels.records import place_entries, place_gtids
from ray_canal.store.flush import END, ROWDATA


def closes(events: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
    alone = (events["kind"] == ROWDATA) & (events["flags"] & EVENT_IN_TRANSACTION == 0)
    alone &= events["rows"] == 0
    position, gtid = events["position"], events["gtid"]
    goes_on = position[1:] == position[:-1]
    goes_on |= (gtid[1:] == gtid[:-1]) & (gtid[1:] >= 0)
    alone[:-1] &= ~goes_on
    found: npt.NDArray[np.bool_] = alone | (events["kind"] == END)
    return found


@pytest.mark.parametrize("count", [0, 1, 2, 5000])
def test_what_closes_a_transaction(count: int) -> None:
    random = np.random.default_rng(count)
    events = np.zeros(count, EVENT)
    events["position"] = np.cumsum(random.integers(0, 2, count))
    events["gtid"] = np.cumsum(random.integers(0, 2, count)) // 2 - 1
    events["rows"] = random.integers(0, 2, count)
    events["kind"] = random.integers(1, 4, count)
    events["flags"] = random.integers(0, 4, count)
    entries = np.zeros(count, ENTRY)
    place_entries(events, entries)
    assert (entries["flags"] & EVENT_CLOSES > 0).tolist() == closes(events).tolist()
    others = EVENT_IN_TRANSACTION | EVENT_SILENT
    assert ((entries["flags"] & others) == events["flags"]).all()


def test_a_gtid_follows_the_next_smaller_one_of_its_source_and_tag() -> None:
    data = np.frombuffer(b"..day..night..day", np.uint8)
    day, night, again = (2, 3), (7, 5), (14, 3)
    chosen = [  # source, number, tag (offset, bytes), whether it follows
        (5, 1, (0, 0), 0),
        (5, 2, (0, 0), 1),
        (5, 4, (0, 0), 0),
        (6, 5, (0, 0), 0),
        (6, 6, day, 0),
        (6, 7, again, 1),
        (6, 8, night, 0),
        (6, 9, (0, 0), 0),
    ]
    found = np.zeros((len(chosen) + 1, gtid_events.G_TIMESTAMP + 1), np.int64)
    for row, (source, number, tag, _) in zip(found, chosen, strict=False):
        row[gtid_events.G_FLAVOR], row[gtid_events.G_GNO] = GTID_MYSQL, number
        row[gtid_events.G_UUID] = source
        row[gtid_events.G_TAG], row[gtid_events.G_TAG_BYTES] = tag
    found[-1, gtid_events.G_GNO] = 10  # anonymous
    records = np.zeros(len(found), GTID)
    place_gtids(read_only(data), found, records)
    assert records["follows"].tolist() == [each[3] for each in chosen] + [0]
