"""Records: which entries are told to close a transaction, against the rule in NumPy's
words."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from ray_canal.binlog.chunk import ENTRY, EVENT, EVENT_CLOSES, EVENT_IN_TRANSACTION, EVENT_SILENT
from ray_canal.kernels.rows.records import place_entries
from ray_canal.model.canal_types import BEGIN, END, ROWDATA


def closes(events: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
    alone = (events["kind"] == ROWDATA) & (events["flags"] & EVENT_IN_TRANSACTION == 0)
    alone &= events["rows"] == 0
    position, gtid = events["position"], events["gtid"]
    goes_on = position[1:] == position[:-1]
    goes_on |= (gtid[1:] == gtid[:-1]) & (gtid[1:] >= 0)
    alone[:-1] &= ~goes_on
    found: npt.NDArray[np.bool_] = alone | (events["kind"] == END)
    return found


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 5000])
def test_what_closes_a_transaction(count: int) -> None:
    random = np.random.default_rng(count)
    events = np.zeros(count, EVENT)
    events["position"] = np.cumsum(random.integers(0, 2, count))
    events["gtid"] = np.cumsum(random.integers(0, 2, count)) // 2 - 1
    events["rows"] = random.integers(0, 2, count)
    events["kind"] = random.integers(1, 4, count)
    events["flags"] = random.integers(0, 4, count)
    entries = np.zeros(count, ENTRY)
    thins = place_entries(events, entries)
    kinds = events["kind"]
    is_empty = (kinds[:-1] == BEGIN) & (kinds[1:] == END)
    assert thins == bool((events["flags"] & EVENT_SILENT).any() or is_empty.any())
    assert (entries["flags"] & EVENT_CLOSES > 0).tolist() == closes(events).tolist()
    others = EVENT_IN_TRANSACTION | EVENT_SILENT
    assert ((entries["flags"] & others) == events["flags"]).all()
