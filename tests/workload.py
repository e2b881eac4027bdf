"""Random tables, random concurrent writers, and a replica built from what a subscriber received.

Seeded: the same seed makes the same tables and the same statements per writer (their interleaving
is the server's). `Replica` applies Arrow batches in order and compares itself with `SELECT *`.
"""

from __future__ import annotations

import datetime as dt
import decimal
import json
import random
import threading
from typing import Any

import pyarrow as pa

import ray_canal as canal

Rows = dict[str, dict[int, tuple[Any, ...]]]
"""By table and key."""
TEXTS = [
    "",
    "plain",
    "naïve café",
    "東京タワー",
    "übergröße",
    "مرحبا",
    "🚀🌍",
    "line\nbreak",
    "'q\"\\",
]


class Column:
    """One random column: its DDL and a maker of Python values as PyMySQL takes them."""

    def __init__(self, name: str, ddl: str, make: Any) -> None:
        self.name, self.ddl, self.make = name, ddl, make


def _column_kinds(kind: str) -> list[tuple[str, Any]]:
    def text(r: random.Random, n: int) -> str:
        return (r.choice(TEXTS) + str(r.randrange(10**6)))[:n]

    def moment(r: random.Random) -> dt.datetime:
        return dt.datetime(1990, 1, 1) + dt.timedelta(microseconds=r.randrange(10**15))

    kinds = [
        ("tinyint", lambda r: r.randrange(-128, 128)),
        ("smallint unsigned", lambda r: r.randrange(65536)),
        ("mediumint", lambda r: r.randrange(-(2**23), 2**23)),
        ("int unsigned", lambda r: r.randrange(2**32)),
        ("bigint", lambda r: r.randrange(-(2**63), 2**63)),
        ("bigint unsigned", lambda r: r.randrange(2**64)),
        ("double", lambda r: r.uniform(-1e9, 1e9)),
        ("float", lambda r: r.randrange(-4096, 4096) / 4),
        ("decimal(10,2)", lambda r: decimal.Decimal(r.randrange(-(10**10) + 1, 10**10)) / 100),
        (
            "decimal(38,10)",
            lambda r: decimal.Decimal(r.randrange(-(10**38) + 1, 10**38)).scaleb(-10),
        ),
        ("varchar(40)", lambda r: text(r, 40)),
        ("char(12)", lambda r: text(r, 12).strip()),
        ("text", lambda r: text(r, 40) * r.randrange(5)),
        ("varbinary(64)", lambda r: r.randbytes(r.randrange(64))),
        ("blob", lambda r: r.randbytes(r.randrange(200))),
        ("date", lambda r: moment(r).date()),
        ("datetime", lambda r: moment(r).replace(microsecond=0)),
        ("datetime(6)", moment),
        ("timestamp(3) null", lambda r: moment(r).replace(microsecond=r.randrange(1000) * 1000)),
        ("time(2)", lambda r: dt.timedelta(milliseconds=10 * r.randrange(-(10**8), 10**8))),
        ("year", lambda r: r.randrange(1901, 2156)),
        ("enum('red','green','blau')", lambda r: r.choice(["red", "green", "blau"])),
        ("set('a','b','c','d')", lambda r: ",".join(x for x in "abcd" if r.random() < 0.5)),
        ("bit(17)", lambda r: r.randrange(2**17)),
    ]
    if kind == "mysql97":
        kinds.append(("json", lambda r: json.dumps({"k": r.randrange(10**6), "v": [text(r, 9)]})))
    return kinds


class RandomTable:
    """A table of 2 to 12 random nullable columns behind an integer key."""

    def __init__(self, number: int, rng: random.Random, kind: str) -> None:
        self.name = f"t{number:02d}"
        kinds = _column_kinds(kind)
        self.columns = [Column(f"c{i}", *rng.choice(kinds)) for i in range(rng.randrange(2, 13))]

    @property
    def ddl(self) -> str:
        columns = "".join(
            f", {c.name} {c.ddl if 'null' in c.ddl else c.ddl + ' null'}" for c in self.columns
        )
        return (
            f"create table {self.name} (id bigint not null primary key{columns}) "
            "default charset=utf8mb4"
        )

    def row(self, key: int, rng: random.Random) -> list[Any]:
        return [key] + [None if rng.random() < 0.1 else c.make(rng) for c in self.columns]


class Workload:
    """Tables in one database, and writers that change them from several connections at once."""

    def __init__(
        self, server: Any, *, seed: int, tables: int = 20, database: str = "random"
    ) -> None:
        self.server, self.database, self.seed = server, database, seed
        rng = random.Random(seed)
        self.tables = [RandomTable(n, rng, server.kind) for n in range(tables)]
        self._writers = 0  # each writer of each call has its own range of keys

    def connect(self) -> Any:
        connection = self.server.connect(charset="utf8mb4", autocommit=False)
        with connection.cursor() as cursor:
            cursor.execute("set time_zone='+00:00', sql_mode=''")
        connection.commit()
        return connection

    def create(self) -> None:
        connection = self.connect()
        with connection.cursor() as cursor:
            cursor.execute(f"create database {self.database}")
            cursor.execute(f"use {self.database}")
            for table in self.tables:
                cursor.execute(table.ddl)
        connection.close()

    def write(self, rows: int, writers: int = 4, stop: threading.Event | None = None) -> None:
        """Change about `rows` rows (every row written counts), in `writers` threads; wait for
        them."""
        failures: list[BaseException] = []

        def run(writer: int) -> None:
            try:
                self._write_one(writer, rows // writers, stop)
            except BaseException as error:
                failures.append(error)

        numbers = range(self._writers, self._writers + writers)
        self._writers += writers
        threads = [threading.Thread(target=run, args=(number,)) for number in numbers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]

    def _write_one(self, writer: int, rows: int, stop: threading.Event | None) -> None:
        rng = random.Random(self.seed * 1000 + writer)
        connection = self.connect()
        connection.select_db(self.database)
        cursor = connection.cursor()
        keys: dict[str, list[int]] = {t.name: [] for t in self.tables}
        next_key = writer * 10**9 + 1
        done = 0
        while done < rows and not (stop and stop.is_set()):
            for _ in range(rng.randrange(1, 5)):
                table = rng.choice(self.tables)
                own = keys[table.name]
                action = rng.random()
                if action < 0.6 or not own:
                    many = rng.choice([1, 1, 5, 50, 200])
                    batch = [table.row(next_key + i, rng) for i in range(many)]
                    marks = ",".join(["%s"] * (len(table.columns) + 1))
                    cursor.executemany(f"insert into {table.name} values ({marks})", batch)
                    own.extend(range(next_key, next_key + many))
                    next_key += many
                    done += many
                elif action < 0.85:
                    low = rng.choice(own)
                    column = rng.choice(table.columns)
                    done += cursor.execute(
                        f"update {table.name} set {column.name}=%s where id between %s and %s",
                        (column.make(rng), low, low + rng.randrange(40)),
                    )
                else:
                    key = own.pop(rng.randrange(len(own)))
                    done += cursor.execute(f"delete from {table.name} where id=%s", (key,))
            connection.commit() if rng.random() < 0.95 else connection.rollback()
        connection.commit()
        connection.close()

    def rows(self) -> Rows:
        """What is in the server now: table -> key -> row."""
        connection = self.connect()
        connection.select_db(self.database)
        found = {}
        with connection.cursor() as cursor:
            for table in self.tables:
                cursor.execute(f"select * from {table.name}")
                found[table.name] = {row[0]: _from_select(row, table) for row in cursor}
        connection.close()
        return found


def _from_select(row: tuple[Any, ...], table: RandomTable) -> tuple[Any, ...]:
    values = [row[0]]
    for value, column in zip(row[1:], table.columns, strict=True):
        if value is not None and column.ddl.startswith("bit"):
            value = int.from_bytes(value, "big")
        values.append(value)
    return tuple(values)


class Replica:
    """The state that a subscriber's batches add up to, and a judge of their order.

    `acked` is the id of the last acked row (canal.row_id): anything at or below it that arrives
    again is a fault. Between acks rows must rise; they may start again only above `acked`.
    """

    def __init__(self, database: str = "random") -> None:
        self.database = database
        self.tables: dict[str, dict[int, tuple[Any, ...]]] = {}
        self.received = 0
        self.repeated = 0
        self._acked: tuple[Any, ...] = ()
        self._last: tuple[Any, ...] = ()
        self._highest: tuple[Any, ...] = ()

    def apply(self, parts: list[list[pa.RecordBatch]]) -> None:
        """Apply one message's batches; raises AssertionError on disorder."""
        for batches in parts:
            rows = [row for batch in batches for row in _rows(batch)]
            rows.sort(key=lambda item: item[0])
            for row_id, schema, table, row in rows:
                assert row_id > self._acked, f"{row_id} came again after the ack of {self._acked}"
                assert row_id > self._last, f"{row_id} came after {self._last}"
                self._last = row_id
                self.received += 1
                if row_id <= self._highest:
                    self.repeated += 1
                self._highest = max(self._highest, row_id)
                if schema == self.database:
                    self._change(table, row)

    def ack(self) -> None:
        self._acked = self._last

    def rewind(self) -> None:
        """A restart or rollback: what was not acked may come again."""
        self._last = self._acked

    def _change(self, table: str, row: dict[str, Any]) -> None:
        rows = self.tables.setdefault(table, {})
        before, after = row["before"], row["after"]
        old = None if before is None else rows.pop(before["id"], None)
        if after is None:
            return
        values = tuple(_plain(v) for v in after.values())
        if present := row.get("after_present"):  # binlog_row_image: what it lacks is as it was
            # A row that comes again may be one that was deleted later.
            old = old or (before["id"], *values[1:])
            both = zip(values, present.values(), old, strict=True)
            values = tuple(new if is_there else last for new, is_there, last in both)
        rows[values[0]] = values

    def differences(self, server: Rows) -> list[str]:
        """What differs from the server's rows; empty when equal."""
        return differences(self.tables, server)


def differences(ours: Rows, server: Rows) -> list[str]:
    """What of our rows differs from the server's tables; empty when equal."""
    found = []
    for table, rows in server.items():
        here = ours.get(table, {})
        for key in rows.keys() | here.keys():
            if rows.get(key) != here.get(key):
                found.append(f"{table}[{key}]: {here.get(key)} is not {rows.get(key)}")
    return found


def _rows(batch: pa.RecordBatch) -> Any:
    schema = batch.schema.metadata[b"canal.schema"].decode()
    table = batch.schema.metadata[b"canal.table"].decode()
    for row in batch.to_pylist():
        yield canal.row_id(row), schema, table, row


def _plain(value: Any) -> Any:
    """Arrow's Python value as PyMySQL would give it."""
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return value.astimezone(dt.timezone.utc).replace(tzinfo=None)
    if isinstance(value, list):
        return ",".join(value)
    return value
