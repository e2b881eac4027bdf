"""Which rows servers have logged, read by MySQL's own mysqlbinlog, from copies that outlive a purge
and a reset."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import ray_canal as canal
from tests.servers import Server
from tests.servers.run import mysql_tool

Row = tuple[str, str, int, int | None, int | None]
"""Table, its transaction's GTID, number in the transaction, key before and key after."""

_WANTED = r"^(SET @@SESSION.GTID_NEXT|### (INSERT|UPDATE|DELETE|WHERE|SET)|###   @1=)"
_CHANGE = re.compile(r"### (?:INSERT INTO|UPDATE|DELETE FROM) `(.*?)`\.`(.*?)`")


def first_difference(found: Sequence[Any], truth: Sequence[Any]) -> int:
    """The index of the first row in which they differ, or of the end of the shorter one."""
    pairs = enumerate(zip(found, truth, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(found), len(truth)))


def rows_of(logs: Iterable[Path]) -> Iterator[Row]:
    """Of these files in this order; keys are a table's first column, an integer."""
    command = [*mysql_tool("mysqlbinlog"), "--base64-output=DECODE-ROWS", "-v", *map(str, logs)]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE) as reading,
        subprocess.Popen(
            ["grep", "-aE", _WANTED], stdin=reading.stdout, stdout=subprocess.PIPE,
            text=True, errors="replace",
        ) as found,
    ):  # fmt: skip
        assert reading.stdout is not None
        assert found.stdout is not None
        reading.stdout.close()
        yield from _rows(found.stdout)
    assert reading.returncode == 0, f"mysqlbinlog ended with {reading.returncode}"


def _rows(lines: Iterable[str]) -> Iterator[Row]:
    gtid, number, table = "", -1, ""
    is_after = False
    keys: list[int | None] = [None, None]
    for line in lines:
        if line.startswith("###   @1="):
            keys[is_after] = int(line[9:].split()[0])
        elif line.startswith("### WHERE"):
            is_after = False
        elif line.startswith("### SET"):
            is_after = True
        else:
            if table:
                yield table, gtid, number, keys[0], keys[1]
                table, keys = "", [None, None]
            if change := _CHANGE.match(line):
                table, number = f"{change[1]}.{change[2]}", number + 1
            else:
                gtid, number = line.split("'")[1], -1
    if table:
        yield table, gtid, number, keys[0], keys[1]


def rows_decoded(logs: Iterable[Path]) -> Iterator[Row]:
    """The same of MariaDB's files, whose GTIDs MySQL's mysqlbinlog does not know: as decode_files
    reads them, which the golden files hold against Canal."""
    for log in logs:
        found = []
        for rows in canal.decode_files([log]):
            names = rows.schema.metadata
            table = f"{names[b'canal.schema'].decode()}.{names[b'canal.table'].decode()}"
            for row in rows.to_pylist():
                before, after = (row[image] and row[image]["id"] for image in ("before", "after"))
                name = table, row["transaction"], row["transaction_row"], before, after
                found.append((canal.row_id(row), name))
        yield from (name for _, name in sorted(found))


class Archive:
    """What a server has logged since it was made: links to its files, taken before it removes
    them. Each reset begins an era, whose names and GTIDs mean something else."""

    def __init__(self, server: Server, folder: Path) -> None:
        self._server, self._folder = server, folder
        self._era = 0

    def keep(self) -> None:
        """Take the files that there are; the last one grows on."""
        folder = self._folder / f"{self._era:04d}"
        folder.mkdir(parents=True, exist_ok=True)
        for log in self._server.binlogs():
            kept = folder / log.name
            if not kept.exists():
                os.link(log, kept)

    def end_era(self) -> None:
        self._era += 1

    def eras(self) -> list[list[Path]]:
        """The files of each, in order."""
        return [sorted(era.iterdir()) for era in sorted(self._folder.iterdir())]
