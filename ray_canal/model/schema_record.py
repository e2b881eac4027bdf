"""Durable schema records, and the schema changes that subscribers see: plain records."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ray_canal.model.table_meta import ColumnMeta, TableMeta

SNAPSHOT, DDL, TABLE = "snapshot", "ddl", "table"
"""Kinds of a SchemaRecord: every table at a place, a statement, one table from a place on."""


@dataclass(frozen=True, slots=True)
class KeyState:
    """A key of a table, but for its primary one. `prefixes`: characters (bytes of BLOBs) of each
    column, 0 for all of it. `algorithm` is that of its USING clause, in upper case; empty: none."""

    name: str
    columns: tuple[str, ...]
    prefixes: tuple[int, ...]
    unique: bool
    algorithm: str = ""


@dataclass(frozen=True, slots=True)
class TableState:
    """A table at one place of the log.

    `charset` is the default of columns to come, empty where it is not known (as that of a column).
    `hidden_period`: MariaDB's system versioning put row_start and row_end after the columns.
    `problem` says why the columns are not known. `row_end`: the column that is declared as ROW END.
    `keys` and `engine` (in upper case) are kept of MariaDB's tables, for what keys hide; empty
    where they are not known.
    """

    meta: TableMeta
    charset: str
    hidden_period: bool = False
    problem: str = ""
    row_end: str = ""
    keys: tuple[KeyState, ...] = ()
    engine: str = ""

    @property
    def columns(self) -> tuple[ColumnMeta, ...]:
        return self.meta.columns

    def with_columns(self, columns: list[ColumnMeta]) -> TableState:
        """Return the table with other columns."""
        return replace(self, meta=replace(self.meta, columns=tuple(columns)))

    def renamed(self, schema: str, table: str) -> TableState:
        """Return the table under another name."""
        return replace(self, meta=replace(self.meta, schema=schema, table=table))


@dataclass(frozen=True, slots=True)
class CatalogSnapshot:
    """Every table that a server's catalog had when its log was at a position, and the default
    character sets of its databases. `gtid`: what the server had executed then; empty: not known.
    `created_s`: when the file was created, as EntryPosition has it. `after_gap`: nobody read the
    log between what was known before and it. `whole`: it is no catalog, but what was known by the
    log: every table of these databases, and some of others; None: it is one."""

    journal_name: str
    position: int
    tables: tuple[TableState, ...] = ()
    charsets: dict[str, str] = field(default_factory=dict)
    gtid: str = ""
    created_s: int = 0
    after_gap: bool = False
    whole: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class SchemaRecord:
    """One durable fact about the schemas of one log. `body` is schema/records.py's.

    `server` says which log it is: a server's uuid and, behind a #, a number that rises when the
    server's log began again; or binlog files. Records of one kind at one place of one log are one
    record: writing it again changes nothing. `recorded_at` is time.time(), for expiry alone: it
    orders nothing.
    """

    server: str
    journal_name: str
    position: int
    kind: str
    recorded_at: float
    body: bytes


Records = tuple[SchemaRecord, ...]

SchemaMark = tuple[str, str, int]
"""Place of the newest record of a log: SchemaRecord.server, file and offset."""


EVENT_AT = ""
"""In place of a schema: what follows is the position of one event, of any table, or says which
message it is that a consumer gave up."""


def held_name(pair: tuple[str, str]) -> str:
    """Return how people call what is held aside."""
    schema, name = pair
    if schema != EVENT_AT:
        return f"{schema}.{name}"
    return f"the event at {name}" if name.isdigit() else name


@dataclass(frozen=True, slots=True)
class Quarantined:
    """Events that could not be decoded: the raw chunk that holds them (binlog/packed_chunk.py packs
    it). `tables`: those whose schema was not known; or EVENT_AT and the position of one event that
    could not be decoded itself, a dead letter."""

    server: str
    journal_name: str
    position: int
    tables: tuple[tuple[str, str], ...]
    recorded_at: float
    reason: str
    data: bytes


@dataclass(frozen=True, slots=True)
class QuarantinedChunk:
    """A quarantined chunk without its bytes: which one, of which tables, and how long it is."""

    server: str
    journal_name: str
    position: int
    tables: tuple[tuple[str, str], ...]
    size_bytes: int


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """A DDL at `position` gave a table other columns. `meta` is None where the table is gone, or
    where its columns are not known (then `problem` says why). `is_new`: the table was made.
    `retyped`: columns that had another type before; `renamed`: columns by their names before;
    `filled`: what rows that are there have in new columns, None where the server alone knows;
    `remade`: columns that were dropped and added again, so that their values are gone; `added`:
    those that ALTER TABLE added."""

    position: int
    schema: str
    table: str
    meta: TableMeta | None
    problem: str = ""
    is_new: bool = False
    retyped: tuple[str, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()
    filled: tuple[tuple[str, str | bytes | None], ...] = ()
    remade: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
