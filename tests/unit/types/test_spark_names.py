"""Spark's names in the families are what spark/schema.py derives from their Arrow types."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ray_canal.kernels.base import codes
from ray_canal.model.table_meta import ColumnMeta
from ray_canal.types.registry import STORAGES

pytest.importorskip("pyspark")
from ray_canal.spark.schema import readable_type, spark_type

PRECISION = {codes.DEC128: 9, codes.DEC256: 60}


@pytest.mark.parametrize("code", STORAGES)
def test_spark_has_the_type_that_its_family_names(code: int) -> None:
    storage = STORAGES[code]
    column = ColumnMeta("c", 0, "", precision=PRECISION.get(code, 0), scale=2)
    found = spark_type(readable_type(storage.arrow(pa, column))).simpleString()
    assert found.partition("(")[0] == storage.spark.partition("(")[0]
    if storage.spark != "decimal":
        assert found == storage.spark
