"""What is kept of schemas: quarantine up to its limit, records as long as somebody needs them."""

from __future__ import annotations

import asyncio
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ray_canal.binlog.chunk import ENTRY, GTID, ChunkHead, ChunkInfo
from ray_canal.config import InstanceConfig, MetaConfig
from ray_canal.destination.records import schema_records
from ray_canal.destination.records.schema_records import SchemaRecords
from ray_canal.errors import DecodeError, MetaUnavailable, QuarantineFull
from ray_canal.meta.open import open_schema_store
from ray_canal.meta.schema_sqlite import SqliteSchemaStore
from ray_canal.meta.schema_store import SchemaStore, chunk_key
from ray_canal.model.position import EntryPosition, SourceIdentity
from ray_canal.model.schema_record import Quarantined, Records, SchemaRecord
from ray_canal.schema import keeper as schema_keeper
from ray_canal.schema.keeper import SchemaKeeper
from ray_canal.schema.table_state import StatementSession
from tests.meta_conformance import record
from tests.unit.schema.test_keeper import FILE, FakeServer, columns


def info(*held: Quarantined, records: Records = ()) -> ChunkInfo:
    head = ChunkHead(0, "bin.000001", 4, 5)
    return ChunkInfo(
        head, 1, 1, np.zeros(0, ENTRY), np.zeros(0, GTID), (), quarantined=held, records=records
    )


def held(position: int, size: int) -> Quarantined:
    data = bytes(size)
    return Quarantined("s", "bin.000001", position, (("db", "t"),), 1.0, "it was altered", data)


def test_quarantine_ends_at_its_limit(tmp_path: Path) -> None:
    asyncio.run(fill_up(tmp_path))


async def fill_up(tmp_path: Path) -> None:
    meta = MetaConfig(path=str(tmp_path / "meta.db"))
    config = InstanceConfig.model_validate(
        {
            "destination": "d",
            "source": {"address": "h:1"},
            "tsdb": {"on_ddl_error": "quarantine", "quarantine_bytes_max": 100},
        }
    )

    async def opened() -> SchemaRecords:
        kept = SchemaRecords(meta, config)
        await kept.open()
        return kept

    kept = await opened()
    for chunk in (held(4, 60), held(9, 40), held(9, 40)):  # the same again counts once
        await kept.keep(info(chunk))
    assert (kept.quarantine_bytes, kept.quarantined()) == (100, ["db.t"])
    for one in (kept, await opened()):
        with pytest.raises(QuarantineFull, match=r"db\.t .*101 bytes.* is 100\. .*redrive") as full:
            await one.keep(info(held(20, 1)))
        assert (full.value.journal_name, full.value.position) == ("bin.000001", 20)
        assert isinstance(full.value, DecodeError)  # so the destination stops
    store = open_schema_store(meta, "")
    assert len(store.quarantined("d")) == 2, "nothing of it was kept, nothing dropped"
    store.release("d", chunk_key(held(4, 60)))  # by redrive, meanwhile
    await kept.keep(info(held(20, 1)))
    assert kept.quarantine_bytes == 41
    store.close()
    await kept.close()


def test_a_listing_reads_no_payload(tmp_path: Path) -> None:
    """b17: to open what is kept is to list names, not to load 256 MiB of chunks."""
    meta = MetaConfig(path=str(tmp_path / "meta.db"))
    config = InstanceConfig.model_validate({"destination": "d", "source": {"address": "h:1"}})
    store = open_schema_store(meta, "")
    store.quarantine("d", [held(4, 32 << 20), held(9, 40)])
    store.close()

    async def opened() -> SchemaRecords:
        kept = SchemaRecords(meta, config)
        await kept.open()
        await kept.close()
        return kept

    tracemalloc.start()
    kept = asyncio.run(opened())
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (kept.quarantine_bytes, kept.quarantined()) == ((32 << 20) + 40, ["db.t"])
    assert peak_bytes < 4 << 20


def test_a_history_that_lacks_what_was_written_is_not_believed(tmp_path: Path) -> None:
    """A copy that is put back, a server that lost its last writes: columns that have changed since
    would have their old names."""
    meta = MetaConfig(path=str(tmp_path / "meta.db"))
    config = InstanceConfig.model_validate({"destination": "d", "source": {"address": "h:1"}})
    here = SourceIdentity("h:1", "u")

    async def story() -> None:
        kept = SchemaRecords(meta, config)
        await kept.open()
        assert await kept.trusted([None]) == []
        await kept.append([record(1)])
        await kept.keep_from(EntryPosition("bin.000001", 4), here, [record(1)])
        await kept.keep(info(records=(record(2),)))
        mark = kept.newest
        assert mark == ("u", record(2).journal_name, record(2).position)
        assert await kept.trusted([mark, None]) == [record(1), record(2)]
        assert await kept.trusted([("elsewhere", "bin.000009", 4)]) == [record(1), record(2)]
        lose_all_but(record(1))
        assert await kept.trusted([None]) == [record(1)]
        assert await kept.trusted([None, mark]) == []
        assert await kept.records() == [], "nor after another restart"
        await kept.close()

    def lose_all_but(one: SchemaRecord) -> None:
        store = open_schema_store(meta, "")
        store.forget_log("d", "u")
        store.append("d", [one])
        store.close()

    asyncio.run(story())


def test_the_last_records_are_written_again_with_the_next_one(tmp_path: Path) -> None:
    """Their server may have been replaced by one that lacks them."""
    meta = MetaConfig(path=str(tmp_path / "meta.db"))
    config = InstanceConfig.model_validate({"destination": "d", "source": {"address": "h:1"}})

    async def story() -> None:
        kept = SchemaRecords(meta, config)
        await kept.open()
        await kept.keep(info(records=(record(1),)))
        store = open_schema_store(meta, "")
        store.forget_log("d", "u")
        store.close()
        await kept.keep(info(records=(record(2),)))
        assert await kept.records() == [record(1), record(2)]
        await kept.close()

    asyncio.run(story())


@pytest.mark.parametrize("cursor_moves", [True, False])
def test_records_that_nobody_needs_are_forgotten_while_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cursor_moves: bool
) -> None:
    """B9: 3,000 statements at one start; what lies before every cursor goes, what a cursor needs
    stays, however much that is."""
    monkeypatch.setattr(schema_keeper, "_STATEMENTS_MAX", 200)
    asyncio.run(many_statements(tmp_path, cursor_moves))


async def many_statements(tmp_path: Path, cursor_moves: bool) -> None:
    meta = MetaConfig(path=str(tmp_path / "meta.db"))
    config = InstanceConfig.model_validate(
        {"destination": "d", "source": {"address": "h:1"}, "tsdb": {"records_max": 300}}
    )
    kept = SchemaRecords(meta, config)
    await kept.open()
    server = FakeServer("create table db.t (a int)", 500)
    keeper = SchemaKeeper(server)
    start = EntryPosition(FILE, 500)
    new = keeper.begin([], "uuid", start)
    await kept.keep_from(start, SourceIdentity("h:1", "uuid"), new)
    await kept.append(new)
    at = 600
    for number in range(1_500):
        for sql in (f"create table tmp_{number} (x int)", f"drop table tmp_{number}"):
            keeper.applied(ChunkHead(0, FILE, at, at + 100), at, sql, StatementSession("db"))
            at += 100
        if number == 700:
            sql = "alter table t add b int"
            keeper.applied(ChunkHead(0, FILE, at, at + 100), at, sql, StatementSession("db"))
            at += 100
        if number % 50 == 49:
            cursor = EntryPosition(FILE, at if cursor_moves else 550)
            await kept.keep(info(records=keeper.take_records()), lambda cursor=cursor: cursor)
    store = open_schema_store(meta, "")
    count = len(store.outline("d"))
    assert count <= 600 if cursor_moves else count > 3_000
    server.at = at
    check_loaded(store, server, at if cursor_moves else 550, at)
    store.close()
    await kept.close()


def check_loaded(store: SchemaStore, server: FakeServer, start: int, end: int) -> None:
    again = SchemaKeeper(server)
    again.begin(store.records("d"), "uuid", EntryPosition(FILE, start), continues=True)
    assert columns(again, "t", end) == "a b"
    assert columns(again, "t", start) == ("a b" if start == end else "a")
    assert columns(again, "tmp_1499", end) is None


def test_records_wait_for_their_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """B4: a DDL while it is away ends no generation, and is there when it is back."""
    monkeypatch.setattr(schema_records, "_AGAIN_S", 0.01)
    meta = MetaConfig(path=str(tmp_path / "meta.db"))
    config = InstanceConfig.model_validate({"destination": "d", "source": {"address": "h:1"}})
    tries = []
    append = SqliteSchemaStore.append

    problems = []

    def away(*arguments: Any) -> None:
        tries.append(arguments)
        problems.append(kept.problem)
        if len(tries) < 5:
            raise MetaUnavailable("nobody answers")
        append(*arguments)

    kept = SchemaRecords(meta, config)

    async def go() -> None:
        await kept.open()
        monkeypatch.setattr(SqliteSchemaStore, "append", away)
        await asyncio.wait_for(kept.keep(info(records=(record(2),))), 10)
        assert problems == ["", *["nobody answers"] * 4]
        assert kept.problem == ""
        assert await kept.records() == [record(2)]
        await kept.close()

    asyncio.run(go())
