"""Offsets of readStream as text."""

from __future__ import annotations

import json

import pytest

from ray_canal.errors import ConfigError
from ray_canal.spark.log_offset import START, offset_place, offset_text
from ray_canal.views.row_places import RowPlace


def test_offsets_are_places() -> None:
    place = RowPlace(2, 7, 99, 3, "mysql-bin.000007")
    text = offset_text(place, "uuid:5")
    assert offset_place(text) == place
    assert json.loads(text)["transaction"] == "uuid:5"
    assert offset_place(offset_text(START)) == START
    for wrong in ("7", "{}", "no"):
        with pytest.raises(ConfigError, match="not one of ray_canal"):
            offset_place(wrong)
