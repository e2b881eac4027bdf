"""Our entries beside Canal's, case by case: which entries differ, and in what.

A difference is named by its place (the event's offset, and which of the entries with that offset)
and by aspects: `ours only`, `header.tableName`, `change.isDdl`, `c1.value` (of a column c1, in any
row). Everything that is not named in an aspect is the same.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ray_canal.canal.generated import EntryProtocol_pb2 as pb
from ray_canal.offline import decode_entries
from tests.golden import GOLDEN, GTIDLOG, split_delimited

SERVERS = ("mysql97", "mysql56", "mariadb1011")
OURS_ONLY, CANAL_ONLY, BYTES = "ours only", "Canal only", "bytes"

CANAL_STARTED_WITH = {"mysql97": "00000000-0000-0000-0000-000000000001:1-5"}
"""The executed set that Canal was given when it made the `--gtid` files."""

_COLUMN_FIELDS = ("index", "sqlType", "isKey", "updated", "isNull", "value", "mysqlType")


@dataclass(frozen=True)
class Case:
    """One line of a cases.tsv."""

    server: str
    binlog: str
    schema: str  # "-": from the binlog
    expected: str
    options: str

    def __str__(self) -> str:
        return f"{self.server}/{self.expected}"

    def ours(self, journal_name: str = "") -> list[bytes]:
        """Our entries; `journal_name`: of the file under another name."""
        if journal_name and journal_name != self.binlog:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / journal_name
                path.symlink_to((GOLDEN / self.server / self.binlog).resolve())
                return self._rendered(path)
        return self._rendered(GOLDEN / self.server / self.binlog)

    def _rendered(self, path: Path) -> list[bytes]:
        words = self.options.split()
        gtid = "--gtid" in words
        rendered = decode_entries(
            [path],
            schema_sql=None if self.schema == "-" else GOLDEN / self.server / self.schema,
            time_zone=words[words.index("--time-zone") + 1] if "--time-zone" in words else "UTC",
            gtid=gtid,
            gtid_set=CANAL_STARTED_WITH.get(self.server, "") if gtid else "",
        )
        return [message for data in rendered for message in split_delimited(data)]

    def canal_journal_name(self) -> str:
        """header.logfileName of Canal's entries."""
        return str(pb.Entry.FromString(self.canal()[0]).header.logfileName)

    def canal(self) -> list[bytes]:
        """Canal's entries; GTIDLOG never reaches a client."""
        messages = split_delimited((GOLDEN / self.server / self.expected).read_bytes())
        return [m for m in messages if pb.Entry.FromString(m).entryType != GTIDLOG]


@dataclass(frozen=True)
class Pair:
    """Entries of one place that differ; one of them is None where only the other is there."""

    position: int
    number: int  # among the entries with that offset
    ours: Any
    canal: Any
    aspects: tuple[str, ...]


def cases() -> list[Case]:
    """Every case of every server."""
    found = []
    for server in SERVERS:
        for line in (GOLDEN / server / "cases.tsv").read_text("utf-8").splitlines():
            if line and not line.startswith("#"):
                found.append(Case(server, *[*line.split("\t"), ""][:4]))
    return found


def differences(ours: list[bytes], canal: list[bytes]) -> list[Pair]:
    """The pairs that are not the same bytes, in log order."""
    found = []
    mine, theirs = _by_position(ours), _by_position(canal)
    for position in sorted(mine.keys() | theirs.keys()):
        numbered = _matched(mine.get(position, []), theirs.get(position, []))
        for number, (left, right) in enumerate(numbered):
            if left == right:
                continue
            a = None if left is None else pb.Entry.FromString(left)
            b = None if right is None else pb.Entry.FromString(right)
            found.append(Pair(position, number, a, b, tuple(_aspects(a, b))))
    return found


def _by_position(messages: list[bytes]) -> dict[int, list[bytes]]:
    found: dict[int, list[bytes]] = {}
    for message in messages:
        found.setdefault(pb.Entry.FromString(message).header.logfileOffset, []).append(message)
    return found


def _matched(ours: list[bytes], canal: list[bytes]) -> Iterator[tuple[bytes | None, bytes | None]]:
    """Entries of one offset side by side: those of one kind, in their order. A kind is EntryType,
    and EventType where it has rows."""
    left = list(ours)
    for message in canal:
        match = next((m for m in left if m == message), None) or next(
            (m for m in left if _kind(m) == _kind(message)), None
        )
        if match is not None:
            left.remove(match)
        yield match, message
    for message in left:
        yield message, None


def _kind(message: bytes) -> tuple[int, bool]:
    entry = pb.Entry.FromString(message)
    return entry.entryType, entry.entryType == pb.ROWDATA and bool(change(entry).rowDatas)


def change(entry: Any) -> Any:
    """An entry's RowChange."""
    return pb.RowChange.FromString(entry.storeValue)


def rows(entry: Any) -> list[Any]:
    """Its columns, row by row, before images in front."""
    return [
        [*row.beforeColumns, *row.afterColumns]
        for row in (change(entry).rowDatas if entry.entryType == pb.ROWDATA else [])
    ]


def _aspects(ours: Any, canal: Any) -> Iterator[str]:
    if ours is None or canal is None:
        yield CANAL_ONLY if ours is None else OURS_ONLY
        return
    found = [f"header.{name}" for name in _fields(ours.header, canal.header)]
    if ours.entryType != canal.entryType:
        found.append("entryType")
    elif ours.entryType == pb.ROWDATA:
        found += _change_aspects(change(ours), change(canal))
    elif ours.storeValue != canal.storeValue:
        found.append("transaction")
    yield from found or [BYTES]


def _change_aspects(ours: Any, canal: Any) -> Iterator[str]:
    yield from (f"change.{name}" for name in _fields(ours, canal) if name != "rowDatas")
    if len(ours.rowDatas) != len(canal.rowDatas):
        yield "rows"
        return
    seen = set()
    for left, right in zip(ours.rowDatas, canal.rowDatas, strict=True):
        for a, b in (
            (left.beforeColumns, right.beforeColumns),
            (left.afterColumns, right.afterColumns),
        ):
            seen |= set(_column_aspects(a, b))
    yield from sorted(seen)


def _column_aspects(ours: Any, canal: Any) -> Iterator[str]:
    mine, theirs = ({c.name: c for c in columns} for columns in (ours, canal))
    if [c.name for c in ours] != [c.name for c in canal]:
        yield "column names"
    for name, column in mine.items():
        if name not in theirs:
            continue
        for field in _COLUMN_FIELDS:
            if getattr(column, field) != getattr(theirs[name], field):
                yield f"{name}.{field}"


def _fields(ours: Any, canal: Any) -> list[str]:
    """Names of the fields that differ."""
    names = [field.name for field in ours.DESCRIPTOR.fields]
    return [name for name in names if getattr(ours, name) != getattr(canal, name)]
