"""Dates that no calendar has, in Arrow: null, or an error with its place."""

from __future__ import annotations

from typing import Any

import pytest

from ray_canal.errors import UnsupportedEvent
from ray_canal.offline import decode_chunks
from ray_canal.views.arrow import batches
from tests.golden import GOLDEN

FILE = GOLDEN / "mysql97" / "mysql_temporal.binlog"


def refusal(chunk: Any, index: int) -> UnsupportedEvent | None:
    try:
        assert list(batches(chunk, index, index + 1, irregular="error")) == list(
            batches(chunk, index, index + 1)
        )
    except UnsupportedEvent as error:
        return error
    return None


def test_null_or_error() -> None:
    refused = total = 0
    for _, chunk in decode_chunks([FILE]):
        count = chunk.layout.event_count
        total += count
        found = [(i, error) for i in range(count) if (error := refusal(chunk, i))]
        refused += len(found)
        for index, error in found:
            assert error.position == int(chunk.events["position"][index])
            assert error.journal_name == "mysql_temporal.binlog"
            assert "a date that no calendar has" in str(error)
            rows = next(batches(chunk, index, index + 1)).to_pylist()
            images = [image for row in rows for image in (row["before"], row["after"]) if image]
            assert any(value is None for image in images for value in image.values())
        if found:
            with pytest.raises(UnsupportedEvent, match="g_temporal"):
                list(batches(chunk, 0, count, irregular="error"))
    assert 0 < refused < total
