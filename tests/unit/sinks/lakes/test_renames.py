"""A lake whose sink is moved back over a RENAME: rows come to the tables that have them now."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import pyarrow as pa
import pytest

from ray_canal.sinks.lakes import renames
from ray_canal.sinks.lakes.delta import DeltaFile
from ray_canal.sinks.lakes.delta_lake import DeltaLake
from ray_canal.sinks.lakes.lake import LakeMirror
from ray_canal.sinks.open import make_sink
from ray_canal.sinks.port import Changed, SinkError
from ray_canal.sinks.rows import Rows
from ray_canal.sinks.schema_follower import TableName
from ray_canal.views.envelope import ENVELOPE
from tests.in_process_sink import sink_config
from tests.unit.sinks.lakes.test_lake import options
from tests.unit.sinks.test_schema_follower import altered, renamed


@pytest.fixture(params=["delta", "iceberg"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LakeMirror]:
    """A table 1 became b at 10, and c at 20; 2 was made in its place at 15, and 3 is new."""
    kind: str = request.param
    sink = make_sink(sink_config(kind, lake={**options(kind, tmp_path)}))
    assert isinstance(sink, LakeMirror)
    sink.open()
    follow(sink, 1, [altered("a", is_new=True)])
    write(sink, 5, "a", 1)
    follow(sink, 10, renamed("a", "b"))
    follow(sink, 15, [altered("a", "text", is_new=True)])
    write(sink, 16, "a", "2")
    follow(sink, 20, [*renamed("b", "c"), *renamed("a", "b")])
    follow(sink, 25, [altered("a", is_new=True)])
    write(sink, 26, "a", 3)
    yield sink
    sink.close()


def follow(
    sink: LakeMirror, position: int, steps: Sequence[Changed], *, timeline: int = 1, time_s: int = 0
) -> None:
    """A statement is executed in the second of its position, if not given."""
    found = [
        replace(step, time_s=time_s or position, change=replace(step.change, position=position))
        for step in steps
    ]
    sink._follower.follow(found, timeline)


def write(
    sink: LakeMirror, position: int, table: str, value: object, *, key: int = 1, timeline: int = 1
) -> None:
    row = {"id": key, "v0": value}
    value_kind = pa.string() if isinstance(value, str) else pa.int32()
    kind = pa.struct([("id", pa.int32()), ("v0", value_kind)])
    values = {
        "event_type": "INSERT", "timeline": timeline, "journal_name": "b.1", "position": position,
        "row": 0, "execute_time": position * 1_000_000,
    }  # fmt: skip
    schema = pa.schema(
        [*(field for field in ENVELOPE if field.name in values),
         pa.field("before", kind), pa.field("after", kind)],
        {"canal.schema": "s", "canal.table": table, "canal.key": json.dumps(["id"])},
    )  # fmt: skip
    batch = pa.RecordBatch.from_pylist([{**values, "after": row}], schema)
    sink._stage(Rows(batch, None))
    sink._flush()


def values(sink: LakeMirror) -> dict[str, list[Any]]:
    """The values that each table has."""
    lake: Any = sink._lake
    found = {}
    for name in lake.names():
        if lake.find(name) is not None:
            is_delta = hasattr(lake, "file")
            table = (
                lake.file(name)._opened.to_pyarrow_table()
                if is_delta
                else lake._known(name).scan().to_arrow()
            )
            found[name.table] = sorted(table["v0"].to_pylist())
    return found


def move_back(sink: LakeMirror) -> None:
    sink.close()
    sink.write_again()
    sink.open()


def test_rows_come_to_the_tables_that_have_them_now(shop: LakeMirror) -> None:
    follow(shop, 30, renamed("c", "d"))
    follow(shop, 40, renamed("d", "c"))
    now = values(shop)
    assert now == {"a": [3], "b": ["2"], "c": [1]}
    move_back(shop)
    write(shop, 6, "a", 7, key=2)
    assert values(shop) == {**now, "c": [1, 7]}
    follow(shop, 10, renamed("a", "b"))
    write(shop, 11, "b", 8, key=2)
    shop.close()
    shop.open()
    write(shop, 12, "b", 9, key=3)
    assert values(shop) == {**now, "c": [1, 8, 9]}
    follow(shop, 15, [altered("a", "text", is_new=True)])
    assert values(shop) == {**now, "b": [], "c": [1, 8, 9]}
    write(shop, 16, "a", "2")
    follow(shop, 20, [*renamed("b", "c"), *renamed("a", "b")])
    assert values(shop) == {**now, "c": [1, 8, 9]}
    write(shop, 21, "c", 4, key=3)
    follow(shop, 25, [altered("a", is_new=True)])
    write(shop, 26, "a", 3)
    assert values(shop) == {**now, "c": [1, 4, 8]}


def test_a_table_that_is_made_under_a_name_that_is_free_now_had_no_names(shop: LakeMirror) -> None:
    """Rows from before went to it, as the one that had its name had been renamed before, too."""
    follow(shop, 30, renamed("c", "d"))
    follow(shop, 35, [altered("c", is_new=True)])
    now = values(shop)
    move_back(shop)
    write(shop, 6, "a", 7, key=2)
    assert values(shop) == {**now, "d": [1, 7]}


def test_a_rename_that_ended_in_its_midst_is_done_again(
    shop: LakeMirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table counted as renamed: its rows were dropped, or stayed under the old name."""
    end, lake = Mock(side_effect=SinkError("ended", "retry")), cast("Any", shop._lake)
    follow(shop, 30, [altered("e", is_new=True)])
    for position, old, new in ((40, "c", "d"), (50, "d", "e")):
        is_delta = isinstance(lake, DeltaLake)
        what = (DeltaFile, "_overwrite") if is_delta else (lake._opened, "rename_table")
        with monkeypatch.context() as patch:
            patch.setattr(*what, end)
            with pytest.raises(SinkError, match="ended"):
                follow(shop, position, renamed(old, new))
        shop.close()
        shop.open()
        follow(shop, position, renamed(old, new))
        assert values(shop) == {"a": [3], "b": ["2"], "e": [], new: [1]}


def test_tables_that_cannot_be_listed_now_are_listed_again(
    shop: LakeMirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows came under the old name. Somebody else's table does not matter."""
    move_back(shop)
    lake, other = cast("Any", shop._lake), TableName("s", "0")
    names, renames_of = lake.names, lake.renames
    with monkeypatch.context() as patch:
        patch.setattr(lake, "names", Mock(side_effect=SinkError("away", "retry")))
        with pytest.raises(SinkError, match="away"):
            write(shop, 6, "a", 7, key=2)

    def refused(name: TableName) -> str:
        if name == other:
            raise SinkError("not for you")
        return str(renames_of(name))

    monkeypatch.setattr(lake, "names", lambda: [other, *names()])
    monkeypatch.setattr(lake, "renames", refused)
    write(shop, 6, "a", 7, key=2)
    monkeypatch.undo()
    assert values(shop) == {"a": [3], "b": ["2"], "c": [1, 7]}


def test_rows_of_a_table_that_is_gone_are_left_out(shop: LakeMirror) -> None:
    """The one that has its name now had another one."""
    shop._lake.drop(TableName("s", "c"))
    move_back(shop)
    write(shop, 19, "b", 8)
    follow(shop, 20, [*renamed("b", "c"), *renamed("a", "b")])
    assert values(shop) == {"a": [3], "b": ["2"], "c": []}


def test_a_rename_that_comes_again_from_another_log_takes_nothing_away(shop: LakeMirror) -> None:
    """What was not acknowledged comes again after a failover, under new places. The table that had
    the new name was dropped."""
    now = values(shop)
    follow(shop, 4, [*renamed("b", "c"), *renamed("a", "b")], timeline=2, time_s=20)
    follow(shop, 5, [altered("a", is_new=True)], timeline=2, time_s=25)
    write(shop, 30, "a", 3, timeline=2)
    assert values(shop) == now


def test_places_of_another_log_stop_it(shop: LakeMirror) -> None:
    move_back(shop)
    with pytest.raises(SinkError, match=r"s\.[bc] was renamed at b\.1:.0 .*of another log.*seek"):
        write(shop, 6, "a", 7, timeline=2)
    assert values(shop) == {"a": [3], "b": ["2"], "c": [1]}


def test_names_that_are_not_kept_any_more_stop_it(
    shop: LakeMirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renames, "_RENAMES_MAX", 2)
    follow(shop, 50, renamed("c", "d"))
    move_back(shop)
    with pytest.raises(SinkError, match=r"s\.d was renamed at b\.1:20 .* not kept any more"):
        write(shop, 6, "a", 7)
    write(shop, 21, "c", 8)
    assert values(shop)["d"] == [8]
