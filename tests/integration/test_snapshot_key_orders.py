"""Ranges of keys that are hard to compare: together they are the table's rows, each once.

Servers compare a key with a border in one way and keep its index in another one. Where these two
disagree rows would be in no range: that is refused by name. `make soak-snapshot` tries every
collation of a server; with one the refusal is switched off, so that the judge is seen to fail.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from typing import Any
from unittest import mock

import pytest

from ray_canal.errors import ConfigError
from ray_canal.snapshot import tables
from ray_canal.snapshot.columns import selection
from ray_canal.snapshot.key_ranges import Ask, KeyRanges
from ray_canal.snapshot.read import read_snapshot
from ray_canal.snapshot.session import close, open_session
from ray_canal.snapshot.tables import SnapshotTable, choose_tables
from ray_canal.source.catalog import Catalog
from ray_canal.source.catalog_tables import CatalogTables
from ray_canal.source.connection import query
from tests.integration.test_snapshot import config_of
from tests.servers import Server

PARTS = (
    *" aAbzZ01-'\\%_~\0\t\x01\x1f\x7f\x80\xa0\xadßæéeäøþÿİıiI", "ss", "ae", "oe", "th", "ch", "ll",
    "dz", "lj", "Lj", "nj", "\u0301", "\u200d", "\u200b", "\ufeff", "中", "日", "あ", "ア", "ー",
    "가", "ᄀ", "ก", "\u0e40", "א", "ا", "\u0651", "😀", "𠀀", "\U0010fffd", "\ue000", "Ъ", "ž",
)  # fmt: skip
"""Blanks, controls, contractions, marks, what some collations ignore, characters of all planes."""
KEYS = {
    "decimal(9,4)": ("-0.0001", "0", "0.0001", "-99999.9999", "99999.9999", "1"),
    "float": ("-0.0", "0.1", "-0.1", "1e38", "-1e-38", "16777217", "3.4e38"),
    "double": ("-0e0", "0.1", "-0.1", "1e308", "5e-324", "9007199254740993", "-1e300"),
    "year": ("0", "1901", "2155", "1970", "2069", "2070"),
    "time(6)": ("'-838:59:59'", "'-00:00:00.000001'", "'0:0:0'", "'838:59:59'"),
    "timestamp(6)": ("'1970-01-01 00:00:01'", "'2038-01-19 03:14:07.999999'", "'2025-10-26'"),
    "date": ("'0000-00-00'", "'2025-02-31'", "'9999-12-31'", "'2025-00-00'", "'2025-01-00'"),
    "bit(64)": ("0", "1", "b'1'", "18446744073709551615", "9223372036854775808"),
    "enum('z','','a','10','9')": ("'z'", "'a'", "'10'", "'9'", "'no member'"),
    "set('z','a','b')": ("''", "'z'", "'a,z'", "'b'", "'a,b,z'"),
    "binary(4)": ("''", "'a'", "'a '", "X'61000000'", "X'61FF'", "X'00'", "X'FF'"),
    "varbinary(9)": ("''", "'a'", "'a '", "X'6100'", "X'61FF'", "X'00'", "X'FF'"),
}


def texts(r: random.Random, count: int) -> list[str]:
    found = set(PARTS)
    while len(found) < count:
        found.add("".join(r.choice(PARTS) for _ in range(r.randrange(1, 4))))
    return sorted(found)


def lost(server: Server, name: str, sizes: Sequence[int]) -> list[str]:
    """Read a table `name`.t by ranges of so many rows; say what is wrong."""
    with table_of(server, name) as (table, ask):
        if not table.key:
            return [table.keyless]
        ranges = KeyRanges(table, selection(table.meta), ask)
        expected = sorted(row["id"] for row in ask(f"SELECT id FROM {name}.t"))
        upto, wrong = ranges.greatest(), []
        assert upto is not None
        for size in sizes:
            rows = partial(int, size)
            conditions = [one.condition for one in ranges.ranges(None, upto, rows)]
            found: list[Any] = []
            for condition in conditions:
                source = f"{name}.t FORCE INDEX (`{table.index}`)"
                found += [row["id"] for row in ask(f"SELECT id FROM {source} WHERE {condition}")]
            if sorted(found) != expected:
                wrong.append(f"by {size}: {len(found)} of {len(expected)}, {len(conditions)} parts")
        return wrong


@contextmanager
def table_of(server: Server, name: str) -> Iterator[tuple[SnapshotTable, Ask]]:
    """The table `name`.t, and a connection to ask of it."""
    config = config_of(server).destination("snap").source
    with closing(Catalog(config)) as catalog, closing(CatalogTables(config)) as described:
        [table] = choose_tables(catalog, described, rf"{name}\.t").tables
        session = open_session(config, catalog)
    try:
        yield table, partial(query, session, config)
    finally:
        close(session)


def of_collation(server: Server, name: str, kind: str, charset: str, collation: str) -> list[str]:
    values = texts(random.Random(collation), 100)
    rows = ", ".join(
        f"(CONVERT(_utf8mb4 X'{text.encode().hex()}' USING {charset}), {n})"
        for n, text in enumerate(values)
    )
    server.execute(
        f"DROP TABLE IF EXISTS {name}.t", "SET SESSION sql_mode = ''",
        f"CREATE TABLE {name}.t (k {kind} CHARACTER SET {charset} COLLATE {collation} NOT NULL "
        "PRIMARY KEY, id INT NOT NULL)",
        f"INSERT IGNORE INTO {name}.t VALUES {rows}",
    )  # fmt: skip
    return lost(server, name, (1, 7))


def collations(server: Server) -> Iterator[tuple[str, str]]:
    """(character set, collation) of a server, all of them."""
    for row in server.execute("SHOW COLLATION"):
        name, charset = str(row[0]), row[1]
        if charset is None:  # MariaDB: of every Unicode character set
            yield from ((each, f"{each}_{name}") for each in ("utf8mb4", "ucs2", "utf16", "utf32"))
        elif name != "binary":
            yield str(charset), name


def is_refused(server: Server, kind: str, collation: str) -> bool:
    return server.is_mariadb and kind.startswith("char") and "_nopad_" in collation


@pytest.mark.soak
def test_texts_of_every_collation(server: Server) -> None:
    wrong, tried = [], 0
    with server.with_database("key_orders"):
        for charset, collation in collations(server):
            for kind in ("char(9)", "varchar(9)"):
                tried += 1
                found = of_collation(server, "key_orders", kind, charset, collation)
                if bool(found) != is_refused(server, kind, collation):
                    wrong.append(f"{kind} {collation}: {found}")
    assert not wrong, "\n".join(wrong)
    assert tried > 200


def test_mariadb_keeps_chars_that_do_not_pad_in_another_order(mariadb: Server) -> None:
    """So they are refused, unless there is another key."""
    config, collation = config_of(mariadb), "utf8mb4_nopad_bin"
    with mariadb.with_database("key_orders"):
        with mock.patch.object(tables, "_in_another_order", return_value=""):
            assert of_collation(mariadb, "key_orders", "char(9)", "utf8mb4", collation)
        with pytest.raises(ConfigError, match=rf"orders\.t: its key has k, a CHAR .*{collation}"):
            read_snapshot(config, "snap", tables=r"key_orders\.t", mode="keyed")
        mariadb.execute("ALTER TABLE key_orders.t ADD UNIQUE KEY by_id (id)")
        assert lost(mariadb, "key_orders", (7,)) == []
        assert of_collation(mariadb, "key_orders", "varchar(9)", "utf8mb4", collation) == []


def test_mariadb_compares_years_of_two_digits_otherwise_than_it_keeps_them(
    mariadb: Server,
) -> None:
    with mariadb.with_database("key_orders"):
        mariadb.execute(
            "CREATE TABLE key_orders.t (k YEAR(2) NOT NULL PRIMARY KEY, id INT NOT NULL)",
            "INSERT INTO key_orders.t VALUES (0, 1), (1, 2), (69, 3), (70, 4), (99, 5)",
        )
        assert "has k, a YEAR(2), which" in lost(mariadb, "key_orders", (1,))[0]
        with mock.patch.object(tables, "_in_another_order", return_value=""):
            assert lost(mariadb, "key_orders", (1,)) == ["by 1: 3 of 5, 3 parts"]
        mariadb.execute("ALTER TABLE key_orders.t MODIFY k YEAR(4) NOT NULL")
        assert lost(mariadb, "key_orders", (1, 2)) == []


@pytest.mark.parametrize("key", ["a, b DESC, id", "a DESC, b", "a, b DESC", "a DESC, b DESC"])
@pytest.mark.parametrize("kind", ["PRIMARY KEY", "UNIQUE KEY of_both"])
def test_keys_that_descend_are_read_in_the_order_of_their_index(
    server: Server, kind: str, key: str
) -> None:
    """What is left of the table is not sorted for each border: MySQL 5.6 has all keys ascend."""
    rows = ", ".join(f"({n // 30}, 'b{n % 30:02}', {n})" for n in range(600))
    with server.with_database("key_orders"):
        server.execute(
            "CREATE TABLE key_orders.t (a SMALLINT NOT NULL, b VARCHAR(9) NOT NULL, "
            f"id INT NOT NULL, {kind} ({key}))",
            f"INSERT INTO key_orders.t VALUES {rows}", "ANALYZE TABLE key_orders.t",
        )  # fmt: skip
        assert lost(server, "key_orders", (1, 7, 100)) == []
        with table_of(server, "key_orders") as (table, ask):
            assert sorted_by(table, ask) == []


def sorted_by(table: SnapshotTable, ask: Ask) -> list[str]:
    """Walk a table by ranges of its key; return the questions for which a server sorts."""
    asked: list[str] = []

    def noted(sql: str) -> list[dict[str, Any]]:
        asked.append(sql)
        return ask(sql)

    ranges = KeyRanges(table, selection(table.meta), noted)
    upto = ranges.greatest()
    assert upto is not None
    assert len(list(ranges.ranges(None, upto, partial(int, 100)))) >= 6
    plans = [(sql, ask(f"EXPLAIN FORMAT=TRADITIONAL {sql}")[0]) for sql in asked]
    return [f"{sql}: {plan['Extra']}" for sql, plan in plans if "filesort" in str(plan["Extra"])]


@pytest.mark.soak
@pytest.mark.parametrize("kind", KEYS)
def test_other_keys_alone_and_with_others(server: Server, kind: str) -> None:
    rows = [f"({value}, {n})" for n, value in enumerate(KEYS[kind])]
    with server.with_database("key_orders"):
        for key in ("k", "k, id", "id, k"):
            server.execute(
                "DROP TABLE IF EXISTS key_orders.t",
                "SET SESSION sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'",
                f"CREATE TABLE key_orders.t (k {kind} NOT NULL, id INT NOT NULL, UNIQUE ({key}))",
                f"INSERT IGNORE INTO key_orders.t VALUES {', '.join(rows)}",
            )
            assert lost(server, "key_orders", (1, 2)) == [], key
