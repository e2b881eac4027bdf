"""Random tables in a mirror: after each few statements it is what SELECT shows at the source."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import pymysql
import pytest

from tests.in_process_sink import running, until
from tests.integration.test_mysql_mirror import Shop, shop_of
from tests.random_columns import Kind
from tests.random_mirror import NO_MODE, MirroredTable, MirroredTables
from tests.servers import Server

SEEDS = int(os.environ.get("RAY_CANAL_SEEDS", "20"))


def shown(kind: Kind, value: Any) -> Any:
    """A value as a mirror can have it: an irregular date, and an ENUM's error, are NULL there."""
    value = kind.received(value)
    if kind.ddl.startswith("enum") and not value:
        return None
    return value if value is None or kind.regular(value) else None


def held(server: Server, database: str, table: MirroredTable) -> list[Any]:
    kinds = list(table.columns.values())
    rows = server.execute("set time_zone = '+00:00'", table.select.format(database))
    return [
        [*row[:2], *(shown(k, v) for k, v in zip(kinds, row[2:], strict=True))] for row in rows
    ]


def differs(shop: Shop, tables: list[MirroredTable]) -> str:
    """Return the first table whose rows or columns are not the source's."""
    for table in tables:
        try:
            mirrored = held(shop.server, shop.copy, table)
            if set(shop.columns(table.name)) != {"id", "k", *table.columns}:
                return f"{table.name}: {shop.columns(table.name)}, not {[*table.columns]}"
        except pymysql.MySQLError as error:  # it is not there yet
            return f"{table.name}: {error}"
        for mine, its in zip(held(shop.server, shop.source, table), mirrored, strict=False):
            if mine != its:
                kinds = ("id", "k", *(kind.ddl[:80] for kind in table.columns.values()))
                compared = zip(kinds, mine, its, strict=True)
                return f"{table.name}: {[each for each in compared if each[1] != each[2]]}"
        if len(mirrored) != len(table.ids):
            return f"{table.name}: {len(mirrored)} rows of {len(table.ids)}"
    return ""


def live(shop: Shop, seed: int, steps: int) -> None:
    made = MirroredTables(seed, shop.server.kind)
    runner = shop.mirror(schema_change="evolve")
    with shop.destination(), running(runner):
        shop.run(NO_MODE, *(table.create for table in made.tables))
        for step in range(steps):
            shop.run("set names utf8mb4, time_zone = '+00:00'", NO_MODE, *made.statements())
            if step % 8 == 7:
                with contextlib.suppress(AssertionError):
                    until(lambda: runner.status.state == "failed" or not differs(shop, made.tables))
                assert not (found := differs(shop, made.tables)), f"seed {seed}: {found}"


@pytest.mark.soak
@pytest.mark.timeout(60 * SEEDS)
@pytest.mark.parametrize("kind", ["mysql97", "mysql56", "mariadb"])
def test_many_lives(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    server: Server = request.getfixturevalue(kind)
    for seed in range(SEEDS):
        live_once(server, tmp_path / str(seed), seed, steps=32)


def live_once(server: Server, folder: Path, seed: int, steps: int) -> None:
    folder.mkdir()
    with contextlib.contextmanager(shop_of)(server, folder) as shop:
        live(shop, seed, steps)


def test_one_life(mysql97: Server, tmp_path: Path) -> None:
    live_once(mysql97, tmp_path / "life", 7, steps=16)
