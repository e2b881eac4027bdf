"""Types that random tables do not reach: old temporal formats, hidden and generated columns, widest
tables, longest rows, deepest documents; on real servers."""

from __future__ import annotations

import datetime as dt
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ray_canal.canal.generated import EntryProtocol_pb2 as pb
from ray_canal.offline import decode_chunks, decode_files
from ray_canal.views.entries import iter_entries
from ray_canal.views.mysql_texts import fraction_digits, mysql_texts
from tests.servers import Server, start


def received(server: Server, *statements: str) -> dict[str, list[dict[str, Any]]]:
    """What the statements wrote: table -> after images (before images of a DELETE), in order."""
    server.execute("flush binary logs")
    first = len(server.binlogs()) - 1
    server.execute(*statements)
    server.execute("flush binary logs")
    found: dict[str, list[dict[str, Any]]] = {}
    for batch in decode_files(server.binlogs()[first:-1]):
        name = batch.schema.metadata[b"canal.table"].decode()
        rows = batch.to_pylist()
        found.setdefault(name, []).extend(row["after"] or row["before"] for row in rows)
    return found


@pytest.fixture(autouse=True)
def database(request: pytest.FixtureRequest) -> None:
    for name in ("server", "mysql97", "mariadb"):
        if name in request.fixturenames:
            request.getfixturevalue(name).execute("create database if not exists types")
            return


def test_generated_and_invisible_columns(mysql97: Server) -> None:
    found = received(
        mysql97,
        "create table types.g (id int primary key, v int as (id * 2) virtual, "
        "s varchar(9) as (concat('n', id)) stored, h int invisible default 7, "
        "f float generated always as (id / 2) virtual)",
        "insert into types.g (id) values (1), (2)",
        "update types.g set id = 3 where id = 2",
    )
    assert found["g"][0] == {"id": 1, "v": 2, "s": "n1", "h": 7, "f": 0.5}
    assert found["g"][-1] == {"id": 3, "v": 6, "s": "n3", "h": 7, "f": 1.5}


def test_mariadb_hidden_things(mariadb: Server) -> None:
    found = received(
        mariadb,
        "create table types.h (id int primary key, p int as (id + 1) persistent, "
        "w int as (id * 2) virtual, i int invisible default 4, j json, u uuid)",
        "insert into types.h (id, j, u) values (1, '{\"a\":  1}', uuid())",
        "create table types.sv (id int primary key, v int) with system versioning",
        "insert into types.sv values (1, 1)",
        "update types.sv set v = 2",
        "create sequence types.sq",
        "select nextval(types.sq)",
    )
    [uuid] = mariadb.execute("select cast(u as char) from types.h")[0]
    assert found["h"] == [{"id": 1, "p": 2, "w": 2, "i": 4, "j": '{"a":  1}', "u": uuid}]
    assert [row["v"] for row in found["sv"]] == [1, 2, 1]  # the old version goes to the history
    last_s = 2**32 - 1 if mariadb.build == "mariadb118" else 2**31 - 1
    far = dt.datetime.fromtimestamp(last_s, dt.timezone.utc).replace(microsecond=999999)
    assert found["sv"][0]["row_end"] == far
    assert found["sv"][2]["row_end"] == found["sv"][1]["row_start"] < far
    assert [row["next_not_cached_value"] for row in found["sq"]] == [1001]


@pytest.mark.parametrize("kind", ["mysql97", "mariadb"])
def test_labels_in_the_set_binary(kind: str, request: pytest.FixtureRequest) -> None:
    """With row metadata and without it: as SELECT shows them."""
    server = request.getfixturevalue(kind)
    server.execute("create database if not exists types")
    found = received(server, *_binary_labels("known"))
    with server.without_row_metadata():
        found |= received(server, *_binary_labels("bare"))
    rows = [{"id": 1, "e": "é ", "s": ["漢", "ü", "b"]}, {"id": 2, "e": "a", "s": []}]
    assert found == {"known": rows, "bare": rows}


def _binary_labels(table: str) -> tuple[str, ...]:
    return (
        f"create table types.{table} (id int primary key, e enum('a', 'é ') character set binary, "
        "s set('漢', 'ü', 'b') character set binary)",
        f"insert into types.{table} values (1, 2, 7), (2, 1, 0)",
    )


LONG_KEYS = (
    "create table types.lk (id int primary key, a int, b int, c int, d int, e int, f int, "
    "t text unique, v varchar(900), unique vu (v))",
    "insert into types.lk values (1, 1, 2, 3, 4, 5, 6, 'one', 'x')",
    "insert into types.lk values (2, 1, 2, 3, 4, 5, 6, null, 'y')",
    "update types.lk set t = 'two', f = 7 where id = 2",
    "delete from types.lk where id = 1",
    "alter table types.lk drop index vu, drop column a",
    "update types.lk set f = 9",
    "alter table types.lk add unique (v(9)), drop key t",
    "insert into types.lk values (3, 2, 3, 4, 5, 6, 'end', 'z')",
    "create table types.lv (id int primary key, t text unique) with system versioning",
    "insert into types.lv values (1, 'x')",
    "create table types.named (id int, DB_ROW_HASH_1 bigint unsigned)",
    "insert into types.named values (1, 2)",
)  # fmt: skip


@pytest.mark.parametrize("image", ["FULL", "MINIMAL", "NOBLOB"])
@pytest.mark.parametrize("metadata", ["FULL", "NO_LOG"])
def test_hashes_of_long_unique_keys_are_not_shown(
    mariadb: Server, image: str, metadata: str
) -> None:
    """MariaDB's hidden columns are in the rows alone: with and without names in the log."""
    mariadb.execute("drop table if exists types.lk, types.lv, types.named")
    with (
        mariadb.with_global("binlog_row_metadata", metadata),
        mariadb.with_global("binlog_row_image", image),
    ):
        mariadb.execute("flush binary logs")
        first = len(mariadb.binlogs()) - 1
        mariadb.execute(*LONG_KEYS)
        mariadb.execute("flush binary logs")
    files = mariadb.binlogs()[first:-1]
    rows: dict[str, list[Any]] = {}
    for batch in decode_files(files):
        name = batch.schema.metadata[b"canal.table"].decode()
        rows.setdefault(name, []).extend(
            (row["after"] or row["before"], row["event_type"]) for row in batch.to_pylist()
        )
    images = [row for row, _ in rows["lk"]]
    columns = ["id", "a", "b", "c", "d", "e", "f", "t", "v"]
    assert [list(row) for row in images] == [columns] * 4 + [columns[:1] + columns[2:]] * 2
    assert images[0] == dict(zip(columns, (1, 1, 2, 3, 4, 5, 6, "one", "x"), strict=True))
    assert (images[2]["f"], images[2]["t"]) == (7, "two")
    assert [row["f"] for row in images[4:]] == [9, 6]
    (versioned,) = [row for row, _ in rows["lv"]]
    assert list(versioned) == ["id", "t", "row_start", "row_end"]
    assert [row for row, _ in rows["named"]] == [{"id": 1, "DB_ROW_HASH_1": 2}]
    changed = [c for c in entries_of(files) if c.header.tableName in ("lk", "lv")]
    keys = {
        (entry.header.tableName, column.name)
        for entry in changed
        for row in pb.RowChange.FromString(entry.storeValue).rowDatas
        for column in (*row.beforeColumns, *row.afterColumns)
        if column.isKey
    }
    assert keys == {("lk", "id"), ("lv", "id"), ("lv", "row_end")}
    update = pb.RowChange.FromString(changed[2].storeValue).rowDatas[0]
    assert [(c.name, c.value) for c in update.afterColumns if c.updated] == [
        ("f", "7"), ("t", "two")
    ]  # fmt: skip
    assert len(update.beforeColumns) == {"FULL": 9, "MINIMAL": 1, "NOBLOB": 8}[image]


def entries_of(files: list[Path]) -> list[pb.Entry]:
    """Entries of rows, in order."""
    found = [
        entry
        for info, chunk in decode_chunks(files)
        for entry in iter_entries(chunk, 0, len(info.entries))
    ]
    changes = [e for e in found if e.entryType == pb.ROWDATA]
    return [e for e in changes if not pb.RowChange.FromString(e.storeValue).isDdl]


@pytest.fixture(scope="module")
def old_mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """MariaDB with the temporal formats from before MySQL 5.6."""
    options = {"mysql56-temporal-format": "OFF"}
    with start("mariadb", tmp_path_factory.mktemp("old"), options) as server:
        yield server


def test_old_temporal_formats(old_mariadb: Server) -> None:
    old_mariadb.execute("create database if not exists types")
    rows = [
        ("'2026-10-01 23:59:59'", "'1970-01-01 00:00:01'", "'838:59:59'"),
        ("'0000-00-00 00:00:00'", "'0000-00-00 00:00:00'", "'-838:59:59'"),
        ("'9999-12-31 00:00:00'", "'2038-01-19 03:14:07'", "'-00:00:01'"),
    ]
    found = received(
        old_mariadb,
        "create table types.o (d datetime, t timestamp null, s time, e date)",
        *(
            f"set statement time_zone='+00:00', sql_mode='' for "
            f"insert into types.o values ({', '.join(row)}, left({row[0]}, 10))"
            for row in rows
        ),
    )
    assert [row["d"] for row in found["o"]] == [
        dt.datetime(2026, 10, 1, 23, 59, 59), None, dt.datetime(9999, 12, 31)
    ]  # fmt: skip
    assert [row["e"] for row in found["o"]] == [dt.date(2026, 10, 1), None, dt.date(9999, 12, 31)]
    assert [row["t"] and row["t"].timestamp() for row in found["o"]] == [1, None, 2**31 - 1]
    most = dt.timedelta(hours=838, minutes=59, seconds=59)
    assert [row["s"] for row in found["o"]] == [most, -most, -dt.timedelta(seconds=1)]


@pytest.mark.parametrize("digits", range(1, 7))
def test_old_temporal_formats_with_fractions(old_mariadb: Server, digits: int) -> None:
    """MariaDB's own, whose TABLE_MAP does not tell the digits: the DDL in the log does."""
    rng = random.Random(digits)
    name = f"f{digits}"
    rows = []
    for _ in range(30):
        micros = rng.choice([0, 1, 999_999, 500_000, rng.randrange(10**6)])
        day = dt.datetime(1, 1, 1) + dt.timedelta(seconds=rng.randrange(315_537_897_600))
        stamp = dt.datetime(1970, 1, 2) + dt.timedelta(seconds=rng.randrange(2**31 - 10**6))
        span = f"{rng.choice('- ')}{rng.randrange(839)}:{rng.randrange(60)}:{rng.randrange(60)}"
        rows.append([f"{each}.{micros:06d}" for each in (day, stamp, span.strip())])
    rows.append(["0000-00-00", "0000-00-00", "838:59:59.999999"])
    rows.append(["2026-02-00 01:02:03.999999", "1970-01-01 00:00:01", "-838:59:59.999999"])
    values = ",".join(f"('{d}','{s}','{t}',5)" for d, s, t in rows)
    found = received(
        old_mariadb,
        "create database if not exists types",
        f"create table types.{name} (d datetime({digits}), s timestamp({digits}) null, "
        f"t time({digits}), z int)",
        f"set statement time_zone='+00:00', sql_mode='' for insert into types.{name} "
        f"values {values}",
    )[name]
    old_mariadb.execute("set global time_zone='+00:00'")
    wanted = old_mariadb.execute(f"select cast(d as char), cast(s as char), t, z from types.{name}")
    assert len(found) == len(rows)
    for row, (day, stamp, span, z) in zip(found, wanted, strict=True):
        assert (row["t"], row["z"]) == (span, z)
        for ours, text in ((row["d"], day), (row["s"], stamp)):
            shown = ours and f"{ours.year:04d}{ours:-%m-%d %H:%M:%S.%f}"[: 20 + digits]
            assert shown == (None if "-00" in text[:10] else text)


def test_the_widest_table(server: Server, tmp_path: Path) -> None:
    # What fits into a .frm file of the others.
    columns = {"mysql97": 4096, "mariadb": 2600, "mysql56": 1900}[server.kind]
    ddl = ", ".join(f"c{n} tinyint" for n in range(columns))
    values = [n % 251 - 125 if n % 7 else None for n in range(columns)]
    shown = ",".join("null" if v is None else str(v) for v in values)
    server.execute(
        f"create table types.wide ({ddl}) engine=myisam", "set global binlog_row_image='FULL'"
    )
    server.execute("flush binary logs")
    first = len(server.binlogs()) - 1
    server.execute(
        f"insert into types.wide values ({shown})", f"update types.wide set c{columns - 1} = 9"
    )
    server.execute("flush binary logs")
    schema = tmp_path / "schema.sql"
    schema.write_text(f"use types; create table wide ({ddl})")
    batches = list(decode_files(server.binlogs()[first:-1], schema_sql=schema))
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert list(rows[0]["after"].values()) == values
    assert list(rows[1]["before"].values()) == values
    assert list(rows[1]["after"].values()) == [*values[:-1], 9]
    server.execute("drop table types.wide")


def test_the_longest_row(server: Server) -> None:
    size = 64 << 20
    server.execute("set global max_allowed_packet = 256 << 20")
    found = received(
        server,
        "create table types.long_row (id int primary key, b longblob, t longtext "
        "character set latin1) engine=myisam",
        f"insert into types.long_row values (1, repeat(x'00ff41', {size // 3}), "
        f"repeat(_latin1 x'e941', {1 << 20}))",
        "insert into types.long_row values (2, 'b', 't')",
    )
    first, second = found["long_row"]
    assert first["b"] == b"\x00\xffA" * (size // 3)
    assert first["t"] == "éA" * (1 << 20)
    assert second == {"id": 2, "b": b"b", "t": "t"}
    server.execute("drop table types.long_row")


def test_deep_and_large_documents(mysql97: Server) -> None:
    rng = random.Random(5)
    deep: Any = 1
    for level in range(98):
        deep = [deep] if level % 2 else {"k": deep}
    wide = {f"key {n:05d} é": [n, str(n), None, n / 8] for n in range(20_000)}
    large = [rng.randrange(2**63) for _ in range(40_000)]
    texts = [json.dumps(each, ensure_ascii=False) for each in (deep, wide, large)]
    opaque = [0, 57, 58, 114, 115, 70_000]
    connection = mysql97.connect()
    mysql97.execute("create table types.doc (id int primary key, j json)", "flush binary logs")
    first = len(mysql97.binlogs()) - 1
    with connection.cursor() as cursor:
        for number, text in enumerate(texts):
            cursor.execute("insert into types.doc values (%s, %s)", (number, text))
        for number, size in enumerate(opaque, len(texts)):
            value = f"json_array(cast(repeat('x', {size}) as binary), 1)"
            cursor.execute(f"insert into types.doc values ({number}, {value})")
        cursor.execute("select cast(j as char) from types.doc order by id")
        wanted = [row[0] for row in cursor.fetchall()]
    connection.close()
    mysql97.execute("flush binary logs")
    batches = decode_files(mysql97.binlogs()[first:-1])
    assert [row["after"]["j"] for batch in batches for row in batch.to_pylist()] == wanted


def test_text_of_values_is_what_alter_table_makes_of_them(mysql97: Server) -> None:
    chance = random.Random(2711)
    numbers = [chance.uniform(-1, 1) * 10.0 ** chance.randint(-20, 22) for _ in range(150)]
    numbers += [0, 0.1, 1e14, 1e15, 1e-15, -1e-16, 123456.5, 1234565, 1234575, 99999.95, 16777217]
    columns = ["f float", "d double", "t datetime", "t3 datetime(3)", "c time", "c6 time(6)"]
    columns += ["n decimal(20, 10)", "y year", "g date", "s timestamp"]
    moment = "'2026-11-21 05:31:46', '2026-11-21 05:31:46.125', '-838:59:59', '0:00:00.000005'"
    rest = f"{moment}, -0.0000000001, 1999, '1000-01-01', '2026-11-21 05:31:46'"
    rows = ", ".join(f"({number!r}, {number!r}, {rest})" for number in numbers)
    found = received(
        mysql97,
        "set time_zone = '+00:00'",
        f"create table types.told (id int primary key auto_increment, {', '.join(columns)})",
        f"insert into types.told ({', '.join(each.split()[0] for each in columns)}) values {rows}",
    )["told"]
    kinds = {
        "f": pa.float32(), "d": pa.float64(), "n": pa.decimal128(20, 10), "y": pa.uint16(),
        "g": pa.date32(), "s": pa.timestamp("us", "UTC"),
        **dict.fromkeys(["t", "t3"], pa.timestamp("us")),
        **dict.fromkeys(["c", "c6"], pa.duration("us")),
    }  # fmt: skip
    changed = ", ".join(f"modify {name} varchar(60)" for name in kinds)
    mysql97.execute("set time_zone = '+00:00'", f"alter table types.told {changed}")
    for name, kind in kinds.items():
        shown = mysql97.execute(f"select {name} from types.told order by id")
        told = mysql_texts(pa.array([row[name] for row in found], kind))
        assert told.to_pylist() == [row[0] for row in shown], name


TIMES = {f"{kind}{digits}": f"{kind}({digits})" for kind in ("datetime", "timestamp", "time")
         for digits in range(7)}  # fmt: skip


def random_time(chance: random.Random, kind: str) -> str:
    """SQL of a value whose fraction often ends in zeros."""
    fraction = chance.choice([0, 1, 500_000, 120_000, 123_000, chance.randrange(10**6)])
    clock = f"{chance.randrange(60):02}:{chance.randrange(60):02}.{fraction:06}"
    if kind.startswith("time("):
        return f"'{chance.choice(['', '-'])}{chance.randrange(838):02}:{clock}'"
    year = (
        chance.randint(1971, 2037) if kind.startswith("timestamp") else chance.randint(1000, 9998)
    )
    day = f"{year}-{chance.randint(1, 12):02}-{chance.randint(1, 28):02}"
    return f"'{day} {chance.randrange(24):02}:{clock}'"


@pytest.mark.parametrize("server", ["mysql97", "mysql56", "mariadb"], indirect=True)
def test_times_become_text_with_their_declared_digits(server: Server) -> None:
    chance = random.Random(23)
    columns = ", ".join(f"{name} {kind} null" for name, kind in TIMES.items())
    rows = [
        ", ".join(
            chance.choice([random_time(chance, kind)] * 19 + ["null"]) for kind in TIMES.values()
        )
        for _ in range(200)
    ]
    server.execute("flush binary logs")
    first = len(server.binlogs()) - 1
    server.execute(
        "set time_zone = '+00:00'",
        "drop table if exists types.digits",
        f"create table types.digits (id int primary key auto_increment, {columns})",
        f"insert into types.digits ({', '.join(TIMES)}) values ({'), ('.join(rows)})",
        "flush binary logs",
    )
    *_, batch = decode_files(server.binlogs()[first:-1], tables=r"types\.digits")
    after = batch.column("after")
    shown = ", ".join(f"cast({name} as char)" for name in TIMES)
    wanted = server.execute(
        "set time_zone = '+00:00'", f"select {shown} from types.digits order by id"
    )
    for name, theirs in zip(TIMES, zip(*wanted, strict=True), strict=True):
        field = after.type.field(name)
        assert mysql_texts(after.field(name), fraction_digits(field)).to_pylist() == [*theirs], name
