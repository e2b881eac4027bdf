"""Which tables a snapshot reads, and what it has to know of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ray_canal.errors import ConfigError, PrivilegeMissing, ServerSettingRefused, TableMetaMismatch
from ray_canal.filter import TableFilter
from ray_canal.model.snapshot_wish import SnapshotWish
from ray_canal.model.table_meta import TableMeta, is_sequence
from ray_canal.schema.names import Name
from ray_canal.schema.records import with_period
from ray_canal.snapshot.descriptions import FEW, Descriptions, Indexes
from ray_canal.source.catalog import Catalog
from ray_canal.source.catalog_tables import NOT_SYSTEM, CatalogTables

_TABLES = (
    "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, ENGINE, TABLE_ROWS, AVG_ROW_LENGTH,"
    " CREATE_TIME, CREATE_OPTIONS"
    f" FROM information_schema.TABLES WHERE {NOT_SYSTEM}"
)
_OF_ONE = f"{_TABLES} AND TABLE_SCHEMA = %s"
_ONE_TABLE = f"{_OF_ONE} AND TABLE_NAME = %s"
_MADE = (  # without what is counted, which takes long
    "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, ENGINE, CREATE_TIME FROM"
    " information_schema.TABLES"
    f" WHERE {NOT_SYSTEM}"
)
_IN_ORDER = " ORDER BY TABLE_SCHEMA, TABLE_NAME"
_NO_KEY = "no primary key, and no unique one that is never NULL, so rows cannot be told apart"
_NO_VIEW = (
    'the engine has no read view, so mode "consistent" cannot read it either: leave it out, or '
    "make it an InnoDB table"
)
_TRANSACTIONAL = ("INNODB", "ROCKSDB", "TOKUDB", "NDBCLUSTER")
_ELSEWHERE = ("FEDERATED", "CONNECT", "SPIDER")
_ROW_BYTES = 100
"""Value for a table of which the server does not know it."""


@dataclass(frozen=True, slots=True)
class SnapshotTable:
    """A table to read. `key`: the columns of its primary key, else of its first unique one that is
    never NULL, in the order of `index`; empty: it has none. `rows` and `row_bytes` are estimates;
    `transactional`: it can be read as of one moment. `made`: when this server made it, or built it
    again; empty: it does not say. `keyless`: why it has no key. `partitioned`: parts of
    its rows may become another table's. `descending`: the key's columns that the index has from the
    greatest down; empty where it has all of them so, as it can be read backwards. `collations`: the
    key's, where it has texts, as (column, collation). `shows_late`: rows may show after they are in
    the log (late_rows.py)."""

    meta: TableMeta
    key: tuple[str, ...]
    index: str
    rows: int
    row_bytes: int
    transactional: bool
    made: str = ""
    keyless: str = _NO_KEY
    partitioned: bool = False
    descending: frozenset[str] = frozenset()
    collations: tuple[tuple[str, str], ...] = ()
    shows_late: bool = False

    @property
    def key_order(self) -> tuple[str, ...]:
        """Return the key's columns, with their collations, and which of them descend: what borders
        depend on."""
        by = {name: f" COLLATE {collation}" for name, collation in self.collations}
        return tuple(
            name + by.get(name, "") + " DESC" * (name in self.descending) for name in self.key
        )


@dataclass(frozen=True, slots=True)
class Chosen:
    """The tables of a list of patterns, and what it matches besides: (name, why it is no table)."""

    tables: tuple[SnapshotTable, ...]
    left_out: tuple[tuple[str, str], ...]


class WantedTable(NamedTuple):
    """A table with the columns that are read of it, and the wish that it is of."""

    table: SnapshotTable
    wish: SnapshotWish


def choose_tables(
    catalog: Catalog, described: CatalogTables, tables: str, within: TableFilter | None = None
) -> Chosen:
    """Return what `tables`, Canal's regex list over `schema.table`, stands for, as far as `within`
    admits it. Raises ConfigError: it matches no table; the text says what it does match."""
    wanted = TableFilter(tables)
    found, left_out = [], []
    there = {_name(row): row for row in catalog.rows(_TABLES + _IN_ORDER)}
    chosen = [
        name for name in there if wanted.admits(*name) and (not within or within.admits(*name))
    ]
    now = Descriptions(catalog, described, chosen, there)
    for schema, table in chosen:
        row = there[schema, table]
        why = _no_table(row)
        described_table = None if why else _table_of(catalog, now, row)
        if described_table is not None:
            found.append(described_table)
        else:
            left_out.append((f"{schema}.{table}", why or "a sequence: it has no rows"))
    if not found:
        reasons = "; ".join(f"{name} is {why}" for name, why in left_out)
        raise ConfigError(f"no table to read matches {tables!r}" + (reasons and f": {reasons}"))
    return Chosen(tuple(found), tuple(left_out))


def names_within(catalog: Catalog, within: TableFilter | None) -> list[Name]:
    """Return the names of all tables with rows to read that a filter admits."""
    rows = catalog.rows(_MADE + _IN_ORDER)
    names = [_name(row) for row in rows if not _no_table(row)]
    return [name for name in names if not within or within.admits(*name)]


def wanted_tables(
    catalog: Catalog,
    described: CatalogTables,
    wishes: Sequence[SnapshotWish],
    within: TableFilter | None,
) -> tuple[tuple[WantedTable, ...], tuple[tuple[str, str], ...]]:
    """Return the tables that are asked for, each by the first wish that it fits, and what the
    wishes match besides, as `Chosen.left_out`. Raises ConfigError, PrivilegeMissing."""
    _refuse_ansi_quotes(catalog, wishes)
    found: dict[str, WantedTable] = {}
    left_out: dict[str, str] = {}
    for wish in wishes:
        chosen = choose_tables(catalog, described, wish.tables, within)
        left_out.update(chosen.left_out)
        for table in chosen.tables:
            one = WantedTable(narrowed(table, wish.columns), wish)
            found.setdefault(table.meta.full_name, one)
    return tuple(found.values()), tuple(left_out.items())


def _refuse_ansi_quotes(catalog: Catalog, wishes: Sequence[SnapshotWish]) -> None:
    """Raise ConfigError if a condition has names in quotes that would be texts here, so that no row
    fits: rows are read without the server's sql_mode."""
    quoting = [wish.where for wish in wishes if '"' in wish.where]
    if quoting and "ANSI_QUOTES" in (catalog.variable("sql_mode") or "").upper():
        raise ConfigError(
            f"condition {quoting[0]!r}: the server's sql_mode has ANSI_QUOTES, and rows are read "
            "without it: write names in backticks, texts in single quotes"
        )


def narrowed(table: SnapshotTable, columns: tuple[str, ...]) -> SnapshotTable:
    """Return a table with these columns and its key's; all, where none are named. Raises
    ConfigError: there is no such column."""
    if not columns:
        return table
    meta = table.meta
    known = {column.name for column in meta.columns}
    missing = [name for name in columns if name not in known]
    if missing:
        raise ConfigError(f"{meta.full_name} has no column {missing[0]!r}")
    chosen = tuple(c for c in meta.columns if c.name in columns or c.name in table.key)
    return replace(table, meta=replace(meta, columns=chosen))


def tables_now(
    catalog: Catalog, described: CatalogTables, names: Sequence[Name]
) -> dict[Name, SnapshotTable]:
    """Return those of these tables that are there, with rows to read, as they are now."""
    there: dict[Name, dict[str, Any]] = {}
    for schema, count in Counter(schema for schema, _ in names).items():
        if count > FEW:
            rows = catalog.rows(_OF_ONE, schema)
        else:
            mine = [name for name in names if name[0] == schema]
            rows = [row for name in mine for row in catalog.rows(_ONE_TABLE, *name)]
        there.update((_name(row), row) for row in rows)
    chosen = [name for name in names if name in there and not _no_table(there[name])]
    now = Descriptions(catalog, described, chosen, there)
    found = {name: _table_of(catalog, now, there[name]) for name in chosen}
    return {name: table for name, table in found.items() if table is not None}


def metas_now(
    catalog: Catalog, described: CatalogTables, names: Sequence[Name]
) -> dict[Name, TableMeta]:
    """Return the columns of those of these tables that are there, as they are now."""
    there = [_name(row) for row in catalog.rows(_MADE)]
    now = Descriptions(catalog, described, names, there)
    states = {name: now.state(*name) for name in names}
    return {name: with_period(each).meta for name, each in states.items() if each is not None}


def made_now(catalog: Catalog) -> dict[str, str]:
    """Return of all tables, by their full name, what `SnapshotTable.made` is now."""
    return {
        f"{row['TABLE_SCHEMA']}.{row['TABLE_NAME']}": str(row["CREATE_TIME"] or "")
        for row in catalog.rows(_MADE)
    }


def _no_table(row: dict[str, Any]) -> str:
    kind = str(row["TABLE_TYPE"]).upper()
    if "VIEW" in kind:
        return "a view: read the tables that it shows"
    engine = str(row["ENGINE"] or "").upper()
    if engine == "MRG_MYISAM":
        return "a MERGE table: read the tables that it shows"
    if engine in _ELSEWHERE:
        return f"of the engine {engine}: its rows are kept, and may change, elsewhere"
    return "a sequence: it has no rows" if kind == "SEQUENCE" else ""


def _name(row: dict[str, Any]) -> Name:
    return str(row["TABLE_SCHEMA"]), str(row["TABLE_NAME"])


def _table_of(catalog: Catalog, now: Descriptions, row: dict[str, Any]) -> SnapshotTable | None:
    """Return the table; None: it is a sequence. Raises PrivilegeMissing: its columns cannot be
    seen; TableMetaMismatch: it was dropped since it was looked for, or while it was described,
    also where it is there again."""
    schema, table = _name(row)
    state = now.state(schema, table)
    if state is None:
        again = catalog.rows(_ONE_TABLE, schema, table)
        is_another = [each["CREATE_TIME"] for each in again] != [row["CREATE_TIME"]]
        # The server tells whole seconds; what has columns now was made since it was looked at.
        if is_another or now.state_now(schema, table) is not None:
            raise TableMetaMismatch(f"{schema}.{table} was dropped when it was to be described")
        raise PrivilegeMissing(
            f"the columns of {schema}.{table} cannot be seen; run: GRANT SELECT ON "
            f"`{schema}`.`{table}` TO the user of this source"
        )
    if is_sequence(state.columns):
        return None
    indexes = now.indexes(schema, table)
    if not indexes and any(column.is_key for column in state.meta.columns):
        raise TableMetaMismatch(f"{schema}.{table} was dropped while it was described")
    index, key, keyless = _key(now, indexes, state.meta)
    texts = any(column.charset for column in state.meta.columns if column.name in key)
    collations = now.collations(schema, table) if texts else {}
    transactional = str(row["ENGINE"] or "").upper() in _TRANSACTIONAL
    return SnapshotTable(
        with_period(state).meta,
        key,
        index,
        int(row["TABLE_ROWS"] or 0),
        int(row["AVG_ROW_LENGTH"] or _ROW_BYTES),
        transactional,
        str(row["CREATE_TIME"] or ""),
        keyless,
        "partitioned" in str(row["CREATE_OPTIONS"] or "").lower(),
        _descending(indexes.get(index, [])),
        tuple((name, collations[name]) for name in key if name in collations),
        not transactional,
    )


def refuse_keyless(tables: Iterable[SnapshotTable], advice: str) -> None:
    """Raise ConfigError if some of these tables cannot be read by ranges of a key. `advice`: what
    to do with those that can be read as of one moment."""
    names: dict[bool, dict[str, list[str]]] = {}
    for table in tables:
        if not table.key:
            reasons = names.setdefault(table.transactional, {})
            reasons.setdefault(table.keyless, []).append(table.meta.full_name)
    found = []
    for transactional, reasons in names.items():
        found += [f"{', '.join(each)}: {why}" for why, each in reasons.items()]
        found.append(advice if transactional else _NO_VIEW)
    if found:
        raise ConfigError("; ".join(found))


def refuse_partial_images(catalog: Catalog, address: str) -> None:
    """Raise ServerSettingRefused if the log of the server at an address may lack columns of rows:
    then it does not tell which keys it has touched."""
    image = (catalog.variable("binlog_row_image") or "FULL").upper()
    if image != "FULL":
        raise ServerSettingRefused(
            f"MySQL at {address}: binlog_row_image is {image}; run: SET GLOBAL binlog_row_image = "
            "FULL"
        )


def _key(now: Descriptions, indexes: Indexes, meta: TableMeta) -> tuple[str, tuple[str, ...], str]:
    """(index, its columns) that tell each row from all others, or why there is none."""
    keyless = ""
    for name, parts in indexes.items():
        if all(_tells_rows_apart(part) for part in parts):
            key = tuple(str(part["COLUMN_NAME"]) for part in parts)
            why = _in_another_order(now, meta, key)
            if not why:
                return name, key, ""
        else:
            why = _no_ranges(name, parts)
        keyless = keyless or why
    return "", (), keyless or _NO_KEY


def _no_ranges(index: str, parts: Sequence[dict[str, Any]]) -> str:
    """Return why a key that tells rows apart cannot be read by ranges; empty: it does not tell them
    apart, or is hidden from readers."""
    for part in parts:
        if int(part["NON_UNIQUE"]) or str(part["NULLABLE"] or "") == "YES":
            return ""
    for part in parts:
        if part["SUB_PART"]:
            name = part["COLUMN_NAME"]
            return (
                f"its key {index} has only a prefix of {name}, {name}({part['SUB_PART']}), and "
                "ranges need whole columns (add a unique key of whole columns that are NOT NULL)"
            )
        if part["INDEX_TYPE"] == "HASH":
            return (
                f"its key {index} is a HASH index, which has no order to read ranges in (add a "
                "unique key USING BTREE)"
            )
        if part["INDEX_TYPE"] != "BTREE":  # ARCHIVE: NONE or SE_SPECIFIC
            return f"its engine cannot read ranges of its key {index}"
    return ""


def _descending(parts: Iterable[dict[str, Any]]) -> frozenset[str]:
    """Return `SnapshotTable.descending`. MySQL sorts what is left of a table for each border unless
    both directions are the index's own."""
    found = {str(part["COLUMN_NAME"]): part["COLLATION"] == "D" for part in parts}
    return frozenset() if all(found.values()) else frozenset(n for n, down in found.items() if down)


def _in_another_order(now: Descriptions, meta: TableMeta, key: tuple[str, ...]) -> str:
    """Return why an index is in another order than the one by which the server compares its keys,
    so that ranges would miss rows; empty: it is in the same one. MariaDB keeps CHAR with blanks at
    its end, and compares it without where the collation does not pad: a tab is less than a blank.
    """
    years = {c.name for c in meta.columns if c.mysql_type.lower().startswith("year(2)")}
    for name in years.intersection(key):
        return (
            f"its key has {name}, a YEAR(2), which the server compares by two digits and keeps by "
            "four, so ranges of it would miss rows (make it a YEAR(4))"
        )
    chars = {c.name for c in meta.columns if c.charset and c.mysql_type.lower().startswith("char")}
    if chars.isdisjoint(key):
        return ""
    for name, collation in now.collations(meta.schema, meta.table).items():
        if name in chars.intersection(key) and "_nopad_" in collation:  # MySQL has no such names
            return (
                f"its key has {name}, a CHAR of collation {collation}, whose index MariaDB keeps "
                "in another order than it compares by, so ranges of it would miss rows (make it a "
                "VARCHAR, or of a collation that pads)"
            )
    return ""


def _tells_rows_apart(part: dict[str, Any]) -> bool:
    return (
        not int(part["NON_UNIQUE"])
        and part["COLUMN_NAME"] is not None  # an expression
        and not part["SUB_PART"]
        and str(part["NULLABLE"] or "") != "YES"
        and part["INDEX_TYPE"] == "BTREE"
        and part.get("IS_VISIBLE") != "NO"  # MySQL
        and part.get("IGNORED") != "YES"  # MariaDB
    )
