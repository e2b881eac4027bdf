"""Places of rows as names of files."""

from __future__ import annotations

import pytest

from ray_canal.spark.place import file_name, name_of, read_file_name
from ray_canal.views.row_places import RowPlace


def test_a_file_name_says_its_place_and_shape() -> None:
    place = RowPlace(3, 1_000_000, 4567, 89, "mysql-bin.1000000")
    found = read_file_name(file_name(place, 2, "0123abcd"))
    assert found == (place, "0123abcd")


def test_names_of_one_log_file_sort_as_its_rows() -> None:
    places = [RowPlace(1, 7, position, row, "b.000007") for position in (9, 10) for row in (9, 10)]
    assert sorted(map(name_of, places)) == list(map(name_of, places))


@pytest.mark.parametrize("name", ["_SUCCESS", "", "1-x-2-3-4-zz.parquet"])
def test_other_files_are_no_places(name: str) -> None:
    assert read_file_name(name) is None
