"""Values of Arrow columns as text for databases."""

from __future__ import annotations

import pyarrow as pa

from ray_canal.sinks.databases import value_texts


def test_binary_values_are_digits_also_in_a_slice() -> None:
    values = pa.array([b"skipped", b"\x00\xff", None, b"", b"\x1a"], pa.binary()).slice(1)
    assert value_texts.hexadecimal(values).to_pylist() == [b"00FF", None, b"", b"1A"]


def test_a_vector_is_its_float32_as_they_are_in_memory() -> None:
    values = pa.array([[1.0, -2.0], None], pa.list_(pa.float32()))
    assert value_texts.hexadecimal(values).to_pylist() == [b"0000803F000000C0", None]
