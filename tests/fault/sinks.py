"""Sinks of a fault run: a mirror in a database, and a lake that has every change, beside the
subscribers."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pymysql
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

import ray_canal as canal
from tests.fault.truth import first_difference
from tests.proxy import Proxy
from tests.servers import Server
from tests.workload import Workload, differences

DESTINATION = "faults"
MIRRORED = "mirrored"
_PLACE = "timeline", "journal_name", "position", "row"


class FaultSink(Protocol):
    """A `[[sink]]` of the deployment and what its target holds."""

    client_id: int

    def section(self) -> str:
        """Return its section of canal.toml."""
        ...

    def has(self, marker: int) -> bool:
        """Return whether the target has this row of the table `marker`."""
        ...

    def differences(self, work: Workload, changes: Iterable[Any]) -> list[str]:
        """Return how the target differs from the source, whose changes are these."""
        ...

    def close(self) -> None: ...


class DatabaseMirror:
    """A mirror in a server of its own, behind a proxy."""

    client_id = 11

    def __init__(self, target: Server) -> None:
        self.target = target
        self.proxy = Proxy((target.host, target.port))

    def section(self) -> str:
        return _section("mirror", self.client_id, "mysql") + (
            f'mirror.address = "{self.proxy.address}"\nmirror.username = "root"\n'
            f'mirror.database = "{MIRRORED}"\n'
        )

    def has(self, marker: int) -> bool:
        statement = f"select count(*) from {MIRRORED}.marker where id = {marker}"
        with contextlib.suppress(pymysql.err.MySQLError, OSError):
            return bool(self.target.execute(statement)[0][0])
        return False  # it is down, or the table is not there yet

    def differences(self, work: Workload, changes: Iterable[Any]) -> list[str]:
        mine = Workload(self.target, seed=work.seed, tables=0, database=MIRRORED)
        mine.tables = work.tables
        return differences(mine.rows(), work.rows())

    def close(self) -> None:
        self.proxy.__exit__(None, None, None)


class LakeLog:
    """Tables of Delta that have every change as a row."""

    client_id = 12

    def __init__(self, folder: Path, database: str) -> None:
        self._folder, self._database = folder, database

    def section(self) -> str:
        return _section("lake", self.client_id, "delta") + (
            f'lake.path = "{self._folder}"\nlake.mode = "append"\ncommit_interval_s = 1.0\n'
        )

    def _rows(self, table: str, columns: list[str]) -> list[dict[str, Any]]:
        try:
            found = DeltaTable(self._folder / self._database / table)
        except TableNotFoundError:
            return []
        rows: list[dict[str, Any]] = found.to_pyarrow_table(columns=columns).to_pylist()
        return rows

    def has(self, marker: int) -> bool:
        found = self._rows("marker", ["after"])
        return any(row["after"] and row["after"]["id"] == marker for row in found)

    def differences(self, work: Workload, changes: Iterable[Any]) -> list[str]:
        """Each id is there once. The changes of a table by their ids, of which those that a new
        timeline repeats count once, are those of the source, in its order."""
        wanted: dict[str, list[Any]] = {
            f"{self._database}.{table.name}": [] for table in work.tables
        }
        seen: Counter[Any] = Counter()
        for name, transaction, _, *keys in changes:
            if name in wanted:
                change = transaction, *keys
                seen[name, change] += 1
                wanted[name].append((*change, seen[name, change]))
        return [
            each for name, rows in wanted.items() for each in self._table_differences(name, rows)
        ]

    def _table_differences(self, name: str, wanted: list[Any]) -> Iterator[str]:
        rows = self._rows(name.rpartition(".")[2], [*_PLACE, "transaction", "before", "after"])
        rows.sort(key=canal.row_id)
        again = len(rows) - len({canal.row_id(row) for row in rows})
        if again:
            yield f"{name}: {again} ids are there again"
        once: dict[Any, None] = {}
        seen: Counter[Any] = Counter()
        for row in rows:
            keys = (row[image] and row[image]["id"] for image in ("before", "after"))
            change = row["transaction"], *keys
            seen[row["timeline"], change] += 1
            once.setdefault((*change, seen[row["timeline"], change]))
        there = list(once)
        if there != wanted:
            at = first_difference(there, wanted)
            yield (
                f"{name}: {len(there)} changes are there, the logs have {len(wanted)}; the first "
                f"difference is change {at}: {there[at : at + 2]} is not {wanted[at : at + 2]}"
            )

    def close(self) -> None: ...


def _section(name: str, client_id: int, kind: str) -> str:
    return (
        f'[[sink]]\nname = "{name}"\ndestination = "{DESTINATION}"\ntype = "{kind}"\n'
        f"client_id = {client_id}\nretry_max_s = 2.0\n"
    )


