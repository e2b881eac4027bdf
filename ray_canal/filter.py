"""Canal's filters: of tables, regular expressions over `schema.table`; of columns, by name; of
kinds of events.

Grammar of tables (Canal: AviaterRegexFilter): the list is split on commas outside brackets; each
pattern must match the whole of the lower-cased `schema.table`, ignoring case. An empty white list
admits every table, an empty black list none; black wins. Anybody who may subscribe gives such a
list, and a store's event loop reads it and matches names: both take a bounded time (patterns.py).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from ray_canal.errors import ConfigError
from ray_canal.patterns import NamePattern, compiled, span

LIST_CHARACTERS_MAX = 256 << 10
LIST_SIZE_MAX = 200_000
"""How long a list may be, and how large its patterns' programs: read in less than a second."""

_KNOWN_MAX = 65_536
_PLAIN = re.compile(r"(?:[A-Za-z0-9_$]|\\[.\-_$])+")
_OPEN, _CLOSE = "{[(", "}])"


def split_patterns(text: str) -> list[str]:
    """The patterns of a list: split on commas outside `{}`, `[]`, `()`, without blanks around."""
    patterns, current, depth, escaped = [], "", 0, False
    for character in text:
        if character == "," and depth == 0 and not escaped:
            patterns.append(current)
            current = ""
            continue
        if not escaped:
            depth += (character in _OPEN) - (character in _CLOSE)
            depth = max(depth, 0)
        escaped = character == "\\" and not escaped
        current += character
    patterns.append(current)
    return [pattern.strip() for pattern in patterns if pattern.strip()]


class _Names:
    """A list, compiled. Each pattern stands by itself, so that groups and flags of one cannot
    disturb another; patterns that are plain names are looked up, however many there are."""

    __slots__ = ("_patterns", "_plain")

    def __init__(self, text: str) -> None:
        """Raises ConfigError."""
        if len(text) > LIST_CHARACTERS_MAX:
            raise ConfigError(
                f"a table filter of {len(text):,} characters is too long: at most "
                f"{LIST_CHARACTERS_MAX:,}"
            )
        self._plain: set[str] = set()
        self._patterns: list[NamePattern] = []
        size = 0
        for pattern in sorted(split_patterns(text), key=len, reverse=True):
            if _PLAIN.fullmatch(pattern):
                self._plain.add(pattern.replace("\\", "").lower())
                continue
            try:
                found = compiled(pattern)
            except ConfigError as error:
                raise ConfigError(f"table filter {error}") from None
            size += found.size
            if size > LIST_SIZE_MAX:
                raise ConfigError(
                    f"a table filter is too large at its pattern {pattern!r}: give fewer patterns, "
                    "or smaller counts in {}"
                )
            self._patterns.append(found)

    def __bool__(self) -> bool:
        return bool(self._plain or self._patterns)

    def match(self, name: str) -> bool:
        return name in self._plain or any(pattern.matches(name) for pattern in self._patterns)


@lru_cache(maxsize=64)
def _names(text: str) -> _Names:
    """Return the list, compiled once for all subscribers and generations. Raises ConfigError."""
    return _Names(text)


def without_common(patterns: list[str], tables: str) -> list[str]:
    """Return those of the patterns that certainly match no name that the list `tables` matches. Of
    others nobody knows."""
    spans = [span(pattern) for pattern in split_patterns(tables)]
    if not spans or None in spans:
        return []
    found = []
    for pattern in patterns:
        own = span(pattern)
        if own is not None and all(
            each is not None and (own[1] < each[0] or each[1] < own[0]) for each in spans
        ):
            found.append(pattern)
    return found


class TableFilter:
    """The tables that pass. `within` is another white list (the destination's) that must admit it
    too."""

    def __init__(self, tables: str = "", black_tables: str = "", within: str = "") -> None:
        self._texts = (tables, black_tables, within)
        self._white = _names(tables)
        self._black = _names(black_tables)
        self._within = _names(within)
        self._known: dict[tuple[str, str], bool] = {}

    def admits(self, schema: str, table: str) -> bool:
        """Return whether the table passes; remembered."""
        key = (schema, table)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            found = self._known[key] = self._decide(f"{schema}.{table}".lower())
        return found

    def _decide(self, name: str) -> bool:
        name = name.encode("utf-8", "replace").decode()  # RE2 takes nothing else
        if self._black.match(name):
            return False
        return all(not white or white.match(name) for white in (self._white, self._within))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TableFilter) and self._texts == other._texts

    def __hash__(self) -> int:
        return hash(self._texts)

    def __str__(self) -> str:
        return self._texts[0]


class FieldFilter:
    """The columns that pass (Canal: filter.field, filter.black.field).

    A list is `schema.table:column/column,schema.table:…`: exact names, in any case. A table in the
    white list shows the columns named there; of another table all pass but those of the black one.
    """

    def __init__(self, fields: str = "", black_fields: str = "") -> None:
        self._texts = (fields, black_fields)
        self._white = _columns_by_table(fields)
        self._black = _columns_by_table(black_fields)

    def __bool__(self) -> bool:
        return bool(self._white or self._black)

    def admits(self, schema: str, table: str, column: str) -> bool:
        """Return whether the column passes."""
        name = f"{schema}.{table}".upper()
        if name in self._white:
            return column.upper() in self._white[name]
        return column.upper() not in self._black.get(name, ())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FieldFilter) and self._texts == other._texts

    def __hash__(self) -> int:
        return hash(self._texts)


def plain_name(pattern: str) -> tuple[str, str] | None:
    """The (schema, table) that is all that a pattern matches; None: it is no plain name."""
    if _PLAIN.fullmatch(pattern) is None:
        return None
    schema, dot, table = pattern.replace("\\", "").lower().partition(".")
    return (schema, table) if dot else None


def _columns_by_table(text: str) -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        table, colon, columns = item.partition(":")
        names = frozenset(name.strip().upper() for name in columns.split("/") if name.strip())
        if not colon or "." not in table or not names:
            raise ConfigError(f"field filter {item!r}: expected schema.table:column/column")
        found[table.strip().upper()] = names | found.get(table.strip().upper(), frozenset())
    return found


@dataclass(frozen=True)
class EventFilter:
    """Events that a destination drops before rows are decoded. Each flag drops (Canal: filter.*).

    Of statements: `query_ddl` the entries of DDL (schemas follow it all the same), `query_dml`
    those of statement format and what accompanies rows (ROWS_QUERY, ANNOTATE_ROWS, variables),
    `query_dcl` all others. Of rows: `rows` all, `dml_insert`, `dml_update`, `dml_delete` a kind,
    and `table_error` those of a table whose schema is missing or does not fit.
    """

    tables: TableFilter
    query_dcl: bool = False
    query_dml: bool = False
    query_ddl: bool = False
    rows: bool = False
    dml_insert: bool = False
    dml_update: bool = False
    dml_delete: bool = False
    table_error: bool = False

    def wants_rows(self, schema: str, table: str) -> bool:
        """Return whether any row of the table may pass."""
        return not self.rows and self.tables.admits(schema, table)

    @property
    def by_kind(self) -> bool:
        """Return whether it looks at kinds of events, and not at tables alone."""
        statements = self.query_dcl or self.query_dml or self.query_ddl
        return statements or self.dml_insert or self.dml_update or self.dml_delete
