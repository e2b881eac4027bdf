"""gh-ost and pt-online-schema-change, statement for statement, with writes in between: what is
decoded without row metadata, put together, is what SELECT shows, under each moment's names."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ray_canal.config import SourceConfig
from ray_canal.model.position import EntryPosition
from ray_canal.render import changes
from ray_canal.schema.event_parser import EventParser
from ray_canal.schema.keeper import SchemaKeeper
from ray_canal.schema.registry import SchemaRegistry
from ray_canal.source.catalog_tables import CatalogTables
from ray_canal.views.arrow import batches
from tests.integration.test_schema_history import chunks
from tests.servers import Server

CREATE = (
    "CREATE TABLE osc.t (id INT NOT NULL AUTO_INCREMENT, a VARCHAR(30) CHARACTER SET latin1,"
    " b INT, c INT UNSIGNED, PRIMARY KEY (id)) DEFAULT CHARSET=utf8mb4"
)
ALTER = (
    "add column extra varchar(20) not null default 'né' after id, drop column b,"
    " modify column c bigint"
)
SHARED = "`id`, `a`, `c`"  # columns that the table has before and after
Stores = dict[str, dict[int, dict[str, Any]]]


class Writer:
    """An application that knows of nothing: each call changes a few rows of t."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.next = 1

    def __call__(self) -> None:
        first, self.next = self.next, self.next + 4
        values = ", ".join(f"({first + k}, 'é{first + k}', {k * 1000})" for k in range(4))
        self.server.execute(
            f"INSERT INTO osc.t (id, a, c) VALUES {values}",
            f"UPDATE osc.t SET a = CONCAT(a, '!'), c = c + 1 WHERE id IN ({first}, {first // 2})",
            f"DELETE FROM osc.t WHERE id = {first + 1}",
            f"UPDATE osc.t SET id = id + 100000 WHERE id = {first + 2}",
        )


@contextlib.contextmanager
def in_a_thread(run: Callable[[], Any]) -> Iterator[threading.Thread]:
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    yield thread
    thread.join(120)
    assert not thread.is_alive()


def wait_for_lock(server: Server, word: str) -> None:
    """Until a statement with this word waits for a table's lock."""
    deadline = time.monotonic() + 180
    while True:
        shown = server.execute("SHOW FULL PROCESSLIST")
        if any(word in str(row[7]) and "metadata lock" in str(row[6]) for row in shown):
            return
        assert time.monotonic() < deadline, shown
        time.sleep(0.02)


def hint(server: Server, name: str, value: str) -> None:
    server.execute(
        "insert /* gh-ost */ into `osc`.`_t_ghc` (id, hint, value) values (NULLIF(0, 0),"
        f" '{name}', '{value}') on duplicate key update last_update=NOW(), value=VALUES(value)"
    )


def gh_ost(server: Server, write: Writer) -> None:
    server.execute(
        "drop /* gh-ost */ table if exists `osc`.`_t_ghc`",
        "create /* gh-ost */ table `osc`.`_t_ghc` (\n\t\t\tid bigint auto_increment,\n"
        "\t\t\tlast_update timestamp not null DEFAULT CURRENT_TIMESTAMP ON UPDATE"
        " CURRENT_TIMESTAMP,\n\t\t\thint varchar(64) charset ascii not null,\n"
        "\t\t\tvalue varchar(255) charset ascii not null,\n\t\t\tprimary key(id),\n"
        "\t\t\tunique key hint_uidx(hint)\n\t\t) auto_increment=256\n\t",
        "create /* gh-ost */ table `osc`.`_t_gho` like `osc`.`t`",
        f"alter /* gh-ost */ table `osc`.`_t_gho` {ALTER}",
    )
    hint(server, "state", "GhostTableMigrated")
    write()
    server.execute(
        f"insert /* gh-ost `osc`.`t` */ ignore into `osc`.`_t_gho` ({SHARED})\n      (select"
        f" {SHARED} from `osc`.`t` force index (`PRIMARY`)\n        where (((`id` > _binary'0') or"
        " ((`id` = _binary'0'))))  lock in share mode\n      )"
    )
    hint(server, "copy iteration 0 at 1", "Copy: 4/4")
    write()
    # What gh-ost reads from the log it writes to its own table: here all of it at once.
    catch_up = (
        f"replace /* gh-ost `osc`.`_t_gho` */ into `osc`.`_t_gho` ({SHARED}) select {SHARED} from"
        " `osc`.`t`",
        "delete /* gh-ost `osc`.`_t_gho` */ from `osc`.`_t_gho` where `id` not in (select `id` from"
        " `osc`.`t`)",
    )
    server.execute(*catch_up)
    server.execute(
        "create /* gh-ost */ table `osc`.`_t_del` (\n\t\t\tid int auto_increment primary key\n"
        "\t\t) engine=InnoDB comment='ghost-cut-over-sentry'"
    )
    rename = (
        "rename /* gh-ost */ table `osc`.`t` to `osc`.`_t_del`, `osc`.`_t_gho` to `osc`.`t`"
    )
    with contextlib.closing(server.connect()) as lock, lock.cursor() as cursor:
        cursor.execute("lock /* gh-ost */ tables `osc`.`t` write, `osc`.`_t_del` write")
        with in_a_thread(write):
            wait_for_lock(server, "INSERT")
            with in_a_thread(lambda: server.execute(rename)):
                wait_for_lock(server, "rename")
                cursor.execute("drop /* gh-ost */ table if exists `osc`.`_t_del`")
                cursor.execute("unlock tables")
    server.execute(
        "drop /* gh-ost */ table if exists `osc`.`_t_ghc`",
        "drop /* gh-ost */ table if exists `osc`.`_t_del`",
    )


def pt_online_schema_change(server: Server, write: Writer) -> None:
    create = str(server.execute("SHOW CREATE TABLE `osc`.`t`")[0][1])
    handler = "DECLARE CONTINUE HANDLER FOR 1146 begin end;"
    replace = (
        f"REPLACE INTO `osc`.`_t_new` ({SHARED}) VALUES (NEW.`id`, NEW.`a`, NEW.`c`);"
    )
    delete = "DELETE IGNORE FROM `osc`.`_t_new` WHERE"
    server.execute(
        create.replace("CREATE TABLE `t`", "CREATE TABLE `osc`.`_t_new`"),
        f"ALTER TABLE `osc`.`_t_new` {ALTER}",
    )
    write()
    for name, when, body in (
        ("del", "DELETE", f"{delete} `osc`.`_t_new`.`id` <=> OLD.`id`;"),
        ("upd", "UPDATE", f"{delete} !(OLD.`id` <=> NEW.`id`) AND `osc`.`_t_new`.`id` <=> OLD.`id`;"
                          f" {replace}"),
        ("ins", "INSERT", replace),
    ):  # fmt: skip
        server.execute(
            f"CREATE TRIGGER `osc`.`pt_osc_osc_t_{name}` AFTER {when} ON `osc`.`t` FOR EACH ROW"
            f" BEGIN {handler} {body} END "
        )
        write()
    server.execute(
        f"INSERT LOW_PRIORITY IGNORE INTO `osc`.`_t_new` ({SHARED}) SELECT {SHARED} FROM `osc`.`t`"
        " LOCK IN SHARE MODE /*pt-online-schema-change 4242 copy table*/"
    )
    write()
    server.execute(
        "ANALYZE TABLE `osc`.`_t_new` /* pt-online-schema-change */",
        "RENAME TABLE `osc`.`t` TO `osc`.`_t_old`, `osc`.`_t_new` TO `osc`.`t`",
    )
    write()
    server.execute(
        "DROP TABLE IF EXISTS `osc`.`_t_old`",
        *(f"DROP TRIGGER IF EXISTS `osc`.`pt_osc_osc_t_{n}`" for n in ("del", "upd", "ins")),
    )


@pytest.mark.parametrize(
    ("kind", "tool"),
    [
        ("mysql97", gh_ost),
        ("mysql56", pt_online_schema_change),
        ("mariadb", gh_ost),
        pytest.param("mysql56", gh_ost, marks=pytest.mark.soak),
        pytest.param("mysql97", pt_online_schema_change, marks=pytest.mark.soak),
        pytest.param("mariadb", pt_online_schema_change, marks=pytest.mark.soak),
    ],
)
def test_a_cut_over(
    kind: str, tool: Callable[[Server, Writer], None], request: pytest.FixtureRequest
) -> None:
    server: Server = request.getfixturevalue(kind)
    server.execute("DROP DATABASE IF EXISTS osc", "CREATE DATABASE osc CHARACTER SET utf8mb4")
    server.execute(CREATE, "FLUSH BINARY LOGS")
    file, start = server.position()
    keeper, write = SchemaKeeper(None), Writer(server)
    with server.without_row_metadata():
        catalog = CatalogTables(SourceConfig(address=server.address, username="root"))
        begun = SchemaKeeper(catalog)
        records = begun.begin([], "server", EntryPosition(file, start))
        catalog.close()
        before = column_names(server)
        write()
        tool(server, write)
        write()
    after = column_names(server)
    assert (before, after) == (["id", "a", "b", "c"], ["id", "extra", "a", "c"])
    keeper.begin(records, begun.server, EntryPosition(file, start))
    stores, seen = replayed(server, file, start, keeper)
    assert seen == [before, after]
    assert stores.keys() == {"t"}
    assert stores["t"] == selected(server)
    assert write.next > 12


def column_names(server: Server) -> list[str]:
    found = server.execute(
        "SELECT COLUMN_NAME FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = 'osc' AND"
        " TABLE_NAME = 't' ORDER BY ORDINAL_POSITION"
    )
    return [str(name) for (name,) in found]


def selected(server: Server) -> dict[int, dict[str, Any]]:
    names = column_names(server)
    rows = server.execute(f"SELECT {', '.join(names)} FROM osc.t")
    return {row[0]: dict(zip(names, row, strict=True)) for row in rows}


def replayed(
    server: Server, file: str, start: int, keeper: SchemaKeeper
) -> tuple[Stores, list[list[str]]]:
    """What the log leaves in each table by its name, and the column names that t had, in order."""
    parser = EventParser(SchemaRegistry(), keeper)
    stores: Stores = {"t": {}}
    seen: list[list[str]] = []
    for chunk in chunks(server.datadir / file, start):
        info, decoded = parser.decode_chunk(chunk)
        assert info.failure is None, info.failure
        for change in changes(list(batches(decoded, 0, len(info.entries)))):
            if change["schema"] == "osc":
                apply(stores, change, seen)
        for change in decoded.layout.changes:  # a chunk ends behind its DDL
            assert not change.problem, change
        follow(stores, [(c.table, c.meta is not None) for c in decoded.layout.changes])
    return stores, seen


def apply(stores: Stores, change: dict[str, Any], seen: list[list[str]]) -> None:
    rows = stores.setdefault(change["table"], {})
    if change["before"] is not None:
        rows.pop(change["before"]["id"])
    if change["after"] is not None:
        rows[change["after"]["id"]] = change["after"]
        names = list(change["after"])
        if change["table"] == "t" and (not seen or seen[-1] != names):
            seen.append(names)


def follow(stores: Stores, changed: list[tuple[str, bool]]) -> None:
    """What tables a DDL leaves: the new one takes its rows to its new name."""
    there = dict(changed)
    new = next((name for name in ("_t_gho", "_t_new") if there.get(name) is False), None)
    if new is not None and there.get("t"):
        stores["t"] = stores.pop(new)
    for name, exists in changed:
        if not exists:
            stores.pop(name, None)
