"""The tables that are read, of eight columns and of sixty."""

from __future__ import annotations

from tests.servers import Server

_ITEM = (
    "create table bench.item (id int primary key, a int, b bigint, price decimal(12,2), "
    "at datetime, name varchar(100), note varchar(60), flag tinyint)"
)
_KINDS = {
    "int": "n", "bigint": "n * 1000003", "double": "n / 7", "decimal(14,4)": "n / 100",
    "datetime(6)": "'2026-01-01 10:00:00.123456'", "varchar(40)": "concat('text ', n)",
}  # fmt: skip
_WIDE = [list(_KINDS)[n % len(_KINDS)] for n in range(59)]
_WIDE_PART = 4  # as many rows has the narrow table
BUSY = "create table bench.busy (id bigint primary key, owner int, name varchar(30))"

_NARROW = "create table if not exists bench.narrow (id int primary key, v int)"
_NARROW_PART = 1 << 20


def rows_of(table: str, rows: int) -> int:
    """How many rows a table has where the narrow one has `rows`."""
    return rows if table == "item" else rows // _WIDE_PART


def fill(server: Server, rows: int) -> None:
    """Make all tables anew."""
    columns = ", ".join(f"c{n} {kind}" for n, kind in enumerate(_WIDE))
    server.execute(
        "drop database if exists bench", "create database bench", _ITEM, BUSY,
        f"create table bench.wide (id int primary key, {columns})",
    )  # fmt: skip
    digits = "(" + " union all ".join(f"select {n} n" for n in range(10)) + ")"
    count = len(str(max(rows - 1, 1)))
    numbers = " + ".join(f"{10**k} * d{k}.n" for k in range(count))
    joined = ", ".join(f"{digits} d{k}" for k in range(count))
    source = f"(select {numbers} as n from {joined}) x"
    values = ", ".join(_KINDS[kind] for kind in _WIDE)
    server.execute(
        "set session sql_log_bin = 0",
        "insert into bench.item select n, n * 7, n * 1000003, n / 100, '2026-01-01 10:00:00', "
        "concat('name of number ', n, ' and more text'), repeat('x', n % 50), n % 2 "
        f"from {source} where n < {rows}",
        f"insert into bench.wide select n, {values} from {source} where n < "
        f"{rows_of('wide', rows)}",
        "analyze table bench.item, bench.wide",
    )  # fmt: skip


def fill_narrow(server: Server, rows: int) -> None:
    """Let the table of two columns have so many rows, or more: by doubling, then a million each."""
    server.execute("create database if not exists bench", _NARROW)
    server.execute("alter instance disable innodb redo_log")
    [[have]] = server.execute("select coalesce(max(id) + 1, 0) from bench.narrow")
    while have < rows:
        more = min(rows - have, max(have, 1), _NARROW_PART)
        source = f"select id + {have}, id * 7 from bench.narrow where id < {more}"
        server.execute(
            "set session sql_log_bin = 0",
            f"insert into bench.narrow {source if have else 'values (0, 0)'}",
        )
        have += more
    server.execute("alter instance enable innodb redo_log", "analyze table bench.narrow")
