"""Resolve the schema of a TABLE_MAP's table: from row metadata, given CREATE TABLEs, the log's own
DDL, or the server's catalog."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from ray_canal.binlog.table_map import TableMap, table_meta_from_metadata
from ray_canal.errors import TableMetaMismatch
from ray_canal.model.table_meta import TableMeta
from ray_canal.schema.ddl.create_table import parse_tables
from ray_canal.schema.fit import (
    fitted,
    misfit,
    same_type,
    with_declared,
    with_hidden_key,
    without_key,
)
from ray_canal.schema.history import HistoryPlace, SchemaHistory, place_of
from ray_canal.schema.names import Name, Names, lowered
from ray_canal.schema.table_state import TableState

Catalog = Callable[[str, str], TableMeta | None]

_RESOLVED_MAX = 4096


def _names(meta: TableMeta) -> tuple[str, ...]:
    return tuple(column.name for column in meta.columns)


class SchemaRegistry:
    """Resolves tables at places of the log.

    Names, keys and signs come from row metadata where the binlog has it; then the known schema
    lends the exact type text (`tinyint(1)`), which row metadata lacks, and tells a primary key from
    a unique one. Known are: a given text, where it fits; else the history of the log's DDL; else
    the catalog, which is asked once per table until a DDL. A schema that does not fit the TABLE_MAP
    is refused, not guessed; but where the server adds a key of its own to keyless tables,
    `hidden_key` gives its name. `names` says how the server compares those of tables.
    """

    def __init__(
        self,
        create_table_sql: str = "",
        catalog: Catalog | None = None,
        history: SchemaHistory | None = None,
        hidden_key: Callable[[], str] | None = None,
    ) -> None:
        self._given_tables = parse_tables(create_table_sql)
        self._catalog = catalog
        self._hidden_key = hidden_key
        self._history = history
        self._known: dict[tuple[str, str], TableMeta | None] = {}
        # What was known when a TABLE_MAP was resolved, and what came of it.
        self._resolved: dict[TableMap, tuple[object, TableMeta]] = {}
        self._seen: dict[Name, TableMeta] = {}  # of the last rows of each table
        self.has_asked_rows = False
        """Return whether what rows tell of a table was asked for before a statement."""
        self._given: dict[Name, TableMeta] = {}
        self.use_names(Names())

    def resolve(self, table_map: TableMap, journal_name: str = "", position: int = 0) -> TableMeta:
        """The table's schema at a place. Raises TableMetaMismatch: none is known, or it does not
        fit; and what the catalog raises."""
        place = place_of(journal_name, position)
        state = self._tracked(table_map, place)
        cached = self._resolved.get(table_map)
        if cached is not None and cached[0] is state:
            return cached[1]
        from_row = table_meta_from_metadata(table_map)
        if from_row is None:
            found = self._look_up(table_map, state, place)
        else:
            found = self._detailed(from_row, table_map, state)
        if len(self._resolved) >= _RESOLVED_MAX:
            self._resolved.clear()
        self._resolved[table_map] = (state, found)
        self._see(found)
        return found

    def _see(self, meta: TableMeta) -> None:
        name = self.names.pair((meta.schema, meta.table))
        self._seen.pop(name, None)
        self._seen[name] = meta
        if len(self._seen) > _RESOLVED_MAX:
            del self._seen[next(iter(self._seen))]

    def _tracked(self, table_map: TableMap, place: HistoryPlace) -> TableState | None:
        if self._history is None:
            return None
        name = (table_map.schema, table_map.table)
        state = self._history.at(*name, place)
        if state is None and table_map.names is not None:  # the truth: this lends type texts
            return self._history.later(*name, place)
        return state

    def _candidate(self, table_map: TableMap, state: TableState | None) -> TableMeta | None:
        """The best that is known, whether or not it fits."""
        given = self._given_meta(table_map)
        tracked = None if state is None or state.problem else state.meta
        if given is not None and (tracked is None or not misfit(table_map, given)):
            return given
        return tracked or given or self._catalog_meta(table_map)

    def _detailed(
        self, from_row: TableMeta, table_map: TableMap, state: TableState | None
    ) -> TableMeta:
        """Row metadata's schema with the known schema's type texts, column by column where they
        agree."""
        known = self._candidate(table_map, state)
        if from_row.hidden and known is not None and _names(known) == table_map.names:
            # Columns with the names of hidden ones, which somebody declared.
            from_row = table_meta_from_metadata(table_map, hidden=0) or from_row
        if known is None or len(known.columns) != len(from_row.columns):
            return from_row
        columns = tuple(
            with_declared(mine, theirs)
            if mine.name.lower() == theirs.name.lower() and same_type(mine, theirs)
            else mine
            for mine, theirs in zip(from_row.columns, known.columns, strict=True)
        )
        found = dataclasses.replace(from_row, columns=columns)
        return without_key(found, known)

    def _look_up(
        self, table_map: TableMap, state: TableState | None, place: HistoryPlace
    ) -> TableMeta:
        meta = self._candidate(table_map, state)
        if meta is None:
            raise TableMetaMismatch(self._nothing_known(table_map, state, place))
        problem = misfit(table_map, meta)
        if problem and self._hidden_key is not None and (name := self._hidden_key()):
            meta = with_hidden_key(table_map, meta, name)
            problem = misfit(table_map, meta)
        if problem and self._catalog is not None:
            self._known.pop((table_map.schema, table_map.table), None)
            meta = self._catalog_meta(table_map) or meta
            problem = misfit(table_map, meta)
        if problem:
            raise TableMetaMismatch(
                f"the known schema of {table_map.full_name} does not fit its rows: {problem}; the "
                "table was altered since, and names are not guessed. Set binlog_row_metadata=FULL "
                "on the server, or give the CREATE TABLE of that time (source.schema_sql)"
            )
        return fitted(table_map, meta)

    def _nothing_known(
        self, table_map: TableMap, state: TableState | None, place: HistoryPlace
    ) -> str:
        places = ["the schema text"] * bool(self._given) + ["the catalog"] * bool(self._catalog)
        places += ["the table meta history (the catalog at the start and the DDL since)"] * (
            self._history is not None
        )
        where = f" and the table is not in {' or in '.join(places)}" if places else ""
        later = self._history and self._history.later(table_map.schema, table_map.table, place)
        if state is not None and state.problem:
            where = f" and {state.problem}"
        elif later:
            where = " and what is known of it later need not hold here"
        elif alike := self._alike(table_map):
            where = (
                f", but {alike} is known: if the server's lower_case_table_names is 1 or 2, that "
                "is the same table; say so (source.lower_case_table_names, decode "
                "--lower-case-table-names)"
            )
        return (
            f"no column names for table {table_map.full_name}: the binlog has no row metadata"
            f"{where}; set binlog_row_metadata=FULL on the server, or give its CREATE TABLE "
            "(decode --schema, source.schema_sql)"
        )

    def _alike(self, table_map: TableMap) -> str:
        """A known table whose name differs in letters' case alone, where that may not matter."""
        if self._names.setting is not None:
            return ""
        name = (table_map.schema, table_map.table)
        known = [] if self._history is None else self._history.alike(name)
        for schema, table in [*known, *self._given]:
            if (lowered(schema or name[0]), lowered(table)) == (lowered(name[0]), lowered(name[1])):
                return f"{schema or name[0]}.{table}"
        return ""

    @property
    def names(self) -> Names:
        return self._names

    def use_names(self, names: Names) -> None:
        """Compare names of tables as this server does."""
        self._names = names
        self._given = {names.pair((t.schema, t.table)): t for t in self._given_tables}
        self._resolved.clear()

    def use(self, history: SchemaHistory) -> None:
        """Continue with this history, and no catalog but next to a given text."""
        self.use_names(history.names)
        self._history = history
        if not self._given:
            self._catalog = None

    def changed(self, schema: str) -> None:
        """A DDL ran in this schema: what the catalog said of it is out of date."""
        for key in [key for key in self._known if lowered(key[0]) == lowered(schema)]:
            del self._known[key]
        self._resolved.clear()

    def tables_at(self, schema: str, place: HistoryPlace) -> list[Name]:
        """The tables of a database at a place, as far as they are known or had rows."""
        schema, history = self.names.one(schema), self._history
        self.has_asked_rows = True
        known = () if history is None else history.known_names()
        there = [n for n in known if n[0] == schema and history and history.tracked(n, place)]
        return list(dict.fromkeys([*there, *(name for name in self._seen if name[0] == schema)]))

    def exists_at(self, name: Name, place: HistoryPlace) -> bool | None:
        """Return whether there is a table of a name at a place; None: not known. One that had rows
        is there until the history has a statement that took it away."""
        history, name = self._history, self.names.pair(name)
        if history is None:
            return None
        if history.tracked(name, place) is not None:
            return True
        if history.would_know(name, place):
            return False
        self.has_asked_rows = True
        return True if name in self._seen else None

    def known_at(self, name: Name, place: HistoryPlace) -> TableMeta | None:
        """A table's columns at a place, for who shows no rows of it; None: they are not known."""
        state = None if self._history is None else self._history.tracked(name, place)
        if state is not None and not state.problem:
            return state.meta
        self.has_asked_rows = True
        return self._seen.get(name)

    def _given_meta(self, table_map: TableMap) -> TableMeta | None:
        schema, table = self._names.pair((table_map.schema, table_map.table))
        found = self._given.get((schema, table)) or self._given.get(("", table))
        if found is None or (found.schema, found.table) == (table_map.schema, table_map.table):
            return found
        return dataclasses.replace(found, schema=table_map.schema, table=table_map.table)

    def _catalog_meta(self, table_map: TableMap) -> TableMeta | None:
        key = (table_map.schema, table_map.table)
        if self._catalog is None:
            return None
        if key not in self._known:
            if len(self._known) >= _RESOLVED_MAX:
                self._known.clear()
            self._known[key] = self._catalog(*key)
        return self._known[key]
