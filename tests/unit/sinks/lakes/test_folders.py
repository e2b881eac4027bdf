"""Folders of tables stay in their lake, whatever a table is named."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from ray_canal.config.sink import LakeConfig
from ray_canal.sinks.column_specs import ColumnSpec
from ray_canal.sinks.lakes.delta_lake import DeltaLake
from ray_canal.sinks.lakes.folders import folder_of, name_in
from ray_canal.sinks.lakes.iceberg import IcebergLake
from ray_canal.sinks.port import SinkError
from ray_canal.sinks.schema_follower import TableName

ODD = ["../../evil", "..", ".", "a/b", "per%cent", "a%20b", "[x]", "~", "~2e", "q?m#h", "é/订"]


@pytest.mark.parametrize("name", ["orders", "Orders_2$", "a.b", "t@x-y z", "订单é", *ODD])
def test_a_folder_has_one_name(name: str) -> None:
    folder = folder_of(name)
    assert name_in(folder) == name
    assert (folder == name) == (name not in ODD)
    assert not {"/", "%", "?", "#", "[", "\\"} & set(folder)
    assert folder.strip(".")


def test_tables_of_delta_are_below_its_path(tmp_path: Path) -> None:
    lake = DeltaLake("d.s", LakeConfig(path=str(tmp_path / "lake")))
    names = [TableName("shop", each) for each in ("../../evil", "[x]%")]
    for name in names:
        lake.create(name, [ColumnSpec("id", pa.int32(), is_key=True)])
    assert sorted(lake.names()) == names
    assert [each.name for each in tmp_path.iterdir()] == ["lake"]


def test_iceberg_refuses_what_would_be_another_folder() -> None:
    lake = IcebergLake("d.s", LakeConfig(options={"type": "sql", "uri": "sqlite://"}))
    with pytest.raises(SinkError, match=r"shop\.\.\./x: .* slash") as refused:
        lake.create(TableName("shop", "../x"), [])
    assert refused.value.kind == "schema"
