"""Rows of XA transactions that are prepared, in a table of the target: there with a commit from XA
PREPARE on, and gone with that of their end."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, NamedTuple

import pyarrow as pa

from ray_canal.model.table_meta import ColumnMeta, TableMeta
from ray_canal.sinks.column_specs import ColumnSpec
from ray_canal.sinks.port import Cursor, SinkError
from ray_canal.sinks.rows import Rows
from ray_canal.views.ipc_stream import ipc_stream
from ray_canal.views.row_places import RowPlace

TABLE = "canal_prepared"
ROW_SCHEMA = pa.schema(
    [
        ("id", pa.binary()),
        ("sink", pa.string()),
        ("xa_id", pa.string()),
        ("of_transaction", pa.string()),
        ("place", pa.string()),
        ("batch", pa.binary()),
    ]
)
COLUMNS = [ColumnSpec(each.name, each.type, is_key=each.name == "id") for each in ROW_SCHEMA]
_PART_BYTES = 1 << 20
_HELD_BYTES = 16 << 20
"""So much of what is committed stays in memory, too: most transactions end soon."""
_META = b"canal.table_meta"


@dataclass(frozen=True)
class _Part:
    """Some rows of a transaction, as one row of the table. Places compare as the log has them.
    `rows`: until they are committed; `batch`: as the table has them, if that is in memory."""

    id: bytes
    transaction: str
    place: str
    rows: Rows | None = field(default=None, repr=False)
    batch: bytes = field(default=b"", repr=False)


class KeptChange(NamedTuple):
    """Change of the table by a commit: ids that go, rows that come."""

    deletes: pa.Table
    upserts: pa.Table


class PreparedTable(ABC):
    """The `PreparedRows` of targets of one kind, which read and write the table."""

    moves_all = False

    def __init__(self, sink: str) -> None:
        self._sink = sink
        self._known: dict[str, list[_Part]] = {}  # in the target, by XA id
        self._staged: defaultdict[str, list[_Part]] = defaultdict(list)
        self._gone: set[bytes] = set()
        self._ended: set[str] = set()

    @abstractmethod
    def _read(self, columns: Sequence[str], which: Mapping[str, str]) -> Iterable[Sequence[Any]]:
        """Return columns of the table's rows that have these values; none if there is no table."""

    @abstractmethod
    def _have_table(self) -> None:
        """See to it that the table can be written by the next commit."""

    @property
    @abstractmethod
    def place(self) -> Cursor | None: ...

    def open(self) -> None:
        """Look what there is. Raises SinkError."""
        self.abort()
        self._known = {}
        columns = ("id", "xa_id", "of_transaction", "place")
        for part_id, xa_id, name, place in self._read(columns, {"sink": self._sink}):
            part = _Part(bytes(part_id), str(name), str(place))
            self._known.setdefault(str(xa_id), []).append(part)

    @property
    def xa_ids(self) -> Sequence[str]:
        """Return the XA ids whose rows the target has by now."""
        return sorted(self._known)

    def has(self, xa_id: str) -> bool:
        return bool(self._staged.get(xa_id)) or (xa_id in self._known and xa_id not in self._ended)

    def keep(self, xa_id: str, transaction: str, rows: Rows, place: RowPlace) -> None:
        """Rows that are known from the place on come again, perhaps in other parts: where the sink
        was moved back."""
        self._have_table()
        self._ended.discard(xa_id)
        staged = self._staged[xa_id]
        staged[:] = [part for part in staged if part.transaction == transaction]
        first = _text(place)
        for part in self._known.get(xa_id, ()):
            if part.transaction != transaction or part.place >= first:
                self._gone.add(part.id)
        for number, piece in enumerate(_pieces(rows.batch)):
            text = f"{first}:{number:020}"
            named = (self._sink, xa_id, transaction, rows.schema, rows.table, text)
            part_id = sha256(json.dumps(named).encode()).digest()
            staged.append(_Part(part_id, transaction, text, Rows(piece, rows.meta)))

    def rows(self, xa_id: str, before: RowPlace, transaction: str = "") -> Sequence[Rows]:
        found: dict[bytes, _Part] = {}
        if xa_id in self._known and xa_id not in self._ended:
            found = {part.id: part for part in self._loaded(xa_id) if part.id not in self._gone}
        found |= {part.id: part for part in self._staged.get(xa_id, ())}
        end = _text(before)
        parts = sorted((p for p in found.values() if p.place < end), key=lambda p: p.place)
        wanted = transaction or (parts[0].transaction if parts else "")
        parts = [part for part in parts if part.transaction == wanted]
        return [unpacked(part.batch) if part.rows is None else part.rows for part in parts]

    def end(self, xa_id: str) -> None:
        """Drop what is kept."""
        self._staged.pop(xa_id, None)
        self._ended.add(xa_id)

    def _loaded(self, xa_id: str) -> Sequence[_Part]:
        """Return what the target has, with the rows."""
        known = self._known[xa_id]
        if all(part.batch for part in known):
            return known
        columns, which = ("id", "of_transaction", "place", "batch"), {"xa_id": xa_id}
        return [
            _Part(bytes(row[0]), str(row[1]), str(row[2]), batch=bytes(row[3]))
            for row in self._read(columns, {"sink": self._sink, **which})
        ]

    # --- commits ---------------------------------------------------------------------------------

    def _change(self) -> KeptChange | None:
        """Return what the next commit is to write; None: nothing."""
        self._pack()
        rows = [
            {"sink": self._sink, "xa_id": xa_id, "id": part.id, "place": part.place,
             "of_transaction": part.transaction, "batch": part.batch}
            for xa_id, parts in self._staged.items() for part in parts
        ]  # fmt: skip
        gone = {part.id for xa_id in self._ended for part in self._known.get(xa_id, ())}
        gone = (gone | self._gone) - {row["id"] for row in rows}
        if not gone and not rows:
            return None
        ids = pa.table({"id": pa.array(sorted(gone), pa.binary())})
        return KeptChange(ids, pa.Table.from_pylist(rows, ROW_SCHEMA))

    def _pack(self) -> None:
        for parts in self._staged.values():
            parts[:] = [
                _Part(p.id, p.transaction, p.place, batch=packed(p.rows)) if p.rows else p
                for p in parts
            ]

    def committed(self) -> None:
        """Note that the target has what was to be written."""
        for xa_id in self._ended:
            self._known.pop(xa_id, None)
        held = sum(len(part.batch) for parts in self._known.values() for part in parts)
        for xa_id, parts in self._staged.items():
            old = (part for part in self._known.get(xa_id, ()) if part.id not in self._gone)
            known = {part.id: part for part in old}
            for part in parts:
                held += len(part.batch)
                batch = part.batch if held <= _HELD_BYTES else b""
                known[part.id] = _Part(part.id, part.transaction, part.place, batch=batch)
            self._known[xa_id] = list(known.values())
        self.abort()

    def abort(self) -> None:
        """Forget what is not committed."""
        self._staged.clear()
        self._gone.clear()
        self._ended.clear()


def _text(place: RowPlace) -> str:
    return ":".join(f"{each:020}" for each in place.key)


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the rows, some at a time, so that a target takes them in statements."""
    count = max(1, batch.num_rows * _PART_BYTES // max(batch.nbytes, 1))
    for first in range(0, batch.num_rows, count):
        yield batch.slice(first, count)


def packed(rows: Rows) -> bytes:
    """Return rows as an Arrow IPC stream, with the table's declaration."""
    notes = dict(rows.batch.schema.metadata or {})
    meta = rows.meta
    if meta is not None:
        tree = {
            "schema": meta.schema,
            "table": meta.table,
            "columns": [column.to_tree() for column in meta.columns],
            "hidden": meta.hidden,
            "unique_key": meta.unique_key,
        }
        notes[_META] = json.dumps(tree).encode()
    return ipc_stream(rows.batch.replace_schema_metadata(notes))


def unpacked(data: bytes) -> Rows:
    """Return the rows of `packed`. Raises SinkError: they cannot be read."""
    try:
        batch = pa.ipc.open_stream(data).read_next_batch()
        notes = dict(batch.schema.metadata or {})
        text = notes.pop(_META, b"")
        tree = json.loads(text) if text else None
        meta = tree and TableMeta(
            tree["schema"],
            tree["table"],
            tuple(map(ColumnMeta.from_tree, tree["columns"])),
            tree["hidden"],
            tuple(tree["unique_key"]),
        )
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, StopIteration) as error:
        raise SinkError(f"rows of {TABLE} in the target cannot be read: {error}") from None
    return Rows(batch.replace_schema_metadata(notes), meta)
