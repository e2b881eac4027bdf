"""An Iceberg table has few files: manifests by themselves, data files and old ones by command."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ray_canal.config.sink import LakeConfig
from ray_canal.sinks.lakes import iceberg
from ray_canal.sinks.lakes.iceberg import IcebergLake
from ray_canal.sinks.port import SinkError
from ray_canal.views.row_places import RowPlace
from tests.unit.sinks.lakes.test_iceberg import COLUMNS, KEY, NAME, held, rows
from tests.unit.sinks.lakes.test_lake import options


@pytest.fixture
def lakes(tmp_path: Path) -> Iterator[list[IcebergLake]]:
    """Two of one sink, at one catalog."""
    config = LakeConfig(**options("iceberg", tmp_path))
    found = [IcebergLake("x.s", config), IcebergLake("x.s", config)]
    for lake in found:
        lake.open()
    found[0].create(NAME, COLUMNS)
    yield found
    for lake in found:
        lake.close()


def manifests(lake: IcebergLake) -> int:
    table = lake._load(NAME)
    return len(table.current_snapshot().manifests(table.io))


def on_disk(folder: Path, ends: str) -> int:
    return len(list((folder / "lake").rglob(f"*{ends}")))


def test_upserts_of_the_same_keys_leave_few_manifests(lakes: list[IcebergLake]) -> None:
    """Each commit has one with what it removed, which the next one does not need."""
    nothing = rows().select(KEY)
    for step in range(8):
        lakes[step % 2].open()
        lakes[step % 2].merge(NAME, KEY, nothing, rows((1, "x", step)), RowPlace(1, 1, step, 0))
        assert manifests(lakes[0]) <= 2
    assert held(lakes[0]) == {(1, "x"): 7}


def test_many_manifests_are_merged(lakes: list[IcebergLake]) -> None:
    """New keys and new rows, each in a file of its own."""
    lake, nothing = lakes[0], rows().select(KEY)
    with lake._known(NAME).transaction() as transaction:
        transaction.set_properties({"commit.manifest.min-count-to-merge": "5"})
    lake.open()
    for step in range(12):
        row = rows((step, "x", step))
        if step % 2:
            lake.merge(NAME, KEY, nothing, row, RowPlace(1, 1, step, 0))
        else:
            lake.append(NAME, row, RowPlace(1, 1, step, 0))
        assert manifests(lake) <= 5
    assert held(lake) == {(step, "x"): step for step in range(12)}


def test_compaction_joins_files_and_vacuum_removes_old_ones(
    lakes: list[IcebergLake], tmp_path: Path
) -> None:
    lake, nothing = lakes[0], rows().select(KEY)
    for step in range(4):
        lake.append(NAME, rows((step, "x", step)), RowPlace(1, 1, step, 0))
        lake.merge(NAME, KEY, nothing, rows((0, "y", step)), RowPlace(1, 1, step, 1))
    truth = {**{(step, "x"): step for step in range(4)}, (0, "y"): 3}
    assert on_disk(tmp_path, ".parquet") == 8
    assert lake.compact(NAME, False, None) == "5 files joined into 1"
    assert lake.compact(NAME, True, None).startswith("0 files joined into 0, 0 old snapshots")
    assert held(lake) == truth
    assert "8 old snapshots forgotten" in lake.compact(NAME, True, 0)
    assert on_disk(tmp_path, ".parquet") == 1
    assert on_disk(tmp_path, ".avro") == 1 + manifests(lake)
    lake.open()
    assert held(lake) == truth
    assert lake.place(NAME) == RowPlace(1, 1, 3, 1)
    lake.merge(NAME, KEY, nothing, rows((3, "x", 99)), RowPlace(1, 1, 4, 0))
    assert held(lake) == {**truth, (3, "x"): 99}


def test_a_compaction_and_a_writer_beside_each_other_lose_nothing(
    lakes: list[IcebergLake], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit comes while files are joined: they are joined again; the writer, which is behind
    then, begins again, too."""
    lake, writer = lakes
    nothing, step = rows().select(KEY), iter(range(2, 100))
    for number in range(3):
        lake.append(NAME, rows((number, "x", 0)), RowPlace(1, 1, number, 0))
    plain = iceberg.joined_files

    def joined(table: Any) -> Any:
        found = plain(table)
        if (now := next(step)) < 4:
            writer.open()
            writer.merge(NAME, KEY, nothing, rows((now, "x", now)), RowPlace(1, 1, now + 1, 0))
        return found

    monkeypatch.setattr(iceberg, "joined_files", joined)
    assert lake.compact(NAME, True, 0).startswith("4 files joined into 1")
    with pytest.raises(SinkError) as caught:
        writer.merge(NAME, KEY, nothing, rows((0, "x", 9)), RowPlace(1, 1, 9, 0))
    assert caught.value.kind == "retry"
    writer.open()
    writer.merge(NAME, KEY, nothing, rows((0, "x", 9)), RowPlace(1, 1, 9, 0))
    assert held(writer) == {(0, "x"): 9, (1, "x"): 0, (2, "x"): 2, (3, "x"): 3}
