"""Files of a Delta table that several write for one commit: the rows are those of a merge."""

from __future__ import annotations

import datetime as dt
import pickle
import random
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from ray_canal.sinks.lakes import delta_files, file_shares
from ray_canal.sinks.lakes.delta import DeltaFile
from ray_canal.sinks.lakes.file_shares import Writers, in_threads
from ray_canal.sinks.port import SinkError
from ray_canal.views.row_places import NOWHERE, RowPlace
from tests.fixture_disk import SmallDisk

SCHEMA = pa.schema([("a", pa.int32()), ("b", pa.string()), ("v", pa.float64())])
KEY = ["a", "b"]


@pytest.fixture(autouse=True)
def _small_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_shares, "_SHARE_ROWS", 1)


def rows(keys: list[tuple[int, str]], pick: random.Random) -> pa.Table:
    return pa.Table.from_pylist([{"a": a, "b": b, "v": pick.random()} for a, b in keys], SCHEMA)


def pickled(function: Any, common: Any, pieces: Any) -> Any:
    """A `Spread` to other processes, but for these."""
    back = lambda value: pickle.loads(pickle.dumps(value))  # noqa: E731
    return [back(function)(*back((common, piece))) for piece in pieces]


def held(uri: str) -> list[dict[str, Any]]:
    found = pa.table(DeltaTable(uri).to_pyarrow_table()).to_pylist()
    return sorted(found, key=lambda row: (row["a"], row["b"]))


@pytest.mark.parametrize("seed", range(2))
def test_the_rows_are_those_of_a_merge(seed: int, tmp_path: Path) -> None:
    """Keys of two columns, batches of any size, files of any number; a column that comes later."""
    pick = random.Random(seed)
    uris = [str(tmp_path / name) for name in ("merged", "shared")]
    tables = [DeltaFile(uris[0], "a"), DeltaFile(uris[1], "a", None, Writers(3, pickled))]
    for table in tables:
        table.create(SCHEMA)
    for number in range(1, 12):
        keys = [(pick.randrange(30), pick.choice("xyz")) for _ in range(pick.randrange(1, 40))]
        keys = sorted(set(keys))
        middle = pick.randrange(len(keys) + 1)
        gone, new = rows(keys[:middle], pick).select(KEY), rows(keys[middle:], pick)
        if number > 6:
            new = new.append_column("late", pa.array([number] * len(new), pa.int64()))
        for table in tables:
            if number == 7:
                table.add(pa.schema([("late", pa.int64())]))
            table.merge(KEY, gone, new, RowPlace(1, 1, number, 0))
            assert table.place == RowPlace(1, 1, number, 0)
        assert held(uris[0]) == held(uris[1])
        assert len(held(uris[1])) == DeltaTable(uris[1]).count()  # from the statistics
    assert DeltaTable(uris[1]).transaction_version("a#position") == 11
    by_reader = DeltaTable(uris[1]).to_pyarrow_table(filters=[("a", ">=", 10)])
    assert len(by_reader) == sum(row["a"] >= 10 for row in held(uris[0]))


KEYS = {
    "long": (pa.int64(), [2**63 - 1 - n for n in range(40)]),
    "decimal": (pa.decimal128(20, 0), [Decimal(2**63 + n) for n in range(40)]),
    "fraction": (pa.decimal128(9, 2), [Decimal(n) / 4 for n in range(40)]),
    "date": (pa.date32(), [dt.date(2026, 1, 1) + dt.timedelta(n) for n in range(40)]),
    "instant": (
        pa.timestamp("us", "UTC"),
        [dt.datetime(2026, 1, 1, 0, 0, 0, n, dt.timezone.utc) for n in range(40)],
    ),
    "text": (pa.string(), ["\U0001f600" * (n % 3) + "x" * 90 + chr(100 + n) for n in range(40)]),
    "bytes": (pa.binary(), [bytes([255 - n]) * 3 for n in range(40)]),
    "double": (pa.float64(), [n / 3 - 5 for n in range(40)]),
}
"""Of each type of a lake's keys: 40 of them."""


@pytest.mark.parametrize("writers", [1, 3])
@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_any_type(kind: str, writers: int, tmp_path: Path) -> None:
    """In files that delta-rs has written, and in those that are written here."""
    uri, (key_type, keys) = str(tmp_path / "t"), KEYS[kind]

    def of(numbers: Iterable[int], v: int) -> pa.Table:
        chosen = [keys[n] for n in numbers]
        return pa.table({"k": pa.array(chosen, key_type), "v": pa.array([v] * len(chosen))})

    for first in (0, 10, 20):
        write_deltalake(uri, of(range(first, first + 10), 0), mode="append")
    table, truth = DeltaFile(uri, "a", None, Writers(writers)), dict.fromkeys(keys[:30], 0)
    for step in range(1, 6):
        numbers = [n for n in range(step, 40, 7) if n != step * 2]
        table.merge(["k"], of([step * 2], 0).select(["k"]), of(numbers, step),
                    RowPlace(1, 1, step, 0))  # fmt: skip
        truth.pop(keys[step * 2], None)
        truth.update(dict.fromkeys((keys[n] for n in numbers), step))
        found = pa.table(DeltaTable(uri).to_pyarrow_table()).to_pylist()
        assert len(found) == len(truth)
        assert {row["k"]: row["v"] for row in found} == truth


def test_several_write_and_files_without_the_keys_stay(tmp_path: Path) -> None:
    uri, calls = str(tmp_path / "t"), []

    def counted(function: Any, common: Any, pieces: Any) -> Any:
        calls.append(len(pieces))
        return in_threads(function, common, pieces)

    for first in (0, 100, 200):
        write_deltalake(uri, rows([(n, "x") for n in range(first, first + 100)], random.Random(1)),
                        mode="append")  # fmt: skip
    before = set(DeltaTable(uri).file_uris())
    new = rows([(n, "x") for n in range(120, 130)] + [(n, "new") for n in range(150, 160)],
               random.Random(2))  # fmt: skip
    table = DeltaFile(uri, "a", None, Writers(4, counted))
    table.merge(KEY, new.select(KEY).slice(0, 0), new, RowPlace(1, 1, 1, 0))
    assert calls == [4]
    assert len(before - set(DeltaTable(uri).file_uris())) == 1
    assert len(held(uri)) == 310
    table.merge(KEY, pa.table({"a": pa.array([7777], pa.int32()), "b": ["x"]}),
                new.slice(0, 0), RowPlace(1, 1, 2, 0))  # fmt: skip
    assert table.place == RowPlace(1, 1, 2, 0)  # nothing but the place
    assert len(held(uri)) == 310


@pytest.mark.parametrize("other", ["compact", "append", "merge"])
def test_a_commit_of_somebody_else_between_fails_it(other: str, tmp_path: Path) -> None:
    """Whatever it was: the files that are written again are those that were read."""
    uri, pick = str(tmp_path / "t"), random.Random(1)
    for first in (0, 100):
        write_deltalake(uri, rows([(n, "x") for n in range(first, first + 100)], pick),
                        mode="append")  # fmt: skip
    ours = DeltaFile(uri, "a", None, Writers(2))
    if other == "compact":
        assert DeltaFile(uri, "care").compact() == (2, 1)
    elif other == "append":
        write_deltalake(uri, rows([(900, "x")], pick), mode="append")
    else:
        new = rows([(5, "x"), (900, "x")], pick)
        DeltaFile(uri, "a").merge(KEY, new.select(KEY).slice(2), new, RowPlace(1, 1, 1, 0))
    before = held(uri)
    new = rows([(150, "x"), (901, "x")], pick)
    with pytest.raises(SinkError) as caught:
        ours.merge(KEY, new.select(KEY).slice(2), new, RowPlace(1, 1, 1, 0))
    assert caught.value.kind == "retry"
    assert held(uri) == before
    DeltaFile(uri, "a", None, Writers(2)).merge(
        KEY, new.select(KEY).slice(2), new, RowPlace(1, 1, 2, 0)
    )
    assert len(held(uri)) == len(before) + 1


def test_long_files_are_several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_files, "_FILE_BYTES", 1000)
    monkeypatch.setattr(delta_files, "_GROUP_ROWS", 400)
    uri = str(tmp_path / "t")
    for first in (0, 500):
        write_deltalake(uri, rows([(n, "x") for n in range(first, first + 500)], random.Random(1)),
                        mode="append")  # fmt: skip
    new = rows([(0, "x"), (500, "x")], random.Random(2))
    table = DeltaFile(uri, "a", None, Writers(2))
    monkeypatch.setattr(file_shares, "_SHARE_ROWS", 1000)
    table.merge(KEY, new.select(KEY).slice(2), new, RowPlace(1, 1, 1, 0))
    assert len(DeltaTable(uri).file_uris()) == 3
    assert len(held(uri)) == 1000


def test_small_commits_leave_no_small_row_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is written again and again, each time with a few rows more, in batches."""
    monkeypatch.setattr(delta_files, "_BATCH_ROWS", 7)
    uri, pick = str(tmp_path / "t"), random.Random(1)
    table = DeltaFile(uri, "a", None, Writers(2))
    monkeypatch.setattr(file_shares, "_SHARE_ROWS", 1000)
    table.create(SCHEMA)
    for number in range(20):
        new = rows([(0, "x"), (100 + number, "x")], pick)
        table.merge(KEY, new.select(KEY).slice(2), new, RowPlace(1, 1, number, 0))
    (path,) = DeltaTable(uri).file_uris()
    assert pq.ParquetFile(path).num_row_groups == 1
    assert [row["a"] for row in held(uri)] == [0, *range(100, 120)]


@pytest.mark.parametrize("kind", ["partitioned", "by_name", "lacking"])
def test_what_is_not_known_here_is_merged(kind: str, tmp_path: Path) -> None:
    def refuse(*_: Any) -> Any:
        raise AssertionError("not by shares")

    uri = str(tmp_path / "t")
    first = rows([(n, "x") for n in range(100)], random.Random(1))
    write_deltalake(uri, first, partition_by=["b"] if kind == "partitioned" else None)
    if kind == "by_name":
        DeltaTable(uri).alter.add_constraint({"positive": "a >= 0"})
    new = rows([(5, "x"), (500, "x")], random.Random(2))
    if kind == "lacking":
        new = new.select(KEY)
    table = DeltaFile(uri, "a", None, Writers(2, refuse))
    table.merge(KEY, new.select(KEY).slice(2), new, RowPlace(1, 1, 1, 0))
    assert table.place is not None
    assert table.place != NOWHERE
    assert len(held(uri)) == 101
    if kind == "lacking":
        assert held(uri)[5]["v"] == first["v"][5].as_py()


def test_values_that_become_text_are_the_servers(tmp_path: Path) -> None:
    """As SELECT shows them after an ALTER TABLE (tests/integration/test_types.py)."""
    uri = str(tmp_path / "t")
    moment = dt.datetime(2026, 11, 21, 5, 31, 46, tzinfo=dt.timezone.utc)
    given = pa.table({"a": [1], "f": pa.array([1e20], pa.float32()), "at": [moment]})
    table = DeltaFile(uri, "a")
    table.append(given, RowPlace(1, 1, 1, 0))
    text = [pa.field("a", pa.int64()), pa.field("f", pa.string()), pa.field("at", pa.string())]
    table.rewrite(pa.schema(text))
    assert pa.table(DeltaTable(uri).to_pyarrow_table()).to_pylist() == [
        {"a": 1, "f": "1e20", "at": "2026-11-21 05:31:46"}
    ]


def test_a_full_disk_is_told_in_one_line(disk: SmallDisk) -> None:
    disk.fill()
    rows = pa.table({"a": [1]})
    with pytest.raises((OSError, DeltaError)) as caught:
        write_deltalake(str(disk.folder / "t"), rows)
    text = delta_files.plain_text(caught.value)
    assert text.isprintable()
    assert "Unable to copy data to file: No space left on device" in text
