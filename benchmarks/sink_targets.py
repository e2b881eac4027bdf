"""`python -m benchmarks.sink_targets`: a commit of changes into databases and a Delta table.

100,000 changes (40 % new keys, 50 % updates, 10 % deletes; 8 columns) on a table of a million rows,
with the sink's place in the same transaction, beside the usual ways in the same run: statements of
1,000 rows, a statement a row, and for Delta a table of Parquet files that is written again; and the
same changes as five batches, in one commit and in five. Servers are those of the tests, next to
this process.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import typer

from benchmarks.command import console, machine
from ray_canal.config import MirrorConfig
from ray_canal.sinks.column_specs import ColumnSpec
from ray_canal.sinks.databases.mysql import MySqlDatabase
from ray_canal.sinks.databases.port import Database
from ray_canal.sinks.databases.postgres import PostgresDatabase
from ray_canal.sinks.databases.sender import Sender, TableWrite
from ray_canal.sinks.key_shares import shared_out
from ray_canal.sinks.lakes.delta import DeltaFile
from ray_canal.sinks.net_change import net_change
from ray_canal.sinks.schema_follower import TableName
from ray_canal.views.row_places import RowPlace
from tests.servers import start
from tests.servers.postgres import start_postgres

GOALS = {
    ("postgres", "ours", "rows of 1,000"): 4.0,
    ("postgres", "two senders", "ours"): 1.5,
    ("mysql", "ours", "a statement a row"): 12.0,
    ("mysql", "ours", "rows of 1,000"): 1.7,
    ("delta", "ours", "Parquet written again"): 1.0,
    ("delta", "five batches, one commit", "ours"): 0.5,
    ("delta", "five commits", "ours"): 0.5,
}
NAME, KEY = TableName("bench", "orders"), ["id"]
SCHEMA = pa.schema(
    [("id", pa.int64()), ("user_id", pa.int32()), ("name", pa.string()),
     ("price", pa.decimal128(12, 2)), ("qty", pa.int32()), ("state", pa.string()),
     ("created", pa.timestamp("us")), ("note", pa.string())]
)  # fmt: skip
DECLARED = ("bigint", "int", "varchar(64)", "decimal(12,2)", "int", "varchar(16)", "datetime(6)",
            "varchar(255)")  # fmt: skip
COLUMNS = [ColumnSpec(field.name, field.type, declared, is_key=field.name == "id")
           for field, declared in zip(SCHEMA, DECLARED, strict=True)]  # fmt: skip
NAMES = SCHEMA.names
Way = Callable[[pa.RecordBatch], None]


def rows_of(ids: Any, note: str) -> pa.Table:
    price = pa.array((ids % 1_000_000) / 100).cast(pa.decimal128(12, 2), safe=False)
    count = len(ids)
    columns = [
        pa.array(ids, pa.int64()), pa.array((ids % 100_003).astype(np.int32)),
        pc.binary_join_element_wise("customer", (pa.array(ids % 1000)).cast(pa.string()), " "),
        price, pa.array((ids % 17).astype(np.int32)),
        pa.array(["done"] * count),
        pa.array(np.full(count, np.datetime64("2026-11-23T14:00:00", "us"))),
        pa.array([note * 20] * count),
    ]  # fmt: skip
    return pa.table(columns, schema=SCHEMA)


def changes_of(seed: int, count: int, rows: int) -> pa.RecordBatch:
    """Changes in random order, each of another key."""
    pick = np.random.default_rng(seed)
    new = np.arange(4 * count // 10) + 10 * rows + seed * count
    old = pick.choice(rows, count - len(new), replace=False) + 1
    ids = np.concatenate([new, old])
    kinds = np.array(["INSERT"] * len(new) + ["UPDATE"] * len(old), dtype=object)
    kinds[count - count // 10 :] = "DELETE"
    order = pick.permutation(count)
    ids, kinds = ids[order], kinds[order]
    image = rows_of(ids, "m").to_struct_array().combine_chunks()
    kind = pa.array(kinds, pa.string())
    empty = pa.nulls(count, image.type)
    before = pc.if_else(pc.equal(kind, "INSERT"), empty, image)
    after = pc.if_else(pc.equal(kind, "DELETE"), empty, image)
    return pa.RecordBatch.from_arrays([kind, before, after], ["event_type", "before", "after"])


def split(batch: pa.RecordBatch) -> tuple[list[Any], list[tuple[Any, ...]]]:
    """(keys that go, rows that are written), as Python's values."""
    net = net_change([batch], KEY, NAMES)
    rows = list(zip(*(column.to_pylist() for column in net.upserts.columns), strict=True))
    return net.deletes["id"].to_pylist(), rows


def ours(database: Database) -> Way:
    def commit(batch: pa.RecordBatch) -> None:
        database.begin("bench")
        net = net_change([batch], KEY, NAMES)
        database.delete(NAME, net.deletes)
        database.upsert(NAME, KEY, net.upserts)
        database.commit("bench", '{"position": 4}')

    return commit


def two_senders(make: Callable[[], Database], stack: ExitStack) -> Way:
    """As a mirror with `senders = 2` and `order = "key"` has them."""
    senders = [Sender(row, "bench", make()) for row in ("two", "two#key/2/1")]
    pool, source = stack.enter_context(ThreadPoolExecutor(2)), (NAME.database, NAME.table)
    for sender in senders:
        sender.open()
        stack.callback(sender.close)

    def commit(batch: pa.RecordBatch) -> None:
        net = net_change([batch], KEY, NAMES)
        parts = (shared_out(rows, KEY, 2) for rows in (net.deletes, net.upserts))
        writes = [
            TableWrite(source=source, name=NAME, key=KEY, deletes=deletes, upserts=upserts)
            for deletes, upserts in zip(*parts, strict=True)
        ]
        done = [
            pool.submit(sender.commit, [write], None)
            for sender, write in zip(senders, writes, strict=True)
        ]
        for each in done:
            each.result()

    return commit


def _fill(database: Database, rows: int) -> None:
    database.connect()
    database.take_over("bench")
    database.create(NAME, COLUMNS)
    database.find(NAME)
    for first in range(0, rows, 250_000):
        ids = np.arange(first, min(rows, first + 250_000)) + 1
        database.begin("bench")
        database.upsert(NAME, KEY, rows_of(ids, "n"))
        database.commit("bench", "")


def _pieces(rows: list[Any], size: int) -> Iterator[list[Any]]:
    for first in range(0, len(rows), size):
        yield rows[first : first + size]


def postgres(rows: int, stack: ExitStack) -> dict[str, Way]:
    server = stack.enter_context(start_postgres())
    config = MirrorConfig(address=server.address, username="postgres")
    database = PostgresDatabase(config)
    _fill(database, rows)
    stack.callback(database.close)
    server.execute("ANALYZE bench.orders")
    plain = stack.enter_context(server.connect())
    updates = ", ".join(f"{name} = excluded.{name}" for name in NAMES[1:])

    def multi(batch: pa.RecordBatch) -> None:
        gone, written = split(batch)
        with plain.transaction():
            plain.execute("DELETE FROM bench.orders WHERE id = ANY(%s)", (gone,))
            for piece in _pieces(written, 1000):
                values = ",".join(["(%s,%s,%s,%s,%s,%s,%s,%s)"] * len(piece))
                sql = f"INSERT INTO bench.orders VALUES {values}"
                sql += f" ON CONFLICT (id) DO UPDATE SET {updates}"
                plain.execute(sql.encode(), [value for row in piece for value in row])
            plain.execute("UPDATE ray_canal.canal_cursor SET place = '' WHERE sink = 'bench'")

    two = two_senders(lambda: PostgresDatabase(config), stack)
    return {"ours": ours(database), "rows of 1,000": multi, "two senders": two}


def mysql(rows: int, stack: ExitStack) -> dict[str, Way]:
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    server = stack.enter_context(start("mysql97", folder / "mysql"))
    config = MirrorConfig(address=server.address, username="root", senders=2, order="key")
    database = MySqlDatabase(config)
    _fill(database, rows)
    stack.callback(database.close)
    plain = server.connect(autocommit=False)
    stack.callback(plain.close)
    values = ",".join(["%s"] * len(NAMES))
    updates = ", ".join(f"{name} = VALUES({name})" for name in NAMES[1:])
    insert = f"INSERT INTO bench.orders VALUES ({values}) ON DUPLICATE KEY UPDATE {updates}"
    cursor_row = "UPDATE ray_canal.canal_cursor SET place = '' WHERE sink = 'bench'"

    def multi(batch: pa.RecordBatch) -> None:
        gone, written = split(batch)
        with plain.cursor() as cursor:
            for piece in _pieces(gone, 1000):
                listed = ",".join(["%s"] * len(piece))
                cursor.execute(f"DELETE FROM bench.orders WHERE id IN ({listed})", piece)
            for piece in _pieces(written, 1000):
                cursor.executemany(insert, piece)
            cursor.execute(cursor_row)
        plain.commit()

    def single(batch: pa.RecordBatch) -> None:
        gone, written = split(batch)
        with plain.cursor() as cursor:
            for key in gone:
                cursor.execute("DELETE FROM bench.orders WHERE id = %s", (key,))
            for row in written:
                cursor.execute(insert, row)
            cursor.execute(cursor_row)
        plain.commit()

    two = two_senders(lambda: MySqlDatabase(config), stack)
    return {"ours": ours(database), "rows of 1,000": multi, "a statement a row": single,
            "two senders": two}  # fmt: skip


def delta(rows: int, stack: ExitStack) -> dict[str, Way]:
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    table, number = DeltaFile(str(folder / "delta"), "bench"), iter(range(1, 1_000_000))
    every = rows_of(np.arange(rows) + 1, "n")
    table.create(SCHEMA)
    table.merge(KEY, every.select(KEY).slice(0, 0), every, RowPlace(0, 0, 0, 0))
    buckets = 16
    for bucket in range(buckets):
        chosen = pc.equal(pc.bit_wise_and(every["id"], buckets - 1), bucket)
        pq.write_table(every.filter(chosen), folder / f"{bucket}.parquet")

    def commit(*batches: pa.RecordBatch) -> None:
        net = net_change(batches, KEY, NAMES)
        table.merge(KEY, net.deletes, net.upserts, RowPlace(0, 0, next(number), 0))

    def fifths(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        size = -(-len(batch) // 5)
        return [batch.slice(at, size) for at in range(0, len(batch), size)]

    def five_commits(batch: pa.RecordBatch) -> None:
        for each in fifths(batch):
            commit(each)

    def rewrite(batch: pa.RecordBatch) -> None:
        """Each file is one bucket of keys; those that have changes are read and written."""
        net = net_change([batch], KEY, NAMES)
        touched = pa.concat_arrays([net.deletes["id"].combine_chunks(),
                                    net.upserts["id"].combine_chunks()])  # fmt: skip
        for bucket in range(buckets):
            path = folder / f"{bucket}.parquet"
            old = pq.read_table(path)
            kept = old.filter(pc.invert(pc.is_in(old["id"], touched)))
            mine = pc.equal(pc.bit_wise_and(net.upserts["id"], buckets - 1), bucket)
            pq.write_table(pa.concat_tables([kept, net.upserts.filter(mine)]), path)

    def five_batches(batch: pa.RecordBatch) -> None:
        """As the sink does with those that come within `commit_interval_s`."""
        commit(*fifths(batch))

    return {"ours": commit, "five batches, one commit": five_batches, "five commits": five_commits,
            "Parquet written again": rewrite}  # fmt: skip


TARGETS = {"postgres": postgres, "mysql": mysql, "delta": delta}


def measured(target: str, rows: int, changes: int, runs: int) -> dict[str, float]:
    """Return changes a second by way: medians of interleaved runs."""
    with ExitStack() as stack:
        ways = TARGETS[target](rows, stack)
        times: dict[str, list[float]] = {way: [] for way in ways}
        seed = 0
        for _ in range(runs):
            for way, commit in ways.items():
                seed += 1
                batch = changes_of(seed, changes, rows)
                began = time.perf_counter()
                commit(batch)
                times[way].append(time.perf_counter() - began)
    return {way: changes / statistics.median(found) for way, found in times.items()}


def main(
    target: Annotated[list[str] | None, typer.Option(help="Not given: all.")] = None,
    rows: Annotated[int, typer.Option(min=1000, help="Rows of the table.")] = 1_000_000,
    changes: Annotated[int, typer.Option(min=100, help="Changes of a commit.")] = 100_000,
    runs: Annotated[int, typer.Option(min=1, help="Runs of each; the median counts.")] = 3,
    out: Annotated[Path | None, typer.Option(help="Write the figures here, as JSON.")] = None,
) -> None:
    """Measure, and print the rates and their ratios."""
    figures: dict[str, dict[str, float]] = {}
    for name in target or TARGETS:
        found = figures[name] = measured(name, rows, changes, runs)
        for way, value in found.items():
            console.print(f"{name} {way}: {value:,.0f} changes/s")
        for (of, mine, other), goal in GOALS.items():
            if of == name:
                ratio = found[mine] / found[other]
                console.print(f"{name}: {ratio:.1f} x {other} (goal {goal:.1f} x)")
    if out is not None:
        tree = {"machine": machine(), "rows": rows, "changes": changes, "targets": figures}
        out.write_text(json.dumps(tree, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
