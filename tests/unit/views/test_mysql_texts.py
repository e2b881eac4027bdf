"""Values as MySQL's text of them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ray_canal.views.mysql_texts import time_texts


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (0, b"00:00:00.000000"),
        (-1, b"-00:00:00.000001"),
        (3_020_399_000_000, b"838:59:59.000000"),
        (-3_020_399_000_000, b"-838:59:59.000000"),
        (None, None),
    ],
)
def test_a_time_is_written_as_the_server_does(us: int | None, text: bytes | None) -> None:
    times = pa.array([us], pa.duration("us"))
    assert time_texts(times).cast(pa.binary()).to_pylist() == [text]
