"""Whose log a cursor belongs to, on real servers: reset, restored, replaced, renamed, and large."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from ray_canal.driver.catalog import Catalog
from ray_canal.driver.live import LiveSource
from ray_canal.errors import TransactionsMissing
from ray_canal.protocol.gtid import GtidSet
from ray_canal.protocol.position import EntryPosition, LogPosition, SourceIdentity
from tests.integration.test_driver import instance, read_until
from tests.servers import Server, start


@contextlib.contextmanager
def serving(kind: str, folder: Path, **options: str | None) -> Iterator[Server]:
    """A server of this test's own, with a table to write to."""
    named = {name.replace("_", "-"): value for name, value in options.items()}
    with start(kind, folder, named) as server:
        server.execute("CREATE DATABASE l", "CREATE TABLE l.t (id INT PRIMARY KEY, v INT)")
        yield server
        server.kill()


@contextlib.contextmanager
def reading(server: Server, **settings: object) -> Iterator[LiveSource]:
    source = LiveSource(instance(server, **settings))
    try:
        yield source
    finally:
        source.close()


@pytest.mark.parametrize("kind", ["mysql97", "mysql56"])
def test_gtid_sets_over_1024_characters(kind: str, tmp_path: Path) -> None:
    """b5: SHOW VARIABLES cuts GTID sets; a move to another server compares them whole."""
    sources = [str(uuid.UUID(int=number << 64 | 1)) for number in range(40)]
    purged = ",".join(f"{source}:1-{n + 1000}" for n, source in enumerate(sources))
    with serving(kind, tmp_path) as server:
        if kind == "mysql56":
            server.execute("RESET MASTER", f"SET GLOBAL gtid_purged = '{purged}'")
        else:
            server.execute(f"SET GLOBAL gtid_purged = '+{purged}'")
        server.execute("INSERT INTO l.t VALUES (1, 1)", "FLUSH BINARY LOGS")
        catalog = Catalog(instance(server).source)
        wanted = GtidSet.parse(purged)
        assert len(purged) > 1024
        assert wanted.issubset(GtidSet.parse(catalog.gtid_executed()))
        assert wanted.issubset(GtidSet.parse(catalog.gtid_purged()))
        place = catalog.position()
        catalog.close()
        server.execute("INSERT INTO l.t VALUES (2, 2)")
        elsewhere = SourceIdentity("gone:3306", str(uuid.uuid4()))
        moved = LogPosition(elsewhere, EntryPosition("mysql-bin.000077", 99, gtid=place.gtid))
        with reading(server) as source:
            assert source.resume([moved]).position == place
            read_until(source, *server.position())
            more = GtidSet.parse(f"{place.gtid},{sources[-1]}:5000")
            ahead = LogPosition(elsewhere, EntryPosition("mysql-bin.000077", 99, gtid=str(more)))
            with pytest.raises(TransactionsMissing, match=f": {sources[-1]}:5000;"):
                source.resume([ahead])
