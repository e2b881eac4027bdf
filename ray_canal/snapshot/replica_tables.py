"""Tables whose rows are read from a replica (snapshot.address), against the source's: a row that is
read has to be the one that the source's log has.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ray_canal.errors import ServerSettingRefused, TableMetaMismatch
from ray_canal.model.table_meta import TableMeta
from ray_canal.schema.names import Name
from ray_canal.snapshot.columns import selection
from ray_canal.snapshot.marks import wait_until_executed
from ray_canal.snapshot.tables import SnapshotTable, tables_now
from ray_canal.source.catalog import Catalog, replication_filters
from ray_canal.source.catalog_tables import CatalogTables

_LAG_LIMIT_S = 10.0


@dataclass(frozen=True, slots=True)
class ServerTables:
    """A server's tables, and what it says of itself."""

    catalog: Catalog
    described: CatalogTables


class ReplicaTables:
    """Tables of a replica as the source has them."""

    def __init__(self, address: str, replica: ServerTables, source: ServerTables) -> None:
        """`address`: the replica's."""
        self._address = address
        self._replica = replica
        self._source = source

    def now(self, names: Sequence[Name]) -> dict[Name, SnapshotTable]:
        """Return those of these tables that the source has, with its columns and engine, and the
        replica's key. Raises ServerSettingRefused: the replica may lack their rows; ConnectionLost:
        it is not as far as the source; TableMetaMismatch: it has a table otherwise."""
        refuse_left_out(self._replica.catalog, self._address, names)
        found, wrong = self._compared(names)
        if wrong:
            self._wait(wrong)
            found, wrong = self._compared(names)
        if wrong:
            raise TableMetaMismatch(
                f"MySQL at {self._address} (snapshot.address) has tables otherwise than the "
                f"source: {'; '.join(wrong)}"
            )
        return found

    def _compared(self, names: Sequence[Name]) -> tuple[dict[Name, SnapshotTable], list[str]]:
        """Return the tables, and what is wrong."""
        at_source = tables_now(self._source.catalog, self._source.described, names)
        at_replica = tables_now(self._replica.catalog, self._replica.described, names)
        found, wrong = {}, []
        for name, table in at_source.items():
            other = at_replica.get(name)
            if why := "it is not there" if other is None else _difference(table, other):
                wrong.append(f"{table.meta.full_name}: {why}")
            elif other is not None:
                found[name] = replace(
                    other, meta=table.meta, transactional=table.transactional
                )
        return found, wrong

    def _wait(self, wrong: Sequence[str]) -> None:
        """Return once the replica has executed all that the source has now."""

        def late(missing: str) -> str:
            return (
                f"MySQL at {self._address} (snapshot.address) has tables otherwise than the "
                f"source, and has not executed {missing} yet: {'; '.join(wrong)}"
            )

        needed = self._source.catalog.gtid_executed()
        wait_until_executed(self._replica.catalog, needed, _LAG_LIMIT_S, late)


def _difference(table: SnapshotTable, other: SnapshotTable) -> str:
    """Return why rows of a table of the source cannot be read by its columns from the other one;
    empty: they can."""
    wanted, there = _columns(table.meta), _columns(other.meta)
    for name, how in wanted.items():
        if name not in there:
            return f"it has no column {name}"
        if there[name] != how:
            return f"its column {name} is of another type"
    if table.key and not other.key:
        return f"{other.keyless}; give it the source's key {table.index} ({', '.join(table.key)})"
    added = [name for name in other.key if name not in wanted]
    return f"its key has {added[0]}, which the source's table has not" if added else ""


def _columns(meta: TableMeta) -> dict[str, tuple[bytes, tuple[str, ...]]]:
    """Return how the values of each column are read."""
    lines = selection(meta).plan.lines
    return {
        column.name: (line.tobytes(), column.labels)
        for column, line in zip(meta.columns, lines, strict=True)
    }


def refuse_left_out(replica: Catalog, address: str, names: Iterable[Name]) -> None:
    """Raise ServerSettingRefused if the replica at an address may lack rows of these tables by how
    it replicates now."""
    status, why = replica.replication(), replica.passes_over_errors()
    by_table = ((name, left_out_by(status, *name)) for name in names)
    of_one = (f"{by} may keep rows of {'.'.join(name)} out" for name, by in by_table if by)
    if why := why or next(of_one, ""):
        raise ServerSettingRefused(
            f"MySQL at {address} (snapshot.address) may lack rows of the source: {why}"
        )


def left_out_by(status: Iterable[Mapping[str, Any]], schema: str, table: str) -> str:
    """Return the replication filter by which a replica may lack a table's rows, as SHOW REPLICA
    STATUS calls it; empty: none."""
    for row in status:
        admitted: dict[str, bool] = {}
        for name, value in replication_filters(row).items():
            fits = _fits(name, value.lower(), schema.lower(), table.lower())
            if "_Do_" not in name:
                if fits:
                    return name
            else:
                kind = name.rpartition("_")[2]
                admitted[kind] = admitted.get(kind, False) or fits
        for kind, is_admitted in admitted.items():
            if not is_admitted:
                return f"Replicate_Do_{kind}"
    return ""


def _fits(name: str, value: str, schema: str, table: str) -> bool:
    """Return whether a filter is about a table."""
    if "Rewrite" in name:
        return re.search(rf"[(,]{re.escape(schema)}[),]", value) is not None
    items, full = value.split(","), f"{schema}.{table}"
    if "_Wild_" in name:
        return any(_like(item).fullmatch(full) for item in items)
    return (schema if name.endswith("_DB") else full) in items


def _like(pattern: str) -> re.Pattern[str]:
    """Return what a pattern of LIKE fits."""
    found = re.findall(r"\\.|.", pattern, re.DOTALL)
    return re.compile("".join({"%": ".*", "_": "."}.get(c, re.escape(c[-1])) for c in found))
