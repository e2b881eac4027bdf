"""The workloads: binlog files that a real MySQL 9.7 or MariaDB wrote, made once and kept; nearly a
gigabyte each, so that the quickest readers take a second or two.

    W1   bulk: 8 M inserted rows of 8 columns, 1,000 a transaction
    W2   small: 1.6 M transactions of one row on the same table, 50/40/10 insert/update/delete
    W3   wide: 1.2 M inserted rows of 60 mixed columns, 200 a statement
    W4   MariaDB: W2's transactions, with what MariaDB writes unasked: each statement's text

The server computes every value from the row's number and a seed, so that the same scale gives the
same rows.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.servers import Server, start

SEED = 20260901
MYSQL, MARIADB = "mysql97", "mariadb"
Progress = Callable[[int], None]

_ITEM = """CREATE TABLE bench.item (
  id int unsigned NOT NULL PRIMARY KEY, owner bigint NOT NULL, name varchar(20), city varchar(20),
  color varchar(20), price decimal(10,2), changed datetime(3), note text)"""

_ITEM_VALUES = """
  h * 2147483647, left(sha2(h, 224), 4 + h % 17), left(sha2(h, 224), 6 + h % 13),
  elt(1 + h % 5, 'red', 'green', 'midnight blue', 'grün', 'ultraviolet'), h % 1000000000 / 100,
  timestampadd(microsecond, h % 86400000 * 1000, '2026-03-01 00:00:00.000'),
  rpad(sha2(h + 1, 224), 60, sha2(h, 224))"""

_WIDE_KINDS = (
    # a type, and an expression of h (a pseudo-random 32-bit number per row and column)
    ("tinyint", "h % 256 - 128"),
    ("smallint unsigned", "h % 65536"),
    ("mediumint", "h % 16777216 - 8388608"),
    ("int", "h - 2147483648"),
    ("bigint unsigned", "cast(h AS unsigned) * 4294967291"),
    ("float", "h / 65536"),
    ("double", "h / 1048573"),
    ("decimal(18,6)", "h * 1000 / 1000000"),
    ("date", "adddate('1990-01-01', h % 20000)"),
    ("datetime", "timestampadd(second, h, '1970-01-01')"),
    ("datetime(6)", "timestampadd(microsecond, h * 977, '2020-01-01')"),
    ("timestamp(3) null", "timestampadd(second, h % 1000000000, '1990-01-01')"),
    ("time(2)", "sec_to_time(h % 360000 - 180000)"),
    ("year", "1901 + h % 255"),
    ("char(24)", "left(sha2(h, 224), 8 + h % 17)"),
    ("varchar(80)", "left(sha2(h, 224), 16 + h % 40)"),
    ("text", "rpad('', 40 + h % 60, sha2(h, 224))"),
    ("varbinary(16)", "unhex(left(sha2(h, 224), 2 * (h % 17)))"),
    ("enum('new','open','paid','sent','done')", "1 + h % 5"),
    ("set('a','b','c','d','e','f')", "h % 64"),
    ("json", "json_object('k', h, 's', left(sha2(h, 224), 6), 'on', h % 2 = 0)"),
)


@dataclass(frozen=True, slots=True)
class Workload:
    """One workload at full scale."""

    name: str
    rows: int
    rows_per_statement: int
    version: int
    """Part of the cached files' name; goes up when what is written changes."""
    server: str = MYSQL
    """The kind of server that writes it, and that readers read it from."""


WORKLOADS = {
    "W1": Workload("W1", 8_000_000, 1000, 1),
    "W2": Workload("W2", 1_600_000, 1, 1),
    "W3": Workload("W3", 1_200_000, 200, 2),
    "W4": Workload("W4", 1_000_000, 1, 1, MARIADB),
}


@dataclass(frozen=True, slots=True)
class Made:
    """A workload's binlog files on disk."""

    name: str
    rows: int
    size_bytes: int
    files: tuple[str, ...]
    server: str = MYSQL


def cache_folder() -> Path:
    """Where workloads and peers are kept: $RAY_CANAL_BENCH_CACHE, else ~/.cache/ray_canal/bench."""
    given = os.environ.get("RAY_CANAL_BENCH_CACHE")
    return Path(given) if given else Path.home() / ".cache" / "ray_canal" / "bench"


def make(workload: Workload, scale: float, progress: Progress) -> Made:
    """The workload's files at `scale` (1.0: full), from the cache or from a new server."""
    step = workload.rows_per_statement
    rows = max(1, round(workload.rows * scale / step)) * step
    folder = cache_folder() / f"{workload.name}-v{workload.version}-{rows}"
    manifest = folder / "made.json"
    if not manifest.exists():
        _write(workload, rows, folder, progress)
    made = json.loads(manifest.read_text(encoding="ascii"))
    files = tuple(str(folder / name) for name in made["files"])
    size_bytes = sum(os.path.getsize(name) for name in files)
    return Made(workload.name, rows, size_bytes, files, workload.server)


def _write(workload: Workload, rows: int, folder: Path, progress: Progress) -> None:
    making = folder.with_suffix(f".{os.getpid()}")
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir(parents=True)
    # The server's directory on its own: its socket's path must be short.
    with tempfile.TemporaryDirectory(prefix="ray_canal_bench_") as temporary:
        redo = "innodb-log-file-size" if workload.server == MARIADB else "innodb-redo-log-capacity"
        options: dict[str, str | None] = {
            "max-binlog-size": "1G", redo: "512M", "innodb-buffer-pool-size": "512M",
            "innodb-doublewrite": "OFF", "innodb-flush-log-at-trx-commit": "0",
        }  # fmt: skip
        with start(workload.server, Path(temporary), options) as server:
            prepare(server)
            server.execute("FLUSH BINARY LOGS")  # the tables' making stays out of the files
            before = len(server.binlogs())
            with contextlib.closing(server.connect(database="bench")) as connection:
                _FILLERS[workload.name](connection.cursor(), rows, progress)
            server.execute("FLUSH BINARY LOGS")
            made = server.binlogs()[before - 1 : -1]
            for path in made:
                shutil.copyfile(path, making / path.name)
    names = [path.name for path in made]
    (making / "made.json").write_text(json.dumps({"files": names, "rows": rows}), encoding="ascii")
    shutil.rmtree(folder, ignore_errors=True)
    making.rename(folder)


def prepare(server: Server) -> None:
    """Make the tables of all workloads."""
    wide = ",\n".join(f"c{k} {_WIDE_KINDS[k % len(_WIDE_KINDS)][0]}" for k in range(59))
    server.execute(
        "CREATE DATABASE bench",
        _ITEM,
        f"CREATE TABLE bench.wide (id int unsigned NOT NULL PRIMARY KEY,\n{wide})",
        "CREATE TABLE bench.number (n int PRIMARY KEY)",
        "INSERT INTO bench.number WITH RECURSIVE r AS (SELECT 0 n UNION ALL SELECT n + 1 FROM r"
        " WHERE n < 999) SELECT n FROM r",
    )


def _hash(number: str) -> str:
    """A pseudo-random 32-bit number of a row's number."""
    return f"cast(crc32(concat({SEED}, '-', {number})) AS signed)"


def _fill_bulk(cursor: Any, rows: int, progress: Progress) -> None:
    step = WORKLOADS["W1"].rows_per_statement
    for first in range(0, rows, step):
        cursor.execute(
            f"INSERT INTO bench.item SELECT id, {_ITEM_VALUES} FROM (SELECT n + {first} + 1 id, "
            f"{_hash(f'n + {first}')} h FROM bench.number WHERE n < {step} ORDER BY n) numbered"
        )
        progress(step)


def _fill_small(cursor: Any, rows: int, progress: Progress) -> None:
    """Row k inserts, updates or deletes by its last digit; deletes and updates meet old rows."""
    cursor.execute(
        f"""CREATE PROCEDURE bench.change(low int, high int) BEGIN
          DECLARE k int DEFAULT low; DECLARE h bigint; DECLARE t bigint;
          WHILE k < high DO
            SET h = {_hash("k")}, t = k - 5;
            IF k % 10 < 5 THEN INSERT INTO bench.item SELECT k, {_ITEM_VALUES};
            ELSEIF k % 10 < 9 THEN
              UPDATE bench.item SET owner = h, name = left(sha2(h, 224), 4 + h % 17),
                price = h % 100000, changed = timestampadd(second, k, '2026-03-01') WHERE id = t;
            ELSE DELETE FROM bench.item WHERE id = t; END IF;
            SET k = k + 1;
          END WHILE; END"""
    )
    cursor.execute("FLUSH BINARY LOGS")
    step = 2000
    for first in range(0, rows, step):
        high = min(rows, first + step)
        cursor.execute(f"CALL bench.change({first}, {high})")
        progress(high - first)


def _fill_wide(cursor: Any, rows: int, progress: Progress) -> None:
    step = WORKLOADS["W3"].rows_per_statement
    columns = []
    for k in range(59):
        expression = re.sub(r"\bh\b", f"h{k}", _WIDE_KINDS[k % len(_WIDE_KINDS)][1])
        columns.append(_nullable(expression, k))
    for first in range(0, rows, step):
        hashes = ", ".join(f"{_hash(f'(n + {first}) * 60 + {k}')} h{k}" for k in range(59))
        cursor.execute(
            f"INSERT INTO bench.wide SELECT id, {', '.join(columns)} FROM (SELECT n + {first} + 1"
            f" id, {hashes} FROM bench.number WHERE n < {step} ORDER BY n) numbered"
        )
        progress(step)


def _nullable(expression: str, k: int) -> str:
    """Every third column is NULL in one row of eight."""
    return f"if(h{k} % 8 = 3, NULL, {expression})" if k % 3 == 0 else expression


_FILLERS: dict[str, Callable[[Any, int, Progress], None]] = {
    "W1": _fill_bulk,
    "W2": _fill_small,
    "W3": _fill_wide,
    "W4": _fill_small,
}


@contextlib.contextmanager
def served(made: Made) -> Iterator[Server]:
    """A server whose binlog is the workload's files, for peers that read from servers alone."""
    with (
        tempfile.TemporaryDirectory(prefix="ray_canal_bench_") as temporary,
        start(made.server, Path(temporary)) as server,
    ):
        serve_files(server, made)
        yield server


def serve_files(server: Server, made: Made) -> None:
    """Make the workload's files a running server's binlog, instead of its own."""
    server.stop()
    for path in server.datadir.glob("mysql-bin.*"):
        path.unlink()
    names = [f"mysql-bin.{number:06}" for number in range(1, len(made.files) + 1)]
    for name, source in zip(names, made.files, strict=True):
        shutil.copyfile(source, server.datadir / name)
    index = "".join(f"./{name}\n" for name in names)
    (server.datadir / "mysql-bin.index").write_text(index, encoding="ascii")
    server.start()


def described(made: Made) -> dict[str, Any]:
    """What bench.json says of a workload."""
    fields = dataclasses.asdict(made)
    del fields["files"], fields["name"]
    return fields
