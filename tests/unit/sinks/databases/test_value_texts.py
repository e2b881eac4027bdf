"""Values of Arrow columns as text for databases."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ray_canal.sinks.databases import value_texts


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
    assert value_texts.time_text(us) == text


def test_binary_values_are_digits_also_in_a_slice() -> None:
    values = pa.array([b"skipped", b"\x00\xff", None, b"", b"\x1a"], pa.binary()).slice(1)
    assert value_texts.hexadecimal(values).to_pylist() == [b"00FF", None, b"", b"1A"]


def test_a_vector_is_its_float32_as_they_are_in_memory() -> None:
    values = pa.array([[1.0, -2.0], None], pa.list_(pa.float32()))
    assert value_texts.hexadecimal(values).to_pylist() == [b"0000803F000000C0", None]
