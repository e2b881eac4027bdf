"""Entries that a target could not take, as JSON lines: where, why, and every row."""

from __future__ import annotations

import datetime as dt
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from ray_canal.sinks.port import Changes, SinkError
from ray_canal.sinks.whole_lines import end_last_line

_TABLE = (b"canal.schema", b"canal.table")


class TablesAside:
    """The tables that do not fit the target, in a file next to the dead letters, by SCHEMA.TABLE:
    why, and since which place. They stay there over restarts, until a person takes them out."""

    def __init__(self, path: Path) -> None:
        """Raises SinkError: the file cannot be read."""
        self._path = path
        self.reasons: dict[str, str] = {}
        self._since: dict[str, str] = {}
        self._tables: dict[str, tuple[str, str]] = {}
        if path.exists():
            try:
                tree = json.loads(path.read_text(encoding="utf-8"))
                self.reasons = {name: each["error"] for name, each in tree.items()}
                self._since = {name: each["since"] for name, each in tree.items()}
                self._tables = {
                    name: (each["schema"], each["table"]) for name, each in tree.items()
                }
            except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
                raise SinkError(f"{path} cannot be read: {error}") from None

    @property
    def tables(self) -> frozenset[tuple[str, str]]:
        """Return (schema, table) of each."""
        return frozenset(self._tables.values())

    def add(self, table: tuple[str, str], reason: str, since: str) -> None:
        """Keep one more. Raises OSError: the file has not taken it, and a restart would not know of
        it, so it is not aside."""
        name = ".".join(table)
        reasons, sinces = self.reasons | {name: reason}, self._since | {name: since}
        tables = self._tables | {name: table}
        tree = {
            each: {
                "schema": tables[each][0],
                "table": tables[each][1],
                "error": text,
                "since": sinces[each],
            }
            for each, text in reasons.items()
        }
        self._path.parent.mkdir(parents=True, exist_ok=True)
        written = self._path.with_name(self._path.name + ".new")
        with written.open("w", encoding="utf-8") as file:
            file.write(json.dumps(tree, indent=1) + "\n")
            file.flush()
            os.fsync(file.fileno())
        written.replace(self._path)
        self.reasons, self._since, self._tables = reasons, sinces, tables


class DeadLetterFile:
    """A file that is appended to; a line is on disk before the sink goes on behind its entry. After
    a crash between the two, a line may be there twice."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, sink: str, changes: Changes, reason: str) -> None:
        """Write one entry. Raises OSError."""
        self._add(sink, changes, changes.batches, lambda _: reason)

    def add_aside(self, sink: str, changes: Changes, reasons: Mapping[str, str]) -> int:
        """Write what there is of tables that are set aside; return how many batches. `reasons`: by
        table. Raises OSError."""
        batches = changes.batches_aside
        if batches:
            self._add(sink, changes, batches, lambda table: reasons.get(table, ""))
        return len(batches)

    def _add(
        self,
        sink: str,
        changes: Changes,
        batches: Sequence[pa.RecordBatch],
        reason: Callable[[str], str],
    ) -> None:
        lines = []
        for batch in batches:
            notes = batch.schema.metadata or {}
            schema, table = (notes.get(key, b"").decode() for key in _TABLE)
            lines.append(
                {
                    "sink": sink,
                    "time": dt.datetime.now(dt.timezone.utc).isoformat(timespec="seconds"),
                    "place": str(changes.cursor),
                    "schema": schema,
                    "table": table,
                    "error": reason(f"{schema}.{table}"),
                    "rows": batch.to_pylist(),
                }
            )
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with open(self._path, "a", encoding="utf-8") as file:
            end_last_line(self._path)
            file.writelines(json.dumps(line, default=shown) + "\n" for line in lines)
            file.flush()
            os.fsync(file.fileno())


def shown(value: Any) -> Any:
    """Return a value that JSON has no form for as text; bytes as hexadecimal digits."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dt.datetime | dt.date):
        return value.isoformat()
    return str(value)
