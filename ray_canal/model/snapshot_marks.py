"""Header props of a snapshot's entries, and the marks at its begin and end."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

SNAPSHOT = "snapshot"
CHUNK, CHUNK_LAST = "snapshotChunk", "snapshotLast"
MARK, TABLES, STATE, REASON, MODE = (
    "snapshotMark", "snapshotTables", "snapshotState", "snapshotReason", "snapshotMode",
)  # fmt: skip
MARK_BEGIN, MARK_END = "SNAPSHOT_BEGIN", "SNAPSHOT_END"

Props = tuple[tuple[str, str], ...]
_SPECIAL = re.compile("[`,]")
_NAME = re.compile("(`(?:[^`]|``)*`)|([^,]+)")


@dataclass(frozen=True, slots=True)
class SnapshotMark:
    """Where a snapshot begins (again), or ends, in a subscriber's log: at `journal_name`,
    `position`. Behind one of `kind` SNAPSHOT_END with the state "done", what the subscriber has
    applied is what all `tables` hold at that place. `reason` of a begin: why it was taken. `mode`:
    "consistent" if all rows are of that place, and replace what came of the tables before."""

    kind: str
    snapshot: str
    tables: tuple[str, ...]
    journal_name: str
    position: int
    state: str = ""
    reason: str = ""
    mode: str = "keyed"


def joined(names: Iterable[str]) -> str:
    """Return names of tables as one text: with commas between, and in backticks where a name has
    one of either."""
    return ",".join(
        "`" + name.replace("`", "``") + "`" if _SPECIAL.search(name) else name for name in names
    )


def names_in(text: str) -> tuple[str, ...]:
    """Return the names of tables that `joined` made a text of."""
    return tuple(
        quoted[1:-1].replace("``", "`") if quoted else name
        for quoted, name in _NAME.findall(text)
    )


def mark_of(props: Mapping[str, str], journal_name: str, position: int) -> SnapshotMark | None:
    """Return the mark that a chunk with these props is; None: it is none."""
    kind = props.get(MARK)
    if kind is None:
        return None
    tables = names_in(props.get(TABLES, ""))
    return SnapshotMark(
        kind, props.get(SNAPSHOT, ""), tables, journal_name, position,
        props.get(STATE, ""), props.get(REASON, ""), props.get(MODE, "keyed"),
    )  # fmt: skip
