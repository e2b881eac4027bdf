"""The versions of a table as the page shows them: each with what it changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Column = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A table from a place on. `columns`: each with what this version did to it; those that it
    dropped come last. `gone`: there is no table."""

    place: str
    recorded_at: float
    how: str
    sql: str
    problem: str
    gone: bool
    columns: tuple[tuple[Literal["same", "added", "dropped"], str, str], ...]


_HOW = {"ddl": "DDL", "snapshot": "read from the catalog", "table": "read from the catalog again"}


def versions(changes: Sequence[Mapping[str, Any]]) -> list[Version]:
    """Return the versions, the newest first."""
    found = []
    before: list[Column] | None = None
    for change in changes:
        columns = None if change["columns"] is None else [tuple(each) for each in change["columns"]]
        found.append(
            Version(
                place=f"{change['journal_name']}:{change['position']}",
                recorded_at=change["recorded_at"],
                how=_HOW.get(change["kind"], change["kind"]),
                sql=change["sql"],
                problem=change["problem"],
                gone=columns is None,
                columns=tuple(_compared(before, columns or [])),
            )
        )
        before = columns
    return found[::-1]


def _compared(
    before: Sequence[Column] | None, now: Sequence[Column]
) -> Iterator[tuple[Literal["same", "added", "dropped"], str, str]]:
    """A column whose type has changed is dropped and added."""
    for column in now:
        yield "same" if before is None or column in before else "added", *column
    for column in before or ():
        if column not in now:
            yield "dropped", *column
