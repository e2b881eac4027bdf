"""A file of JSON lines: one change, or one of the messages that queues get, a line; at least once.

After a crash the last batch may be there twice; `timeline`, `journal_name`, `position` and `row`
are the same then (docs/reference/guarantees.md).
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

from ray_canal.sinks.dead_letters import shown
from ray_canal.sinks.messages import MessageMaker
from ray_canal.sinks.port import Changed, Changes, Cursor, Guarantee, SinkError, disk_error
from ray_canal.sinks.target_checks import SourceTable, path_check
from ray_canal.sinks.whole_lines import end_last_line
from ray_canal.source.setting_checks import CheckResult


class JsonLines:
    guarantee: Guarantee = "at_least_once"

    def __init__(self, path: Path, maker: MessageMaker | None = None) -> None:
        """`maker`: lines are its messages."""
        self._path = path
        self._maker = maker
        self._file: TextIO | None = None
        self._lines: list[str] = []

    def open(self) -> Cursor | None:
        """Cut off half a line, which a crash has left."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("a", encoding="utf-8")
            end_last_line(self._path)
        except OSError as error:
            raise disk_error(self._path, error) from error
        return None

    def check(self, tables: Sequence[SourceTable]) -> Iterator[CheckResult]:
        """Look whether the file can be written here."""
        yield path_check(self._path)

    def write(self, changes: Changes) -> None:
        if self._maker is not None:
            found = self._maker.make(changes)
            self._lines.extend(
                bytes(found[number]).decode() + "\n"
                for number in range(len(found))
                if len(found[number])
            )
            return
        for step in changes.steps():
            if isinstance(step, Changed):
                change = step.change
                line = {
                    "schema": change.schema,
                    "table": change.table,
                    "change": change.kind,
                    "journal_name": change.journal_name,
                    "position": change.position,
                }
                self._lines.append(json.dumps(line) + "\n")
                continue
            named = {"schema": step.schema, "table": step.table}
            self._lines.extend(
                json.dumps({**named, **row}, default=shown) + "\n" for row in step.batch.to_pylist()
            )

    def commit(self, upto: Cursor) -> None:
        lines, self._lines = self._lines, []
        if self._file is None:
            raise SinkError(f"{self._path} is not open", "retry")
        try:
            self._file.writelines(lines)
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise SinkError(f"cannot write {self._path}: {error.strerror}", "retry") from error

    def abort(self) -> None:
        self._lines = []

    def close(self) -> None:
        self._lines = []
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):  # what it could not write before
                file.close()
