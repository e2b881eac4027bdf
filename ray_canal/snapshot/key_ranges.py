"""Cutting a table of any key into ranges: each border is a key that the server gave, compared by
the server alone.

Where the key is one integer column, the keys that are left are halved (planner.py). Else a border
is found by walking so many entries of the index on. `(a, b) > (x, y)` would not be a range to
MySQL, so it is written as `a > x OR (a = x AND b > y)`. Columns that the index has from the
greatest down are walked so, too: what is above a border is behind it in the index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ray_canal.kernels.base import codes
from ray_canal.model.table_meta import ColumnMeta
from ray_canal.snapshot.columns import Selection, quoted
from ray_canal.snapshot.planner import Ask, from_clause, halved_keys, has_integer_key
from ray_canal.snapshot.tables import SnapshotTable

Border = tuple[str, ...]
"""A key as SQL literals, one for each of its columns."""

FIRST_ROWS = 1000
"""So many rows of a table at most are read at once until their length is known: the server's own
estimate may be as old as the table was empty."""
_NUMBERS = frozenset(range(codes.I8, codes.I64 + 2)) | {codes.YEAR, codes.DEC128, codes.DEC256}
_CAST = (codes.ENUM, codes.SET, codes.BIT)
_FLOATS = (codes.F32, codes.F64)


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Rows with a key above `after` (None: from the first key on) and up to `upto`, as SQL in
    `condition`. `estimate`: how many the optimizer takes them for; 0: it was not asked."""

    after: Border | None
    upto: Border
    condition: str
    estimate: int = 0


class KeyRanges:
    """Cuts a table's rows into ranges of its key, in the key's order."""

    def __init__(self, table: SnapshotTable, selection: Selection, ask: Ask) -> None:
        self._table = table
        self._ask = ask
        by_name = {
            column.name: (column, code)
            for column, code in zip(table.meta.columns, selection.plan.codes, strict=True)
        }
        self._columns = [by_name[name] for name in table.key]
        self._names = [quoted(name) for name in table.key]
        self._descends = [name in table.descending for name in table.key]

    def greatest(self) -> Border | None:
        """The last key of now in the key's order; None: the table is empty."""
        return self._border("", 0, backwards=True)

    def ranges(
        self, after: Border | None, upto: Border, rows: Callable[[], int]
    ) -> Iterator[KeyRange]:
        """Ranges between two borders, of about `rows` rows each; the next one is made when it is
        asked for."""
        if has_integer_key(self._table):
            yield from self._integer_ranges(after, upto, rows)
            return
        while True:
            left = self._between(after, upto)
            border = self._border(left, rows() - 1)
            if border is None or border == upto:
                yield KeyRange(after, upto, left)
                return
            yield KeyRange(after, border, self._between(after, border))
            after = border

    def _integer_ranges(
        self, after: Border | None, upto: Border, rows: Callable[[], int]
    ) -> Iterator[KeyRange]:
        first = self._border("", 0) if after is None else after
        low, high = int((first or upto)[0]) + (after is not None), int(upto[0])
        for last, count in halved_keys(self._ask, self._table, low, high, rows):
            border = (str(last),)
            yield KeyRange(after, border, self._between(after, border), count)
            after = border

    def _between(self, after: Border | None, upto: Border) -> str:
        until = f"({self._up_to(upto)})"
        return f"({self._behind(after)}) AND {until}" if after else until

    def _border(self, condition: str, offset: int, *, backwards: bool = False) -> Border | None:
        literals = ", ".join(
            f"{_literal_of(*column)} AS k{n}" for n, column in enumerate(self._columns)
        )
        by = ", ".join(
            f"{name} {'DESC' if descends != backwards else 'ASC'}"
            for name, descends in zip(self._names, self._descends, strict=True)
        )
        where = f" WHERE {condition}" if condition else ""
        found = self._ask(
            f"SELECT {literals} FROM {from_clause(self._table)}{where} ORDER BY {by} "
            f"LIMIT 1 OFFSET {offset}"
        )
        if not found:
            return None
        values = (_text(found[0][f"k{n}"]) for n in range(len(self._columns)))
        pairs = zip(self._columns, values, strict=True)
        return tuple(_literal(column, code, value) for (column, code), value in pairs)

    def _behind(self, border: Border) -> str:
        return self._compared(border, "><", "")

    def _up_to(self, border: Border) -> str:
        return self._compared(border, "<>", "=")

    def _compared(self, border: Border, signs: str, last: str) -> str:
        """Return how a key is compared: by the first sign of a column that ascends, by the second
        of one that descends; `last`: what the last column's has behind it."""
        parts = []
        for n, (name, literal) in enumerate(zip(self._names, border, strict=True)):
            same = [f"{self._names[k]} = {border[k]}" for k in range(n)]
            sign = signs[self._descends[n]] + (last if n == len(border) - 1 else "")
            parts.append(" AND ".join([*same, f"{name} {sign} {literal}"]))
        return " OR ".join(f"({part})" for part in parts)


def _text(value: Any) -> str:
    return value.decode("ascii") if isinstance(value, bytes) else str(value)


def _literal_of(column: ColumnMeta, code: int) -> str:
    """Return the SQL expression to SELECT a key's column by; `_literal` makes SQL of its value."""
    name = quoted(column.name)
    if code in _NUMBERS:
        return f"CAST({name} AS CHAR)"
    if code in _CAST:
        return f"CAST(CAST({name} AS UNSIGNED) | 0 AS CHAR)"
    if code in _FLOATS:  # as a number: MySQL 9 casts to 22 characters, which are too few for some
        return f"{name} + 0e0"
    if code in (codes.TEXT, codes.BYTES) and not _is_address(column):
        return f"HEX({name})"
    return f"CAST({name} AS CHAR)"


def _literal(column: ColumnMeta, code: int, text: str) -> str:
    if code in _NUMBERS or code in _CAST:
        return text
    if code in _FLOATS:
        return text if "e" in text.lower() else f"{text}e0"
    if code == codes.BYTES and not _is_address(column):
        return f"X'{text}'"
    if code == codes.TEXT and not _is_address(column):
        charset = "utf8" if column.charset == "utf8mb3" else column.charset
        return f"_{charset} X'{text}'"
    return "'" + text.replace("'", "''") + "'"


def _is_address(column: ColumnMeta) -> bool:
    return column.mysql_type.lower() in ("uuid", "inet4", "inet6")
