"""Random tables, random rows, each row image, on each server: what comes out is what SELECT shows.

Of each change's row images three things are held: the before image is what the table held, the
after image laid over it is what SELECT shows at the end of each phase, and the entry's text is what
Canal's conventions make of the Arrow value. `RAY_CANAL_SEEDS=200 pytest -m soak` tries more seeds.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ray_canal.binlog.chunk import DecodedChunk
from ray_canal.canal.generated import EntryProtocol_pb2 as pb
from ray_canal.offline import decode_chunks, decode_entries, decode_messages
from ray_canal.views.arrow import batches
from ray_canal.views.entries import delimited_pieces
from ray_canal.views.flat import OLD_CANAL, OLD_EXACT, FlatOptions
from ray_canal.views.routing import Routing
from tests.canal_text import canal_text
from tests.golden import split_delimited
from tests.golden.flat_reference import TS_MS, lines
from tests.random_columns import Kind, random_kind
from tests.servers import Server

IMAGES = ("FULL", "MINIMAL", "NOBLOB")
WHOLE = ("FULL",) * len(IMAGES)
"""key_changes = "split" needs all columns."""
ROWS = 12
SEEDS = 4
SOAK_SEEDS = int(os.environ.get("RAY_CANAL_SEEDS", "50"))


class RandomTable:
    """A table, its statements and its truth."""

    def __init__(
        self,
        seed: int,
        server: Server,
        admits: Callable[[Kind], bool] = lambda kind: True,
        images: tuple[str, ...] = IMAGES,
    ) -> None:
        self.name, self.images = f"t{seed}", images
        self.rng = random.Random(seed)
        self.server = server
        kinds = [random_kind(self.rng, server.kind) for _ in range(self.rng.randint(3, 14))]
        self.kinds = [kind for kind in kinds if admits(kind)]
        self.keys: list[int] = []
        self.phases: list[tuple[str, dict[int, tuple[Any, ...]]]] = []

    @property
    def ddl(self) -> str:
        columns = "".join(
            f", c{n} {kind.ddl if 'null' in kind.ddl.split() else kind.ddl + ' null'}"
            for n, kind in enumerate(self.kinds)
        )
        return f"create table d.{self.name} (id int primary key{columns}) default charset=utf8mb4"

    def _value(self, kind: Kind) -> str:
        return "null" if self.rng.random() < 0.12 else kind.literal(self.rng)

    def write(self) -> None:
        """Three phases, each with its row image; after each, what the table holds."""
        connection = self.server.connect()
        with connection.cursor() as cursor:
            mode = "'allow_invalid_dates,no_engine_substitution'"
            cursor.execute(f"set names utf8mb4, time_zone='+00:00', sql_mode={mode}")
            cursor.execute(f"drop table if exists d.{self.name}")
            cursor.execute(self.ddl)
            for number, image in enumerate(self.rng.sample(self.images, len(self.images))):
                cursor.execute(f"set binlog_row_image={image}")
                cursor.execute("begin")
                self._change(cursor, number)
                cursor.execute("commit")
                cursor.execute(f"insert into d.phase values ('{self.name}', {number})")
                self.phases.append((image, self._select(cursor)))
        connection.close()

    def _change(self, cursor: Any, number: int) -> None:
        fresh = range(100 * number, 100 * number + ROWS)
        rows = [[str(key), *(self._value(kind) for kind in self.kinds)] for key in fresh]
        for row in rows[: ROWS // 2]:
            cursor.execute(f"insert into d.{self.name} values ({','.join(row)})")
        values = ",".join(f"({','.join(row)})" for row in rows[ROWS // 2 :])
        cursor.execute(f"insert into d.{self.name} values {values}")
        self.keys.extend(fresh)
        for _ in range(ROWS):
            chosen = self.rng.sample(range(len(self.kinds)), self.rng.randint(1, 2))
            changes = ",".join(f"c{n}={self._value(self.kinds[n])}" for n in chosen)
            low = self.rng.choice(self.keys)
            where = f"id between {low} and {low + self.rng.choice([0, 0, 5])}"
            cursor.execute(f"update d.{self.name} set {changes} where {where}")
        for _ in range(3):
            key = self.keys.pop(self.rng.randrange(len(self.keys)))
            cursor.execute(f"delete from d.{self.name} where id={key}")

    def _select(self, cursor: Any) -> dict[int, tuple[Any, ...]]:
        columns = ",".join(kind.select.format(f"c{n}") for n, kind in enumerate(self.kinds))
        cursor.execute(f"select id,{columns} from d.{self.name}")
        return {row[0]: row[1:] for row in cursor.fetchall()}


class Replay:
    """Applies decoded changes and judges them against a RandomTable."""

    def __init__(self, table: RandomTable) -> None:
        self.table = table
        self.state: dict[int, list[Any]] = {}
        self.phase = 0
        self.compared = 0

    def chunk(self, chunk: DecodedChunk) -> None:
        changes = []
        for batch in batches(chunk, 0, chunk.layout.event_count):
            name = batch.schema.metadata[b"canal.table"].decode()
            types = [f.type for f in batch.schema.field("after").type]
            for row in batch.to_pylist():
                changes.append((row["position"], row["row"], name, types, row))
        entries = {}
        pieces = delimited_pieces(chunk, 0, chunk.layout.event_count)
        for message in split_delimited(b"".join(pieces)):
            entry = pb.Entry.FromString(message)
            if entry.entryType == pb.ROWDATA:
                place = (entry.header.logfileOffset, entry.header.tableName)
                entries[place] = pb.RowChange.FromString(entry.storeValue)
        for position, number, name, types, row in sorted(changes, key=lambda c: c[:2]):
            if name == "phase" and row["after"]["t"] == self.table.name:
                self._end_of_phase()
            elif name == self.table.name:
                data = entries[position, name].rowDatas[number]
                presence = _seen_presence(row, len(types))
                assert presence == _presence(chunk, position)
                self._change(row, presence, types, data)

    def _change(self, row: Any, presence: Any, types: Any, data: pb.RowData) -> None:
        before, after = row["before"], row["after"]
        key = (before or after)["id"]
        held = self.state.get(key, [None] * len(self.table.kinds))
        for image, present, columns in (
            (before, presence[0], data.beforeColumns),
            (after, presence[1], data.afterColumns),
        ):
            if image is None:
                assert not columns
                continue
            self._same_text(image, present, types, columns)
        if before is not None:
            assert key in self.state
            for number, value in enumerate(list(before.values())[1:]):
                if presence[0][number + 1]:
                    assert value == held[number], (self.table.ddl, number, value)
            del self.state[key]
        if after is not None:
            values = list(after.values())
            new = [v if presence[1][n + 1] else held[n] for n, v in enumerate(values[1:])]
            self.state[values[0] if presence[1][0] else key] = new

    def _same_text(self, image: Any, present: Any, types: Any, columns: Any) -> None:
        """An entry's columns against the Arrow image; irregular values are judged by the end."""
        values = list(image.values())
        assert [c.index for c in columns] == [n for n, p in enumerate(present) if p]
        for column in columns:
            value, kind = values[column.index], types[column.index]
            if value is None:
                irregular = not column.isNull
                assert not irregular or column.sqlType in (91, 93), column
                continue
            assert not column.isNull
            wanted = canal_text(value, kind, column.mysqlType, self._labels(column))
            assert column.value == wanted, (column.mysqlType, value)
            self.compared += 1

    def _labels(self, column: Any) -> tuple[str, ...]:
        if not column.mysqlType.startswith(("enum", "set")):
            return ()
        inside = column.mysqlType.partition("(")[2].rpartition(")")[0]
        return tuple(label.replace("''", "'") for label in inside[1:-1].split("','"))

    def _end_of_phase(self) -> None:
        image, wanted = self.table.phases[self.phase]
        self.phase += 1
        assert wanted.keys() == self.state.keys(), image
        for key, truth in wanted.items():
            for number, kind in enumerate(self.table.kinds):
                ours, theirs = self.state[key][number], kind.received(truth[number])
                if theirs is not None and not kind.regular(theirs):
                    theirs = None
                what = f"{self.table.server.kind} {image} {self.table.name} c{number} {kind.ddl}"
                assert kind.seen(ours) == theirs, f"{what}: {ours!r} is not {theirs!r}"


def _seen_presence(row: Any, count: int) -> tuple[list[bool], list[bool]]:
    """Which columns a row's images have, by the columns that a batch has for that (A10)."""
    before, after = (row.get(name) for name in ("before_present", "after_present"))
    whole = [True] * count
    if before is None and after is None:
        return whole, whole
    # An image that is not there has no columns in the binlog.
    return tuple(  # type: ignore[return-value]
        [False] * count if row[side] is None else whole if bits is None else list(bits.values())
        for side, bits in (("before", before), ("after", after))
    )


def _presence(chunk: DecodedChunk, position: int) -> tuple[list[bool], list[bool]]:
    """Which columns the before and after images of the row event at `position` have."""
    [index] = np.flatnonzero((chunk.events["position"] == position) & (chunk.events["rows"] > 0))
    event = chunk.events[index]
    count = len(chunk.layout.tables[event["table"]].meta.columns)
    if event["present"] < 0:
        return [True] * count, [True] * count
    size = (count + 7) // 8
    bits = np.unpackbits(
        chunk.arena[event["present"] : event["present"] + 2 * size], bitorder="little"
    )
    return bits[:count].tolist(), bits[8 * size : 8 * size + count].tolist()


def _try_seeds(
    server: Server, seeds: range, folder: Path, images: tuple[str, ...] = IMAGES
) -> None:
    server.execute(
        "create database if not exists d", "drop table if exists d.phase",
        "create table d.phase (t varchar(9), n int)", "flush binary logs",
    )  # fmt: skip
    first = len(server.binlogs()) - 1
    tables = [RandomTable(seed, server, images=images) for seed in seeds]
    for table in tables:
        table.write()
    schema = folder / "schema.sql"
    created = [
        server.execute(f"show create table d.{name}")[0][1]
        for name in ["phase", *(t.name for t in tables)]
    ]
    schema.write_text("use d;\n" + ";\n".join(created) + ";\n", encoding="utf-8")
    server.execute("flush binary logs")
    replays = [Replay(table) for table in tables]
    files = server.binlogs()[first:-1]
    given = None if server.kind == "mysql97" else schema  # MariaDB: uuid is binary(16) otherwise
    for _, chunk in decode_chunks(files, schema_sql=given):
        for replay in replays:
            replay.chunk(chunk)
    key_changes = "split" if images == WHOLE else "canal"
    _judge_messages(files, given, random.Random(seeds[0]), key_changes)
    for replay in replays:
        assert replay.phase == len(IMAGES)
        assert replay.compared > 20


def _judge_messages(
    files: list[Path], schema: Path | None, rng: random.Random, key_changes: str
) -> None:
    """Queue messages against the plain rendering of the same entries."""
    entries = [
        message
        for data in decode_entries(files, schema_sql=schema)
        for message in split_delimited(data)
    ]
    for old in (OLD_CANAL, OLD_EXACT):
        columns = "^".join(f"c{n}" for n in range(8) if rng.random() < 0.3)
        rule = r".*\..*:" + (columns or "$pk$")
        routing = Routing(
            topic="rest", partitions=rng.choice([1, 3, 8]), partition_hash=rule,
            dynamic_topic=rng.choice(["", r"d\..*", r"one:d\.t\d*[02468],two:d\.t.*", "d.phase,d"]),
            dynamic_topic_partitions=rng.choice(["", "one:5,d_.*:2"]),
            database_hash=rng.random() < 0.5, key_changes=key_changes,
        )  # fmt: skip
        options = FlatOptions(ts_ms=TS_MS, routing=routing, old=old)
        found = decode_messages(files, options, schema_sql=schema)
        expected = lines(entries, routing, exact=old == OLD_EXACT)
        assert b"".join(found).decode() == "".join(
            f'{{"topic":"{line.topic}","partition":{line.partition},"message":{line.message}}}\n'
            for line in expected
        )


def test_random_tables(server: Server, tmp_path: Path) -> None:
    _try_seeds(server, range(SEEDS - 1), tmp_path)
    _try_seeds(server, range(SEEDS - 1, SEEDS), tmp_path, WHOLE)


@pytest.mark.soak
def test_many_random_tables(server: Server, tmp_path: Path) -> None:
    for low in range(100, 100 + SOAK_SEEDS, 10):
        _try_seeds(server, range(low, min(low + 5, 100 + SOAK_SEEDS)), tmp_path)
        _try_seeds(server, range(low + 5, min(low + 10, 100 + SOAK_SEEDS)), tmp_path, WHOLE)
