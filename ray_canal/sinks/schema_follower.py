"""Tables of a target that follow the source's: made, changed, renamed and emptied by policy.

What targets differ in is `TargetTables`; databases (mirror.py) and lakes (lake.py) share the rest.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import pyarrow as pa

from ray_canal.client.message import TableChange
from ray_canal.config.sink import TablePolicy
from ray_canal.model.table_event import ERASE, RENAME, TRUNCATE
from ray_canal.model.table_meta import TableMeta
from ray_canal.sinks.column_specs import ColumnSpec, column_specs
from ray_canal.sinks.filled import filled, kept_key, refuse_held_key, refuse_untold_key
from ray_canal.sinks.left_out import is_left_out, is_of_sequence, refuse_changes
from ray_canal.sinks.port import READ_AGAIN, Changed, SinkError, advising, naming
from ray_canal.sinks.rounding import refuse_rounding, tell_rounding
from ray_canal.sinks.rows import Rows
from ray_canal.sinks.table_moves import Moves, Name, moves_of

logger = logging.getLogger(__name__)


class TableName(NamedTuple):
    database: str
    table: str

    def __str__(self) -> str:
        return f"{self.database}.{self.table}"


class TargetTable(NamedTuple):
    """A table as the target has it: columns in order, those of its primary key (None: tables have
    no keys there), and those that the target computes itself."""

    columns: tuple[str, ...]
    key: tuple[str, ...] | None
    generated: tuple[str, ...] = ()

    @property
    def followed(self) -> set[str]:
        """Columns but those of a key that the target computes itself: some servers give one to a
        table that has none."""
        return set(self.columns) - (set(self.key or ()) & set(self.generated))

    def spelled(self, name: str) -> str:
        """Return a column's name as it is written here: no table of the source has two names that
        differ in the case of letters alone. One that is not here is returned as it is."""
        if name in self.columns:
            return name
        alike = [each for each in self.columns if each.lower() == name.lower()]
        return alike[0] if len(alike) == 1 else name


class TargetTables(Protocol):
    """Tables of a target."""

    def find(self, name: TableName) -> TargetTable | None:
        """Return a table of the target with its columns and key; None: there is none."""
        ...
    def create(self, name: TableName, columns: Sequence[ColumnSpec]) -> None:
        """Make a table, if it is not there yet."""
        ...
    def add(self, name: TableName, columns: Sequence[ColumnSpec]) -> None:
        """Add columns at the end, with their values in rows that are there."""
        ...

    def rename_columns(self, name: TableName, names: Mapping[str, str]) -> None:
        """Give columns other names, which are free. Raises SinkError."""
        ...
    def differing(self, name: TableName, columns: Sequence[ColumnSpec]) -> list[ColumnSpec]:
        """Return those that have another type than a table that is made here gets."""
        ...

    def types(self, name: TableName) -> dict[str, str]:
        """Return a table's columns with their types, as the target shows them."""
        ...

    def change(self, name: TableName, columns: Sequence[ColumnSpec]) -> None:
        """Give columns these types, whatever they were if the table has no rows."""
        ...

    def remove(self, name: TableName, columns: Sequence[str]) -> None: ...
    def has_rows(self, name: TableName) -> bool:
        """Return whether a table has rows."""
        ...
    def source_of(self, name: TableName) -> str:
        """Return the source's table that this sink has noted for one of the target's, or else
        another one; "": none."""
        ...

    def note_source(self, name: TableName, source: str) -> None:
        """Note of which of the source's tables this one has the rows."""
        ...

    def empty(self, name: TableName) -> None:
        """Remove all rows of a table."""
        ...
    def drop(self, name: TableName) -> None: ...


class SchemaFollower:
    """`columns` before rows are written, `follow` at each DDL. `begin` is called before a table is
    made or changed."""

    def __init__(
        self,
        policy: TablePolicy,
        tables: TargetTables,
        begin: Callable[[], None] = lambda: None,
    ) -> None:
        self._policy = policy
        self._tables = tables
        self._begin = begin
        self._fits: dict[tuple[TableName, pa.Schema], dict[str, str]] = {}
        self._compared: set[TableName] = set()
        self._sources: dict[TableName, str] = {}

    def forget(self) -> None:
        """Look at the target's tables again."""
        self._fits.clear()
        self._sources.clear()

    def leaves_out(self, rows: Rows) -> bool:
        """Return whether rows are not written. Raises SinkError: they cannot be known."""
        return is_left_out(self._policy, rows)

    def columns(self, rows: Rows) -> tuple[TableName, dict[str, str]]:
        """Make the target's table take these rows. Returns its name, and the columns that are to be
        written, each with its name there. Raises SinkError: they do not fit, and the policy does
        not change that."""
        name, schema = self.name(rows.schema, rows.table), rows.batch.schema
        self.claim(name, rows.schema, rows.table)
        columns = self._fits.get((name, schema))
        if columns is None:
            specs = column_specs(schema, rows.meta, rows.key)
            columns = self._fit(name, specs, rows.key)
            if name not in self._compared:  # it may be made by hand
                self._compared.add(name)
                self._compare(name, specs, columns)
            self._fits[name, schema] = columns
        return name, columns

    def _compare(self, name: TableName, specs: list[ColumnSpec], named: dict[str, str]) -> None:
        """Log what a table does to values that are written there."""
        tell_rounding(self._tables, name, specs, named)

    def claim(self, name: TableName, schema: str, table: str) -> None:
        """Note that a table of the target has the rows of this one. Raises SinkError: it has those
        of another one."""
        source = f"{schema}.{table}"
        found = self._sources.get(name)
        if found is None:
            found = self._tables.source_of(name)
            if found != source and (not found or self._tables.find(name) is None):
                self._begin()
                self._tables.note_source(name, source)
                found = source
            self._sources[name] = found
        if found != source:
            setting = self._policy.setting
            raise SinkError(
                f"the rows of {source} would get mixed with those of {found} in {name}: let "
                f"{setting('database')} or {setting('table')} tell them apart by {{schema}}, or "
                f"leave one out of the sinks' `tables`. If {found} is gone for good, drop {name}",
                "schema",
            )

    def name(self, schema: str, table: str) -> TableName:
        """Return the target's name of a table of the source."""
        named = {"schema": schema, "table": table}
        policy = self._policy
        return TableName(policy.database.format(**named), policy.table.format(**named))

    def _fit(
        self, name: TableName, columns: list[ColumnSpec], key: list[str], added: Sequence[str] = ()
    ) -> dict[str, str]:
        """Make the target's table take these columns, of which a statement `added` some. Returns
        those that are written, each with its name there. Raises SinkError: they do not fit, and the
        policy does not change that."""
        found = self._tables.find(name)
        if not key and self._policy.without_key == "stop":
            raise SinkError(
                f"{name} has no primary key, so its rows cannot be told apart; give it one, or set "
                f"{self._policy.setting('without_key')}",
                "schema",
            )
        if found is None:
            self._begin()
            if not self._policy.create_tables:
                text = f"the target has no table {name}, and create_tables is off"
                raise SinkError(text, "schema")
            self._tables.create(name, columns)
            return {column.name: column.name for column in columns}
        if key and found.key is not None and set(found.key) != {found.spelled(k) for k in key}:
            raise SinkError(
                f"{name} has the primary key ({', '.join(found.key)}), the source's is "
                f"({', '.join(key)}); give it that one",
                "schema",
            )
        named = {column.name: found.spelled(column.name) for column in columns}
        missing = [column for column in columns if named[column.name] not in found.columns]
        if missing:
            self._add(name, missing, found, columns, added)
        return {
            column.name: named[column.name]
            for column in columns
            if (column not in missing or self._policy.schema_change != "ignore")
            and (named[column.name] not in found.generated or column.is_key)
        }

    def _add(
        self,
        name: TableName,
        missing: list[ColumnSpec],
        found: TargetTable,
        columns: list[ColumnSpec],
        added: Sequence[str],
    ) -> None:
        policy = self._policy.schema_change
        if policy == "stop":
            names = ", ".join(column.name for column in missing)
            text = f"{name} lacks {names}: add them and start again, or set schema_change"
            raise SinkError(text, "schema")
        if policy == "ignore":
            return
        gone = sorted(found.followed - {found.spelled(column.name) for column in columns})
        told = {each.lower() for each in added}
        untold = [column.name for column in missing if column.name.lower() not in told]
        if gone and untold:
            raise SinkError(
                f"the source's {name} has {', '.join(untold)}, and no {', '.join(gone)} any more. "
                "Whether a column was renamed cannot be told, and a rename must keep its values: "
                "rename or add columns in the target, then start again. If the sink was moved back "
                "to before a rename, `ray-canal sink seek` to a place behind it",
                "schema",
            )
        refuse_untold_key(name, missing, lambda: self._tables.has_rows(name))
        self._begin()
        self._tables.add(name, missing)

    def follow(self, statement: Sequence[Changed], timeline: int = 0) -> None:
        """Do to the target's tables what one statement did to the source's. Raises SinkError."""
        first, policy = statement[0].change, self._policy.schema_change
        where = f"{timeline}:{first.journal_name}:{first.position}"
        if policy == "ignore":
            return
        self.forget()
        if policy == "stop":
            tables = self._tables
            refuse_changes(self._policy, statement, lambda *of: bool(tables.find(self.name(*of))))
            return
        moves = moves_of([step.change for step in statement])
        for (schema, table), old in moves.foreign.items():
            if self._is_due(self.name(schema, table)):
                with naming(schema, table):
                    self._refuse(f"{schema}.{table}", ".".join(old), statement[0])
        self._move(moves, where)
        for step in statement:
            with naming(step.change.schema, step.change.table):
                self._follow(step)

    def _is_due(self, name: TableName) -> bool:
        """Return whether a table of the target has not come to the statement yet."""
        return True

    def _refuse(self, table: str, old: str, step: Changed) -> None:
        """Raises SinkError."""
        change, name = step.change, self.name(*table.split(".", 1))
        raise SinkError(
            f"at {change.journal_name}:{change.position} {table} became the name of {old}, which is"
            f" not in this sink's tables, so its rows are not in {name}: load them there as they "
            "are at that place, and go on behind it with `ray-canal sink seek NAME "
            f"{change.journal_name}:{step.end}`. A sink whose `tables` admit both names follows "
            "such a statement",
            "schema",
        )

    def _move(self, moves: Moves, where: str) -> None:
        """Give the target's tables their new names. Raises SinkError: a name is another's."""
        for new in moves.renamed.values():
            with naming(*new):
                self.claim(self.name(*new), *new)
        pairs = [each for each in moves.renamed.items() if self._is_own(each[0])]
        named = {self.name(*old): self.name(*new) for old, new in pairs}
        named = {old: new for old, new in named.items() if old != new}
        if named:
            self._rename(named, where)
            self._sources.clear()
        for old in moves.gone if self._policy.schema_change == "evolve" else ():
            if self.name(*old) not in named.values() and self._is_own(old):
                self._drop(self.name(*old))

    def _is_own(self, source: Name) -> bool:
        """Return whether the target's table of its name has the rows of no other one."""
        return self._tables.source_of(self.name(*source)) in ("", ".".join(source))

    def _rename(self, named: Mapping[TableName, TableName], where: str) -> None:
        """Do what the statement at `where` did to names. A table that is under one of the new ones
        belongs to one that the source has no more."""
        raise NotImplementedError

    def _drop(self, name: TableName) -> None:
        if self._tables.find(name) is not None:
            self._begin()
            self._tables.drop(name)

    def _follow(self, step: Changed) -> None:
        change = step.change
        name = self.name(change.schema, change.table)
        is_gone = change.kind == ERASE or (change.kind == RENAME and step.meta is None)
        if is_gone or is_of_sequence(step):
            return
        is_known = bool(self._tables.source_of(name))
        if is_known:
            self.claim(name, change.schema, change.table)
        if change.kind == TRUNCATE:
            if self._tables.find(name) is not None:
                self._begin()
                self._tables.empty(name)
            self._become(name, step, is_known)
        elif step.meta is not None and change.arrow_schema is not None:
            self._alter(name, step.meta, change, is_known)
        self.claim(name, change.schema, change.table)

    def _become(self, name: TableName, step: Changed, is_known: bool) -> None:
        """Let a table that was emptied have the columns that a snapshot's rows will have, and make
        it again where `_alter` could not: there are no rows to lose. DDL may have changed them
        since another one of its attempts, and was not seen here. One that is not there yet is made:
        it may have no rows."""
        meta, shape = step.meta, step.change.arrow_schema
        found = self._tables.find(name)
        if meta is None or shape is None or (found is not None and not is_known):
            return
        if found is None:
            if self._policy.create_tables:
                self._alter(name, meta, step.change, is_known)
            return
        key = [column.name for column in meta.columns if column.is_key]
        columns = column_specs(shape, meta, key)
        if not _can_become(found, columns, key) and self._policy.create_tables:
            self._begin()
            self._tables.drop(name)
            self._tables.create(name, columns)
        else:
            self._alter(name, meta, step.change, is_known)

    def _alter(
        self, name: TableName, meta: TableMeta, change: TableChange, is_known: bool
    ) -> None:
        """Make, or change, the target's table so that it has the columns that the source's has
        after a statement. `is_known`: the target's table was followed before, so it was not made by
        hand for this one. Raises SinkError: the policy does not allow it."""
        key = [column.name for column in meta.columns if column.is_key]
        columns = [
            column._replace(fill=filled(column.name, column.kind, meta, change))
            if column.declared
            else column
            for column in column_specs(change.arrow_schema, meta, key)
        ]
        found = self._prepared(name, change)
        if found is not None and (kept := kept_key(columns, change, found.columns)):
            refuse_untold_key(name, kept, lambda: self._tables.has_rows(name))
        if change.is_new and found is not None:
            is_another = is_known and not _can_become(found, columns, key)
            if is_another or self._tables.has_rows(name):
                found = self._emptied(name, found, columns)
        if not key and self._policy.without_key != "rows":
            return  # what to do is decided when rows come
        if not key and found is not None and found.key:
            refuse_held_key(name, found.key, columns)
        self._fit(name, columns, key, change.added)
        if found is None:
            return
        columns = [column._replace(name=found.spelled(column.name)) for column in columns]
        if self._policy.schema_change != "evolve":
            there = [column for column in columns if column.name in found.columns]
            refuse_rounding(self._policy, self._tables, name, there, change)
            return
        gone = sorted(found.followed - {column.name for column in columns})
        if gone:
            self._tables.remove(name, gone)
        left = [column for column in columns if column.name in found.columns]
        if differing := self._tables.differing(name, left):
            with advising(f"if its values do not become the new type, drop {name}, {READ_AGAIN}"):
                self._tables.change(name, differing)

    def _prepared(self, name: TableName, change: TableChange) -> TargetTable | None:
        """Rename columns as the statement did, if that is not done yet, and take away what it added
        again (once more does no harm: no rows are written behind it yet). Returns the table."""
        found = self._tables.find(name)
        if found is None or change.is_new or change.arrow_schema is None:
            return found
        now = {field.name for field in change.arrow_schema.field("after").type}
        names = {
            found.spelled(old): new
            for old, new in change.renamed
            if found.spelled(old) in found.columns and new in now
        }
        for old, new in names.items():
            if found.spelled(new) in found.columns:
                raise SinkError(
                    f"at {change.journal_name}:{change.position} column {old} of {change.schema}."
                    f"{change.table} became {new}, and {name} has both: rename there what has to "
                    "be, and go on behind the statement with `ray-canal sink seek`",
                    "schema",
                )
        gone = {found.spelled(each) for each in change.remade} & set(found.columns)
        gone = gone - set(found.key or ()) if self._policy.schema_change == "evolve" else set()
        if names or gone:
            self._begin()
        if names:
            self._tables.rename_columns(name, names)
        if gone:
            self._tables.remove(name, sorted(gone))
        return self._tables.find(name)

    def _emptied(
        self, name: TableName, found: TargetTable, columns: Sequence[ColumnSpec]
    ) -> TargetTable | None:
        """Take away the rows of a table that the source has no more, so that the one that has its
        name now can take its place. Returns it; None if it was not fit for that."""
        columns = [column._replace(name=found.spelled(column.name)) for column in columns]
        key = {column.name for column in columns if column.is_key}
        self._begin()
        fits = set(found.columns) == {c.name for c in columns} and set(found.key or key) == key
        fits = fits and not self._tables.differing(name, columns)
        if not fits and self._policy.create_tables:
            self._tables.drop(name)
            return None
        self._tables.empty(name)
        return found


def _can_become(found: TargetTable, columns: Sequence[ColumnSpec], key: Sequence[str]) -> bool:
    """Return whether adding columns, or removing some, makes a table that has this key of it."""
    names = {found.spelled(column.name) for column in columns}
    has_key = found.key is None or not key or set(found.key) == {found.spelled(k) for k in key}
    return has_key and (names <= set(found.columns) or set(found.columns) <= names)
