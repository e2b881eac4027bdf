"""XA transactions on real servers: prepared, committed, rolled back, and what SELECT shows."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ray_canal.binlog.open_transactions import OpenTransactions
from ray_canal.client.message import Message
from ray_canal.model.message import MessageHead, MessagePart
from ray_canal.offline import decode_chunks
from ray_canal.spark.frames import to_frames
from ray_canal.spark.history import scd2
from ray_canal.spark.parquet import ParquetSink, read_changes, read_rows
from ray_canal.spark.prepared import Named, Outcome, Prepared
from ray_canal.spark.state import latest
from ray_canal.views.row_places import RowPlace, table_name
from ray_canal.views.transactions import COMMIT_PREPARED, PREPARED, ROLLBACK_PREPARED, ROLLED_BACK
from tests.chunk_cuts import cut_files
from tests.servers import Server

pytestmark = pytest.mark.usefixtures("interpreted")


def messages(file: Path, timeline: int = 7) -> Iterator[Message]:
    """Of each chunk of a binlog file: the rows of the database `xa`."""
    transactions = OpenTransactions()
    for number, (info, chunk) in enumerate(decode_chunks([file]), 1):
        tables = info.admitted_tables(lambda schema, _: schema == "xa")
        part = MessagePart(
            chunk,
            0,
            len(info.entries),
            info.entries_of(tables),
            open=transactions.add(info),
            tables=bytes(tables),
        )
        yield Message(MessageHead(number, 1, (part,), timeline=timeline), lambda payloads: payloads)


def outcome(transaction: str, what: str, xa_id: str = "", rows: int = 1) -> Outcome:
    return Outcome(RowPlace(7, 1, 0, 0, "bin.000001"), Named(None, transaction), what, xa_id, rows)


def test_an_xa_id_names_the_transaction_that_was_prepared_last() -> None:
    prepared = Prepared()
    prepared.take([outcome("a:1", PREPARED, "x"), outcome("a:2", PREPARED, "y")])
    assert prepared.uncommitted == {Named(None, "a:1"), Named(None, "a:2")}
    prepared.take([outcome("a:3", COMMIT_PREPARED, "x"), outcome("a:4", PREPARED, "x")])
    assert prepared.uncommitted == {Named(None, "a:2"), Named(None, "a:4")}
    prepared.take([outcome("a:5", ROLLBACK_PREPARED, "x"), outcome("a:6", ROLLED_BACK)])
    prepared.take([outcome("a:7", COMMIT_PREPARED, "y")])
    assert prepared.uncommitted == {Named(None, "a:4"), Named(None, "a:6")}
    # Nothing is kept of those that have no rows for this subscriber.
    prepared.take([outcome("a:9", PREPARED, "z", rows=0), outcome("b:1", ROLLED_BACK, rows=0)])
    prepared.take([outcome("b:2", ROLLBACK_PREPARED, "z")])
    assert prepared.uncommitted == {Named(None, "a:4"), Named(None, "a:6")}
    # Of one that was prepared before the first message nothing is known, nor are there rows.
    prepared.take([outcome("a:8", ROLLBACK_PREPARED, "before")])
    assert prepared.uncommitted == {Named(None, "a:4"), Named(None, "a:6")}


def test_what_comes_again_changes_nothing() -> None:
    told = [
        outcome("a:1", PREPARED, "x"),
        outcome("a:2", ROLLBACK_PREPARED, "x"),
        outcome("a:3", PREPARED, "x"),
        outcome("a:4", COMMIT_PREPARED, "x"),
    ]
    prepared = Prepared()
    for again in (told, told, told[1:], told):
        prepared.take(again)
        assert prepared.uncommitted == {Named(None, "a:1")}


class Writer:
    """Transactions on the table xa.t, some prepared and left alone."""

    def __init__(self, server: Server) -> None:
        self.server = server
        server.execute(
            "DROP DATABASE IF EXISTS xa",
            "CREATE DATABASE xa",
            "FLUSH BINARY LOGS",
            "CREATE TABLE xa.t (id INT PRIMARY KEY, n INT)",
            *(f"INSERT INTO xa.t VALUES ({n}, 0)" for n in range(60)),
        )
        self.file = server.binlogs()[-1]

    def prepare(self, name: str, *statements: str) -> None:
        with self.server.connect() as connection, connection.cursor() as cursor:
            for statement in (f"XA START '{name}'", *statements):
                cursor.execute(statement)
            cursor.execute(f"XA END '{name}'")
            cursor.execute(f"XA PREPARE '{name}'")

    def end(self, name: str, how: str) -> None:
        self.server.execute(f"XA {how} '{name}'")

    def selected(self) -> dict[int, int]:
        return dict(self.server.execute("SELECT id, n FROM xa.t"))


def rows(frame: Any) -> dict[int, int]:
    return {row.id: row.n for row in frame.collect()}


def test_what_was_rolled_back_is_not_in_the_frame(spark, mysql97: Server) -> None:
    """b8: `latest` and `scd2` of frames, with what messages tell of transactions."""
    writer = Writer(mysql97)
    for name, how in (("back", "ROLLBACK"), ("done", "COMMIT"), ("open", "")):
        key = {"back": 1, "done": 2, "open": 3}[name]
        sql = (
            f"UPDATE xa.t SET n = {key} WHERE id = {key}",
            f"INSERT INTO xa.t VALUES ({100 + key}, 1)",
        )
        writer.prepare(name, *sql)
        if how:
            writer.end(name, how)
    prepared, batches = Prepared(), []
    for message in messages(writer.file):
        prepared.add(message)
        batches += message.batches
    assert len(prepared.uncommitted) == 2
    with to_frames(spark, batches) as made:
        frame = made.by_table["xa.t"]
        found = latest(frame, uncommitted=prepared.uncommitted)
        assert rows(found) == writer.selected()
        assert rows(latest(frame)) != writer.selected()
        versions = scd2(frame, uncommitted=prepared.uncommitted)
        assert rows(versions.where("is_current")) == writer.selected()
        assert versions.where("id IN (101, 103)").count() == 0
    writer.end("open", "ROLLBACK")


def test_what_a_savepoint_undoes_is_not_in_the_frame(
    spark: Any, mariadb: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MariaDB logs it where a table without transactions has changed since the savepoint."""
    cut_files(monkeypatch, 700)
    writer = Writer(mariadb)
    mariadb.execute(
        "CREATE TABLE xa.log (id INT PRIMARY KEY) ENGINE=MyISAM",
        *(
            sql
            for key in range(5)
            for sql in (
                "BEGIN",
                f"UPDATE xa.t SET n = 1 WHERE id = {key}",
                "SAVEPOINT s",
                f"UPDATE xa.t SET n = 2 WHERE id = {key}",
                f"INSERT INTO xa.t VALUES ({100 + key}, 2)",
                f"INSERT INTO xa.log VALUES ({key})",
                "ROLLBACK TO s",
                f"UPDATE xa.t SET n = 3 WHERE id = {10 + key}",
                "COMMIT",
            )
        ),
    )
    sink, prepared, batches = ParquetSink(spark, str(tmp_path / "lake")), Prepared(), []
    for message in messages(writer.file):
        prepared.add(message)
        batches += message.batches
        with to_frames(spark, message.batches) as made:
            sink(made.by_table, message)
    assert len(prepared.uncommitted) == 5
    with to_frames(spark, batches) as made:
        frame = made.by_table["xa.t"]
        assert rows(latest(frame, uncommitted=prepared.uncommitted)) == writer.selected()
        assert rows(latest(frame)) != writer.selected()
    assert rows(read_rows(spark, str(tmp_path / "lake"), "xa.t")) == writer.selected()


def test_what_comes_again_in_a_later_timeline_is_read_once(
    spark: Any, mysql97: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A2: behind a failover rows that were not acked have new ids, and the same transactions."""
    cut_files(monkeypatch, 1500)
    writer = Writer(mysql97)
    for n in range(20):
        table = "t" if n < 10 else "u"
        if n == 10:
            mysql97.execute("RENAME TABLE xa.t TO xa.u")
        mysql97.execute(f"UPDATE xa.{table} SET n = {n} WHERE id BETWEEN {n} AND {n + 3}")
    sink = ParquetSink(spark, str(tmp_path / "out"))
    parts = list(messages(writer.file))
    again = list(messages(writer.file, timeline=8))
    kinds = [{change.kind for change in part.schema_changes} for part in parts]
    (renamed,) = [number for number, found in enumerate(kinds) if "RENAME" in found]
    assert 0 < renamed < len(parts) - 3
    for message in (*parts[: renamed + 2], *again[renamed - 1 :]):
        with to_frames(spark, message.batches) as made:
            sink(made.by_table, message)
    for name in ("xa.t", "xa.u"):
        wanted = sum(b.num_rows for part in parts for b in part.batches if table_name(b) == name)
        assert read_changes(spark, sink.path, name).count() == wanted
    assert sum(sink.counts.values()) > sum(b.num_rows for part in parts for b in part.batches)
    assert rows(read_rows(spark, sink.path, "xa.u")) == dict(
        mysql97.execute("SELECT id, n FROM xa.u")
    )


@pytest.mark.parametrize("kind", ["mysql97", "mariadb"])
def test_the_mirror_is_select(
    kind: str,
    request: pytest.FixtureRequest,
    spark: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """b8: random transactions, XA or not, through the Parquet sink, some messages twice."""
    cut_files(monkeypatch, 3000)
    server: Server = request.getfixturevalue(kind)
    rng, writer = random.Random(kind), Writer(server)
    waiting: dict[str, int] = {}  # name -> the tens of keys that it has locked
    for number in range(60):
        roll, free = rng.random(), sorted(set(range(6)) - set(waiting.values()))
        if waiting and (roll < 0.35 or not free):
            name = rng.choice(sorted(waiting))
            writer.end(name, rng.choice(["COMMIT", "ROLLBACK"]))
            del waiting[name]
            continue
        tens = rng.choice(free)
        key = 10 * tens + rng.randrange(10)
        statements = [
            f"UPDATE xa.t SET n = {number} WHERE id = {key}",
            f"DELETE FROM xa.t WHERE id = {10 * tens + rng.randrange(10)}",
            f"REPLACE INTO xa.t VALUES ({10 * tens + rng.randrange(10)}, {number})",
        ]
        rng.shuffle(statements)
        if roll < 0.55:
            server.execute(*statements[:2])
        elif roll < 0.65:
            server.execute(f"XA START 'one{number}'", *statements, f"XA END 'one{number}'",
                           f"XA COMMIT 'one{number}' ONE PHASE")  # fmt: skip
        else:
            name = f"x{number}" if rng.random() < 0.6 else f"again{tens}"
            if name not in waiting:
                writer.prepare(name, *statements)
                waiting[name] = tens
    sink = ParquetSink(spark, str(tmp_path / "out"))
    for message in messages(writer.file):
        for _ in range(rng.choice([1, 1, 2])):
            if rng.random() < 0.2:
                sink = ParquetSink(spark, sink.path)  # a new process
            with to_frames(spark, message.batches) as made:
                sink(made.by_table, message)
    assert waiting
    assert rows(read_rows(spark, sink.path, "xa.t")) == writer.selected()
    for name in waiting:
        writer.end(name, "ROLLBACK")
