"""Rows that ROLLBACK TO undoes and the log has, against what SELECT shows on real servers."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pymysql
import pytest

from ray_canal.binlog.open_transactions import OpenTransactions
from ray_canal.model.canal_types import CREATE
from ray_canal.model.gtid import GtidSet
from ray_canal.model.log_context import LogContext
from ray_canal.model.position import EntryPosition
from ray_canal.offline import decode_chunks
from ray_canal.schema.names import Name
from ray_canal.snapshot.changes import LogPart, touched_by_outcome
from ray_canal.snapshot.key_numbers import Keys
from ray_canal.snapshot.logged_keys import LoggedKeys
from ray_canal.snapshot.marks import Stretch
from ray_canal.views.arrow import batches
from ray_canal.views.row_places import table_name
from ray_canal.views.transactions import ended_transactions
from tests.chunk_cuts import cut_files
from tests.servers import Server, start

TABLE = "d", "t"
TRANSACTIONS, SEED = 200, 7
NAMES = ("a", "A", "\xe4", "b", "c d", "`b`")  # the first three are one
OPTIONS: dict[str, dict[str, str | None]] = {
    "mysql56": {"gtid-mode": "OFF", "enforce-gtid-consistency": "OFF"},
    "mysql97": {"gtid-mode": "OFF", "enforce-gtid-consistency": "OFF"},
    "mariadb": {},
}


@pytest.fixture(params=sorted(OPTIONS))
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    with start(request.param, tmp_path / request.param, OPTIONS[request.param]) as server:
        yield server


def statements(rng: random.Random, ids: Iterator[int]) -> Iterator[str]:
    """Yield one transaction: of rows, savepoints, and what has the log write both."""
    yield "BEGIN"
    for _ in range(rng.randint(1, 25)):
        name = rng.choice(NAMES).replace("`", "``")
        yield rng.choice([
            f"INSERT INTO t VALUES ({next(ids)}, 'new')",
            f"INSERT INTO t VALUES ({next(ids)}, 'new'), ({next(ids)}, 'new')",
            f"UPDATE t SET v = '{rng.random()}' ORDER BY id DESC LIMIT 2",
            "DELETE FROM t ORDER BY id LIMIT 1",
            f"INSERT INTO m VALUES ({next(ids)})",
            "CREATE TEMPORARY TABLE gone (id INT)",
            "DROP TEMPORARY TABLE gone",
            f"SAVEPOINT `{name}`",
            f"SAVEPOINT `{name}`",
            f"ROLLBACK TO `{name}`",
            f"ROLLBACK TO SAVEPOINT `{name}`",
            f"RELEASE SAVEPOINT `{name}`",
        ])  # fmt: skip
    yield rng.choice(["COMMIT", "COMMIT", "COMMIT", "ROLLBACK"])


def run(server: Server) -> list[tuple[Any, ...]]:
    """Run random transactions; return the rows of the table with transactions at the end."""
    rng, ids = random.Random(SEED), iter(range(10**6))
    server.execute(
        "CREATE DATABASE d",
        "CREATE TABLE d.t (id INT PRIMARY KEY, v VARCHAR(30)) ENGINE=InnoDB",
        "CREATE TABLE d.m (id INT PRIMARY KEY) ENGINE=MyISAM",
    )
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("USE d")
        for number in range(TRANSACTIONS):
            charset = "latin1" if number % 3 == 0 else "utf8"
            connection.set_character_set(charset)  # the server writes names in UTF-8 all the same
            for sql in statements(rng, ids):
                with contextlib.suppress(pymysql.err.MySQLError):
                    cursor.execute(sql)  # an unknown savepoint, a temporary table there already
    return sorted(server.execute("SELECT id, v FROM d.t"))


class Sequenced:
    """The keys of TABLE that a snapshot's sequencer is told."""

    def __init__(self) -> None:
        self.ids: set[int] = set()

    def log(
        self, stretch: Any, touched: Mapping[Name, Keys], *, doubt: str, is_undone: bool
    ) -> None:
        self.ids |= {int(key) for key in touched.get(TABLE, np.zeros((1, 0), np.uint64))[0]}


def touched(paths: Sequence[Path]) -> set[int]:
    """Return the keys that a snapshot takes for changed."""
    sequenced: Any = Sequenced()
    logged = LoggedKeys(sequenced, {TABLE})
    nowhere = Stretch(GtidSet(), EntryPosition("", 0))
    for info, chunk in decode_chunks(paths):
        if TABLE not in info.tables and not logged.is_inside and not info.savepoints:
            continue  # as in a destination
        part = LogPart(info, chunk, 0, len(info.entries), True, EntryPosition("", 0))
        part = replace(part, first=behind_ddl(part))
        logged.add(nowhere, touched_by_outcome(part, key_of))
    assert not logged.is_inside
    found: set[int] = sequenced.ids
    return found


def key_of(schema: str, table: str) -> tuple[str, ...] | None:
    return ("id",) if (schema, table) == TABLE else None


def behind_ddl(part: LogPart) -> int:
    """Return the first entry behind the CREATE TABLEs, which no snapshot lives through."""
    entries, tables = part.info.entries, part.info.tables
    numbers = [number for number, name in enumerate(tables) if name[1] in ("t", "m")]
    is_ddl = np.isin(entries["table"], numbers) & (entries["event_type"] == CREATE)
    return int(np.flatnonzero(is_ddl)[-1]) + 1 if is_ddl.any() else 0


def told(paths: Sequence[Path]) -> tuple[dict[int, Any], set[int], int]:
    """Return the rows of TABLE by what the log has of them, the ids of all that count, and how many
    rows were undone."""
    rows: list[dict[str, Any]] = []
    ends: dict[str, dict[str, Any]] = {}
    transactions = OpenTransactions()
    for info, chunk in decode_chunks(paths):
        context = LogContext(0, transactions.add(info))
        count = chunk.layout.event_count
        for one in ended_transactions(chunk, (0, count), None, None, context).to_pylist():
            ends[one["transaction"]] = one
        for batch in batches(chunk, 0, count, context=context):
            if table_name(batch) == ".".join(TABLE):
                rows += batch.to_pylist()
    found: dict[int, Any] = {}
    ids: set[int] = set()
    left_out = 0
    for row in sorted(rows, key=lambda row: (row["journal_name"], row["position"], row["row"])):
        end, place = ends[row["transaction"]], (row["position"], row["row"])
        is_undone = end["outcome"] == "rolled_back" or any(
            (one["begin"], one["begin_row"]) <= place < (one["end"], one["end_row"])
            for one in end["undone"]
        )
        left_out += is_undone and end["outcome"] == "committed"
        if not is_undone:
            for image in ("before", "after"):
                if (values := row[image]) is not None:
                    found.pop(values["id"], None)
                    ids.add(values["id"])
            if row["after"] is not None:
                found[row["after"]["id"]] = row["after"]["v"]
    return found, ids, left_out


@pytest.mark.parametrize("chunk_bytes", [400, 3 << 20])
def test_without_what_is_undone_the_log_has_what_select_shows(
    server: Server, chunk_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However the log is cut. MySQL 9.7 writes no such rows."""
    cut_files(monkeypatch, chunk_bytes)
    wanted = run(server)
    found, ids, left_out = told(server.binlogs())
    assert sorted(found.items()) == wanted
    assert touched(server.binlogs()) == ids
    assert left_out > 20 or server.kind == "mysql97"
