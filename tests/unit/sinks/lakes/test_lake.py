"""Lakes and files: the demo's shop, replayed from its binlog files, is what its server held."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import ray_canal as canal
from ray_canal.config import SinkConfig
from ray_canal.demo import binlog_files, expected
from ray_canal.demo.truth import digest
from ray_canal.sinks.lakes.lake import LakeMirror, LakeSink
from ray_canal.sinks.open import make_sink
from ray_canal.sinks.port import SinkError
from ray_canal.sinks.rows import Rows
from ray_canal.sinks.runner import Runner
from tests.in_process_sink import destination, runner_of, sink_config
from tests.sink_runs import killed

Read = Callable[[str], list[dict[str, Any]]]


def options(kind: str, folder: Path) -> dict[str, Any]:
    """Settings of a lake in a folder."""
    if kind == "delta":
        return {"path": str(folder / "lake")}
    catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db"}
    return {"options": {**catalog, "warehouse": f"file://{folder}/lake"}}


def reader(kind: str, folder: Path) -> Read:
    """A function that returns a table's rows, as somebody else reads them."""
    if kind == "delta":
        from deltalake import DeltaTable

        return lambda table: (
            DeltaTable(str(folder / "lake" / "shop" / table)).to_pyarrow_table().to_pylist()
        )
    if kind == "duckdb":
        import duckdb

        def query(table: str) -> list[dict[str, Any]]:
            with duckdb.connect(str(folder / "shop.duckdb"), read_only=True) as connection:
                connection.execute("SET TimeZone = 'UTC'")
                found = connection.sql(f"SELECT * FROM shop.shop.{table}").to_arrow_table()
                rows: list[dict[str, Any]] = found.to_pylist()
                return rows

        return query
    from pyiceberg.catalog import load_catalog

    def read(table: str) -> list[dict[str, Any]]:
        with load_catalog("ray_canal", **options(kind, folder)["options"]) as catalog:
            rows: list[dict[str, Any]] = (
                catalog.load_table(("shop", table)).scan().to_arrow().to_pylist()
            )
            return rows

    return read


def lake(kind: str, folder: Path, client_id: int, **more: Any) -> SinkConfig:
    shared = {"tables": r"shop\..*", "batch_size": 512, "client_id": client_id}
    if kind == "duckdb":
        mirror = {"schema_change": "evolve"}
        return sink_config(kind, mirror=mirror, path=str(folder / "shop.duckdb"), **shared)
    settings = {**options(kind, folder), "schema_change": "evolve", **more}
    return sink_config(kind, lake=settings, **shared)


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[None]:
    """The demo's binlog files as destination `x`, all of which are kept for subscribers to come."""
    source = {"files": [str(path) for path in binlog_files()]}
    with destination(tmp_path, held=True, source=source, tsdb={}):
        yield


def replay(config: SinkConfig) -> Runner:
    """Write all of the demo's changes into the lake; a new `client_id` begins where they do."""
    runner = runner_of(config, make_sink(config))
    runner.run(threading.Event())
    assert runner.status.retries == 0
    assert runner.status.commits or runner.status.skipped_entries
    return runner


def states(kind: str, folder: Path) -> dict[str, Any]:
    """What changes with every commit of a table; of DuckDB, where its place is."""
    if kind == "delta":
        from deltalake import DeltaTable

        logs = (folder / "lake").glob("*/*/_delta_log")
        return {log.parent.name: DeltaTable(str(log.parent)).version() for log in logs}
    if kind == "duckdb":
        import duckdb

        with duckdb.connect(str(folder / "shop.duckdb"), read_only=True) as connection:
            found = connection.sql("SELECT sink, place FROM ray_canal.canal_cursor").fetchall()
            return dict(found)
    from pyiceberg.catalog import load_catalog

    with load_catalog("ray_canal", **options(kind, folder)["options"]) as catalog:
        names = [name for space in catalog.list_namespaces() for name in catalog.list_tables(space)]
        return {".".join(name): catalog.load_table(name).metadata_location for name in names}


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """A row with the values that MySQL's have elsewhere."""
    found = dict(row)
    for key, value in row.items():
        if isinstance(value, Decimal) and key in ("id", "order_id"):
            found[key] = int(value)
        elif isinstance(value, pa.MonthDayNano):
            assert not value.months
            found[key] = dt.timedelta(days=value.days, microseconds=value.nanoseconds // 1000)
    return found


@pytest.mark.usefixtures("demo")
@pytest.mark.parametrize("kind", ["delta", "iceberg", "duckdb"])
def test_a_mirror_is_what_the_server_held_and_a_replay_changes_nothing(
    kind: str, tmp_path: Path
) -> None:
    read = reader(kind, tmp_path)
    replay(lake(kind, tmp_path, 1))
    for table, truth in expected()["tables"].items():
        rows = [plain(row) for row in read(table)]
        assert digest(table, rows, truth["columns"]) == truth["digest"], table
    before = states(kind, tmp_path)
    replay(lake(kind, tmp_path, 2))
    assert states(kind, tmp_path) == before


@pytest.mark.usefixtures("demo")
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_mirror_is_written_again_where_that_is_wanted(kind: str, tmp_path: Path) -> None:
    """Rows that somebody took away come back with the log that has them."""
    read = reader(kind, tmp_path)
    for client_id in (1, 2, 3):  # each begins where the log does
        if client_id == 3:
            sink = make_sink(lake(kind, tmp_path, client_id))
            assert isinstance(sink, LakeMirror)
            sink.write_again()
        replay(lake(kind, tmp_path, client_id))
        assert bool(read("customers")) is (client_id != 2)
        if client_id == 1:
            take_rows(kind, tmp_path, "customers")
    for table, truth in expected()["tables"].items():
        rows = [plain(row) for row in read(table)]
        assert digest(table, rows, truth["columns"]) == truth["digest"], table


def test_every_change_is_not_written_again(tmp_path: Path) -> None:
    assert not hasattr(make_sink(lake("delta", tmp_path, 1, mode="append")), "write_again")


def take_rows(kind: str, folder: Path, table: str) -> None:
    if kind == "delta":
        from deltalake import DeltaTable

        DeltaTable(str(folder / "lake" / "shop" / table)).delete()
        return
    from pyiceberg.catalog import load_catalog

    with load_catalog("ray_canal", **options(kind, folder)["options"]) as catalog:
        catalog.load_table(("shop", table)).delete()


@pytest.mark.usefixtures("demo")
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_an_appended_log_has_every_change_once(kind: str, tmp_path: Path) -> None:
    for client_id in (1, 2):
        replay(lake(kind, tmp_path, client_id, mode="append"))
    read = reader(kind, tmp_path)
    for table, truth in expected()["tables"].items():
        rows = read(table)
        kinds = [row["event_type"] for row in rows]
        counted = {name: kinds.count(name) for name in ("INSERT", "UPDATE", "DELETE")}
        assert counted == truth["changes"]
        assert all(row["after"] for row in rows if row["event_type"] == "INSERT")
        assert all(row["before"] for row in rows if row["event_type"] == "DELETE")


@pytest.mark.parametrize(
    ("kind", "steps"),
    [("iceberg", ["merge:3:before", "merge:9:after"]),
     ("duckdb", ["upsert:2:after", "commit:2:before", "commit:1:after"])],
)  # fmt: skip
def test_killed_it_ends_as_the_server_held_it(kind: str, steps: list[str], tmp_path: Path) -> None:
    config = lake(kind, tmp_path, 1)
    ends = killed(tmp_path, config, {"files": [str(path) for path in binlog_files()]}, steps)
    assert ends == ["-9"] * len(steps) + ["0"]
    read = reader(kind, tmp_path)
    for table, truth in expected()["tables"].items():
        rows = [plain(row) for row in read(table)]
        assert digest(table, rows, truth["columns"]) == truth["digest"], table


@pytest.mark.parametrize("mode", ["upsert", "append"])
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_two_tables_for_one_name_are_refused(kind: str, mode: str, tmp_path: Path) -> None:
    """In one run, and where the second table comes in another one."""
    lake = {**options(kind, tmp_path), "database": "one", "mode": mode}
    batch = next(canal.decode_files(binlog_files(), tables=r"shop\.items"))

    def write(sink: LakeSink, schema: str, moved: int) -> None:
        at = batch.schema.get_field_index("position")
        position = pc.add(batch.column("position"), moved)
        notes = {**batch.schema.metadata, b"canal.schema": schema.encode()}
        rows = batch.set_column(at, batch.schema.field(at), position)
        sink._stage(Rows(rows.replace_schema_metadata(notes), None))
        sink._flush()

    def opened() -> LakeSink:
        sink = make_sink(sink_config(kind, lake=lake))
        assert isinstance(sink, LakeSink)
        sink.open()
        return sink

    first = opened()
    write(first, "a", 0)
    for sink in (first, opened()):
        with pytest.raises(SinkError, match=r"rows of b\.items would get mixed with .* a\.items"):
            write(sink, "b", 10_000_000)
        sink.close()


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_log_takes_values_that_its_columns_hold_and_names_the_column_of_others(
    kind: str, tmp_path: Path
) -> None:
    """INT that became BIGINT, DOUBLE, VARCHAR: Delta wrote 1 for 1.5, or was tried without end."""
    batch = next(canal.decode_files(binlog_files(), tables=r"shop\.items")).slice(0, 9)
    sink = make_sink(sink_config(kind, lake={**options(kind, tmp_path), "mode": "append"}))
    assert isinstance(sink, LakeSink)
    sink.open()

    def write(moved: int, stock: pa.Scalar) -> None:
        position = pc.add(batch.column("position"), moved)
        rows = batch.set_column(batch.schema.get_field_index("position"), "position", position)
        after = batch.column("after")
        values = [pa.array([stock.as_py()] * 9, stock.type) if field.name == "stock" else array
                  for field, array in zip(after.type, after.flatten(), strict=True)]  # fmt: skip
        typed = pa.StructArray.from_arrays(values, names=[field.name for field in after.type])
        rows = rows.set_column(batch.schema.get_field_index("after"), "after", typed)
        sink._stage(Rows(rows.replace_schema_metadata(batch.schema.metadata), None))
        sink._flush()

    write(0, pa.scalar(5, pa.int32()))
    write(10_000_000, pa.scalar(7, pa.int64()))
    for stock in (pa.scalar(1 << 40), pa.scalar(1.5), pa.scalar("x")):
        with pytest.raises(SinkError, match=r"items: after\.stock is int32 there") as told:
            write(20_000_000, stock)
        assert not told.value.retryable
    sink.close()
    held = sorted(row["after"]["stock"] for row in reader(kind, tmp_path)("items"))
    assert held == [5] * 9 + [7] * 9
