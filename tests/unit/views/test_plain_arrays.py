"""Arrow arrays that are made by their buffers are those that Arrow makes itself."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from ray_canal.views import plain_arrays


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 1000])
def test_numbers_and_marks(count: int) -> None:
    values = np.arange(count, dtype=np.int64) - 3
    marks = values % 3 == 0
    numbers, bools = plain_arrays.numbers(values, pa.int64()), plain_arrays.bools(marks)
    for found, expected in ((numbers, values), (bools, marks)):
        found.validate(full=True)
        assert found.equals(pa.array(expected))


@pytest.mark.parametrize("values", [(), ("",), ("a", "", "Zoë", "mysql-bin.000001")])
def test_texts(values: tuple[str, ...]) -> None:
    found = plain_arrays.strings(values)
    found.validate(full=True)
    assert found.null_count == 0
    assert found.equals(pa.array(values, pa.string()))
