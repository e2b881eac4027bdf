"""Rows of XA transactions that are prepared, in a table next to the cursors of a mirror: written in
the transaction that commits the place behind XA PREPARE, and removed in that of their end."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

import pyarrow as pa

from ray_canal.model.table_meta import ColumnMeta, TableMeta
from ray_canal.sinks.column_specs import ColumnSpec
from ray_canal.sinks.databases.sender import Sender, TableWrite
from ray_canal.sinks.port import Cursor, SinkError
from ray_canal.sinks.rows import Rows
from ray_canal.sinks.schema_follower import TableName
from ray_canal.views.ipc_stream import ipc_stream
from ray_canal.views.row_places import RowPlace

_TABLE = "canal_prepared"
_COLUMNS = pa.schema(
    [
        ("id", pa.binary()),
        ("sink", pa.string()),
        ("xa_id", pa.string()),
        ("of_transaction", pa.string()),
        ("place", pa.string()),
        ("batch", pa.binary()),
    ]
)
_PART_BYTES = 1 << 20
_META = b"canal.table_meta"


@dataclass(frozen=True)
class _Part:
    """Some rows of a transaction, as one row of the table. Places compare as the log has them."""

    id: bytes
    transaction: str
    place: str = ""
    batch: bytes = field(default=b"", repr=False)


class PreparedTable:
    """The `PreparedRows` of a mirror; `sender` writes them."""

    def __init__(self, sink: str, sender: Sender, database: str) -> None:
        self._sink = sink
        self._sender = sender
        self._name = TableName(database, _TABLE)
        self._is_made = False
        self._known: dict[str, list[_Part]] = {}  # in the target, by XA id
        self._staged: defaultdict[str, list[_Part]] = defaultdict(list)
        self._gone: set[bytes] = set()
        self._ended: set[str] = set()

    def open(self) -> None:
        """Look what there is, once the sender is open. Raises SinkError."""
        self.abort()
        self._known = {}
        database = self._sender.database
        self._is_made = database.find(self._name) is not None
        if self._is_made:
            columns = ("id", "xa_id", "of_transaction")
            for part_id, xa_id, name in database.own_rows(_TABLE, columns, {"sink": self._sink}):
                part = _Part(bytes(part_id), str(name))
                self._known.setdefault(str(xa_id), []).append(part)

    @property
    def place(self) -> Cursor | None:
        return self._sender.place

    def has(self, xa_id: str) -> bool:
        return bool(self._staged.get(xa_id)) or (xa_id in self._known and xa_id not in self._ended)

    def keep(self, xa_id: str, transaction: str, rows: Rows, place: RowPlace) -> None:
        if not self._is_made:
            self._make()
        known = self._known.get(xa_id, ())
        self._gone |= {part.id for part in known if part.transaction != transaction}
        self._ended.discard(xa_id)
        staged = self._staged[xa_id]
        staged[:] = [part for part in staged if part.transaction == transaction]
        for number, piece in enumerate(_pieces(rows.batch)):
            text = ":".join(f"{each:020}" for each in (*place.key, number))
            named = (self._sink, xa_id, transaction, rows.schema, rows.table, text)
            part_id = sha256(json.dumps(named).encode()).digest()
            staged.append(_Part(part_id, transaction, text, packed(Rows(piece, rows.meta))))

    def rows(self, xa_id: str) -> Sequence[Rows]:
        found = {}
        if xa_id in self._known and xa_id not in self._ended:
            columns = ("id", "of_transaction", "place", "batch")
            which = {"sink": self._sink, "xa_id": xa_id}
            for row in self._sender.database.own_rows(_TABLE, columns, which):
                part = _Part(bytes(row[0]), str(row[1]), str(row[2]), bytes(row[3]))
                if part.id not in self._gone:
                    found[part.id] = part
        found |= {part.id: part for part in self._staged.get(xa_id, ())}
        return [unpacked(part.batch) for part in sorted(found.values(), key=lambda p: p.place)]

    def end(self, xa_id: str) -> None:
        self._staged.pop(xa_id, None)
        self._ended.add(xa_id)

    # --- commits ---------------------------------------------------------------------------------

    def write(self) -> list[TableWrite]:
        """Return what the sender's next commit is to write."""
        rows = [
            {"sink": self._sink, "xa_id": xa_id, "id": part.id, "place": part.place,
             "of_transaction": part.transaction, "batch": part.batch}
            for xa_id, parts in self._staged.items() for part in parts
        ]  # fmt: skip
        gone = {part.id for xa_id in self._ended for part in self._known.get(xa_id, ())}
        gone = (gone | self._gone) - {row["id"] for row in rows}
        if not gone and not rows:
            return []
        ids = pa.table({"id": pa.array(sorted(gone), pa.binary())})
        upserts = pa.Table.from_pylist(rows, _COLUMNS)
        return [
            TableWrite(source=("", ""), name=self._name, key=["id"], deletes=ids, upserts=upserts)
        ]

    def committed(self) -> None:
        """Note that the target has what was to be written."""
        for xa_id in self._ended:
            self._known.pop(xa_id, None)
        for xa_id, parts in self._staged.items():
            known = {part.id: part for part in self._known.get(xa_id, ())}
            known |= {part.id: _Part(part.id, part.transaction) for part in parts}
            self._known[xa_id] = [part for part in known.values() if part.id not in self._gone]
        self.abort()

    def abort(self) -> None:
        """Forget what is not committed."""
        self._staged.clear()
        self._gone.clear()
        self._ended.clear()

    def _make(self) -> None:
        self._sender.begin_ddl()
        columns = [ColumnSpec(each.name, each.type, is_key=each.name == "id") for each in _COLUMNS]
        self._sender.database.create(self._name, columns)
        self._is_made = True


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
        raise SinkError(f"rows of {_TABLE} in the target cannot be read: {error}") from None
    return Rows(batch.replace_schema_metadata(notes), meta)
