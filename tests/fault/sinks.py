"""Sinks of a fault run: a mirror in a database, and a lake that has every change, beside the
subscribers."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any, Protocol

import pymysql
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from tests.proxy import Proxy
from tests.servers import Server
from tests.workload import Workload

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

    def differences(self, work: Workload, changes: Iterable[Any] | None) -> list[str]:
        """Return how the target differs from the source, whose changes are these, if known."""
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

    def differences(self, work: Workload, changes: Iterable[Any] | None) -> list[str]:
        mine = Workload(self.target, seed=work.seed, tables=0, database=MIRRORED)
        mine.tables = work.tables
        return list(_differences(mine.rows(), work.rows()))

    def kill(self, down_s: float) -> None:
        """SIGKILL of the target, which comes back after so many seconds."""
        self.target.kill()
        time.sleep(down_s)
        self.target.start()

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

    def differences(self, work: Workload, changes: Iterable[Any] | None) -> list[str]:
        """Each id is there once. The changes of a table by their ids, of which those that a new
        timeline repeats count once, are those of the source, in its order."""
        if changes is None:
            return []
        there: dict[str, list[Any]] = {}
        found = []
        columns = [*_PLACE, "transaction", "before", "after"]
        for table in work.tables:
            rows = self._rows(table.name, columns)
            ids = [
                (row["timeline"], _number(row["journal_name"]), row["position"], row["row"])
                for row in rows
            ]
            if len(set(ids)) < len(ids):
                found.append(f"{table.name}: {len(ids) - len(set(ids))} ids are there again")
            once: dict[Any, Any] = {}
            seen: Counter[Any] = Counter()
            for (timeline, *_), row in sorted(zip(ids, rows, strict=True), key=itemgetter(0)):
                keys = (row[image] and row[image]["id"] for image in ("before", "after"))
                change = row["transaction"], *keys
                seen[timeline, change] += 1
                once.setdefault((*change, seen[timeline, change]))
            there[f"{self._database}.{table.name}"] = list(once)
        wanted: dict[str, list[Any]] = {name: [] for name in there}
        seen = Counter()
        for name, transaction, _, *keys in changes:
            if name in wanted:
                change = transaction, *keys
                seen[name, change] += 1
                wanted[name].append((*change, seen[name, change]))
        for name, rows in wanted.items():
            if rows != there[name]:
                at = next(
                    (n for n, (a, b) in enumerate(zip(rows, there[name], strict=False)) if a != b),
                    min(len(rows), len(there[name])),
                )
                found.append(
                    f"{name}: {len(there[name])} changes are there, the logs have {len(rows)}; the "
                    f"first difference is change {at}: {there[name][at : at + 2]} is not "
                    f"{rows[at : at + 2]}"
                )
        return found

    def close(self) -> None: ...


def _section(name: str, client_id: int, kind: str) -> str:
    return (
        f'[[sink]]\nname = "{name}"\ndestination = "{DESTINATION}"\ntype = "{kind}"\n'
        f"client_id = {client_id}\nretry_max_s = 2.0\n"
    )


def _number(journal_name: str) -> int:
    return int(journal_name.rpartition(".")[2])


def _differences(mine: dict[str, Any], source: dict[str, Any]) -> Iterator[str]:
    for table, rows in source.items():
        ours = mine.get(table, {})
        for key in rows.keys() | ours.keys():
            if rows.get(key) != ours.get(key):
                yield f"{table}[{key}]: {ours.get(key)} is not {rows.get(key)}"
