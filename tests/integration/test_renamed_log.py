"""A server whose binlog files get another base name (log_bin), as in an upgrade."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from ray_canal.config import InstanceConfig, StoreConfig
from ray_canal.errors import LogRenamed, PositionNotFound, PositionPurged, TransactionsMissing
from ray_canal.model.log_context import LogContext
from ray_canal.model.timeline import row_id
from ray_canal.source import live
from ray_canal.views.arrow import batches
from tests.dumps import instance, read_until
from tests.integration.test_log_identity import (
    GTIDS_OFF,
    cursor_at_end,
    known_less,
    read_to_an_error,
    reading,
    refusal,
    serving,
    write,
)
from tests.local_destination import ALL, LocalDestination, run, running, take
from tests.servers import Server

RowId = tuple[int, int, int, int]


def test_by_gtid(tmp_path: Path) -> None:
    """b14: the old files are listed no more. Who had read all of them goes on in the new ones; who
    had not is told what is gone."""
    with serving("mysql97", tmp_path) as server:
        write(server, 0, 5)
        early = cursor_at_end(server)
        write(server, 5, 5)
        late = cursor_at_end(server)
        server.restart(log_bin="binlog")
        write(server, 10, 5)
        with reading(server) as source:
            start = source.resume(known_less(late))
            assert start.position.journal_name == "binlog.000001"
            assert "found by GTID" in start.how
            assert not start.same_log
            chunks = read_until(source, *server.position())
            assert {chunk.head.journal_name for chunk in chunks} == {"binlog.000001"}
            error = refusal(server, early)
            assert isinstance(error, PositionPurged)
            assert error.lost is not None
            assert error.lost.gtids
        with reading(server, on_purged="earliest") as source:
            start = source.resume([early])
            assert start.position.journal_name == "binlog.000001"
            assert error.lost.gtids in start.how


@pytest.mark.parametrize("kind", ["mysql56", "mariadb"])
def test_gtids_that_are_given_again(kind: str, tmp_path: Path) -> None:
    """b14: these servers keep their GTIDs with the files, and give them again with new ones."""
    with serving(kind, tmp_path) as server:
        write(server, 0, 5)
        cursor = cursor_at_end(server)
        time.sleep(1.1)  # MariaDB tells transactions apart by the second of their GTID event
        server.restart(log_bin="binlog")
        write(server, 10, 2)
        for known in known_less(cursor):
            error = refusal(server, known)
            assert isinstance(error, TransactionsMissing)
            assert "log_bin" in str(error)
        write(server, 20, 30)
        for known in known_less(cursor):
            assert refusal(server, known).other_log


def test_without_gtids(tmp_path: Path) -> None:
    """b14: nobody can tell what the old files had behind the cursor: the start says so, and goes on
    where it is told to."""
    with serving("mysql56", tmp_path, **GTIDS_OFF) as server:
        write(server, 0, 5)
        cursor = cursor_at_end(server)
        server.restart(log_bin="binlog")
        write(server, 10, 5)
        error = refusal(server, cursor)
        assert isinstance(error, PositionNotFound)
        assert "it has no mysql-bin.000001, but binlog.000001" in str(error)
        assert "on_reset" in str(error)
        with reading(server, on_reset="earliest") as source:
            start = source.resume([cursor])
            assert str(start.position) == "binlog.000001:4"
            assert not start.same_log


@pytest.mark.parametrize("gtids", [True, False])
def test_one_log_of_two_names(
    gtids: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """b14: where the server lists the old files before the new ones, it is one log. Each subscriber
    gets all of it, in order, and ids rise: the new name is a new timeline."""
    monkeypatch.setattr(live, "_RENAMED_S", 0.5)
    index = str(tmp_path / "both.index")
    options = {} if gtids else GTIDS_OFF
    with serving("mysql97", tmp_path / "server", log_bin_index=index, **options) as server:
        one_by_one = {"decoders": 0, "store": StoreConfig(batch_mode="ITEMSIZE")}
        config = instance(server, start="earliest").model_copy(update=one_by_one)
        run(before(server, config, tmp_path), 120)
        server.restart(log_bin="binlog")
        write(server, 10, 5)
        run(behind(config, tmp_path), 120)
        with reading(server, start="earliest") as source:
            source.resume(())
            with pytest.raises(LogRenamed, match=r"from binlog\.000001 on"):
                read_to_an_error(source)


async def before(server: Server, config: InstanceConfig, folder: Path) -> None:
    """One subscriber acks all that is there, another one less."""
    async with running(folder, config) as store:
        for client_id in (1, 2):
            await store.subscribe(client_id, ALL)
        write(server, 0, 5)
        assert len(await ids(store, 1, 5)) == 5
        assert len(await ids(store, 2, 2)) == 2
    write(server, 5, 5)


async def behind(config: InstanceConfig, folder: Path) -> None:
    async with running(folder, config) as store:
        found: dict[int, list[RowId]] = {1: [], 2: []}
        wanted = {1: 10, 2: 13}
        deadline = time.monotonic() + 100
        while any(len(found[one]) < wanted[one] for one in found):
            assert time.monotonic() < deadline, (found, await store.status())
            for client_id in found:
                found[client_id] += await ids(store, client_id, 1, seconds=0.2)
        for client_id, rows in found.items():
            assert len(rows) == wanted[client_id]
            assert rows == sorted(rows), (rows, await store.status())
            assert len({timeline for timeline, *_ in rows}) >= 2


async def ids(
    store: LocalDestination, client_id: int, count: int, seconds: float = 60.0
) -> list[RowId]:
    """Of so many rows, which are acked; of fewer, if no more come in that time."""
    rows: list[RowId] = []
    deadline = time.monotonic() + seconds
    while len(rows) < count and time.monotonic() < deadline:
        head = await take(store, client_id, 1, seconds=0.2)
        for part in () if head is None else head.parts:
            context = LogContext(head.timeline, part.open)
            seen = batches(part.payload, part.first, part.last, part.mask, context=context)
            rows += [row_id(row) for batch in seen for row in batch.to_pylist()]
    return rows
