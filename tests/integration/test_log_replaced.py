"""What a destination keeps of a log (tables' columns, row ids) when that log is replaced."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from ray_canal.config import InstanceConfig
from ray_canal.destination.records.schema_records import SchemaRecords
from ray_canal.errors import ConnectionLost, MetaUnavailable
from ray_canal.model.log_context import LogContext
from ray_canal.model.timeline import row_id
from ray_canal.views.arrow import batches
from tests.dumps import instance
from tests.integration.test_log_identity import GTIDS_OFF, reading, reset, serving, write
from tests.integration.test_positions import log_of
from tests.local_destination import ALL, LocalDestination, run, running, take
from tests.servers import Server

RowId = tuple[int, int, int, int]


def test_schemas_of_the_log_before_a_reset_are_not_believed(tmp_path: Path) -> None:
    """A1: where on_reset goes on, rows have the columns of the new log's time, also where it has
    grown past all that was known of the old one."""
    with serving("mysql56", tmp_path / "server", **GTIDS_OFF) as server:
        settings: dict[str, Any] = {"start": "earliest", "on_reset": "earliest"}
        config = instance(server, **settings).model_copy(update={"decoders": 0})
        run(first_columns(server, config, tmp_path), 90)
        server.execute("ALTER TABLE l.t CHANGE id v2 INT, CHANGE v id INT, DROP PRIMARY KEY")
        reset(server)
        for number in range(60):
            server.execute(f"INSERT INTO l.t VALUES ({number}, 7)")
        assert run_columns(config, tmp_path) == {"v2", "id"}


def test_the_catalog_is_kept_before_cursors_move(tmp_path: Path) -> None:
    """A1: a statement was purged unread, and where schemas are kept fails while on_purged goes on:
    then the cursor has not moved, and the next try reads the catalog, too."""
    with serving("mysql56", tmp_path / "server", **GTIDS_OFF) as server:
        settings: dict[str, Any] = {"start": "earliest", "on_purged": "earliest"}
        config = instance(server, **settings).model_copy(update={"decoders": 0})
        run(first_columns(server, config, tmp_path), 90)
        server.execute("ALTER TABLE l.t CHANGE id v2 INT, CHANGE v id INT, DROP PRIMARY KEY")
        server.execute("FLUSH LOGS")
        server.execute(f"PURGE BINARY LOGS TO '{server.position()[0]}'")
        server.execute("INSERT INTO l.t VALUES (1, 7)")
        with (
            mock.patch.object(SchemaRecords, "append", side_effect=MetaUnavailable("no room")),
            pytest.raises(MetaUnavailable),
        ):
            run_columns(config, tmp_path)
        assert run_columns(config, tmp_path) == {"v2", "id"}


async def first_columns(server: Server, config: InstanceConfig, folder: Path) -> None:
    async with running(folder, config) as store:
        await store.subscribe(1, ALL)
        write(server, 0, 1)
        assert await columns_seen(store) == {"id", "v"}


def run_columns(config: InstanceConfig, folder: Path) -> set[str]:
    found: set[str] = set()

    async def story() -> None:
        async with running(folder, config) as store:
            found.update(await columns_seen(store))

    run(story(), 90)
    return found


async def columns_seen(store: LocalDestination) -> set[str]:
    """Of the first rows that come."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        head = await take(store, 1, 1000)
        for part in () if head is None else head.parts:
            for batch in batches(part.payload, part.first, part.last, part.mask):
                return set(batch.to_pylist()[0]["after"])
    raise AssertionError(await store.status())


@pytest.mark.parametrize(
    ("kind", "options"),
    [("mysql97", {}), pytest.param("mysql56", GTIDS_OFF, marks=pytest.mark.soak)],
)
def test_row_ids_behind_a_restored_copy(
    kind: str, options: dict[str, str], tmp_path: Path
) -> None:
    """A1, A6: a subscriber took rows that it did not ack, and the server was put back to a copy
    that has the cursor and not these rows. What it gets then has higher ids."""
    with serving(kind, tmp_path / "server", **options) as server:
        config = instance(server, start="earliest").model_copy(update={"decoders": 0})
        ids: list[RowId] = []
        run(consumed(config, tmp_path, ids, acked=True, last=2, before=lambda: write(server, 0, 3)))
        server.stop()
        copy = tmp_path / "copy"
        subprocess.run(["cp", "-a", "--sparse=always", str(server.datadir), str(copy)], check=True)
        server.start()
        write(server, 100, 20)
        run(consumed(config, tmp_path, ids, acked=False, last=119))
        server.stop()
        shutil.rmtree(server.datadir)
        copy.rename(server.datadir)
        time.sleep(1.1)
        server.start()
        write(server, 1000, 5)
        taken = len(ids)
        run(consumed(config, tmp_path, ids, acked=False, last=1004))
        assert len(ids) == taken + 5, "each of them is above what was taken before"
        # It is one new timeline, not one at each start.
        run(consumed(config, tmp_path, ids, acked=False, last=1004))
        assert len(ids) == taken + 5


async def consumed(
    config: InstanceConfig,
    folder: Path,
    ids: list[RowId],
    *,
    acked: bool,
    last: int,
    before: Callable[[], None] = lambda: None,
) -> None:
    """Take rows up to this one, by the recipe: what is not above the highest id is skipped."""
    async with running(folder, config) as store:
        await store.subscribe(1, ALL)
        before()
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            head = await take(store, 1, 1000, ack=acked)
            for part in () if head is None else head.parts:
                assert head is not None
                context = LogContext(head.timeline, part.open)
                seen = batches(part.payload, part.first, part.last, part.mask, context=context)
                for row in (row for batch in seen for row in batch.to_pylist()):
                    if not ids or row_id(row) > ids[-1]:
                        ids.append(row_id(row))
                    if row["after"]["id"] == last:
                        return
        raise AssertionError(await store.status())


@pytest.mark.parametrize("listed_anew", [False, True])
def test_a_file_that_is_purged_while_it_is_looked_at(listed_anew: bool, tmp_path: Path) -> None:
    """A11: that is no word about cursors: it is decided again, and source.on_purged says how to go
    on."""
    with serving("mysql97", tmp_path) as server:
        write(server, 0, 3, files=1)
        with log_of(server) as log:
            name = log.files()[0][0]
            server.execute(f"PURGE BINARY LOGS TO '{server.position()[0]}'")
            if listed_anew:
                log.files()
            with pytest.raises(ConnectionLost, match=name):
                next(iter(log.chunks(name, 4096)))


def test_a_file_that_is_purged_before_the_dump(tmp_path: Path) -> None:
    """A11: the same, between the decision where to start and the dump."""
    with serving("mysql97", tmp_path) as server:
        write(server, 0, 3, files=1)
        settings: dict[str, Any] = {"start": "earliest", "on_purged": "earliest"}

        def purge(*_: object) -> None:
            server.execute(f"PURGE BINARY LOGS TO '{server.position()[0]}'")

        with reading(server, **settings) as source:
            with pytest.raises(ConnectionLost, match="purged just now"):
                source.resume((), "", purge)
            begun = source.resume((), "").position
            assert begun.journal_name == server.position()[0]
