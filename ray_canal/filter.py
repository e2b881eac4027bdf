"""Canal's table filter: a list of regular expressions over `schema.table`, white and black.

Grammar (Canal: AviaterRegexFilter): the list is split on commas outside brackets; each pattern must match
the whole of the lower-cased `schema.table`, ignoring case. An empty white list admits every table, an empty
black list none; black wins.
"""

from __future__ import annotations

import re

from ray_canal.errors import ConfigError

_OPEN, _CLOSE = "{[(", "}])"


def split_patterns(text: str) -> list[str]:
    """The patterns of a list: split on commas outside `{}`, `[]`, `()`; blanks around them removed."""
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


def _compiled(text: str) -> re.Pattern[str] | None:
    """One regular expression for a list, longest pattern first; None for an empty list."""
    patterns = sorted(split_patterns(text), key=len, reverse=True)
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ConfigError(f"table filter {pattern!r} is no regular expression: {error}") from None
    return re.compile("|".join(f"(?:{p})" for p in patterns), re.IGNORECASE) if patterns else None


class TableFilter:
    """Which tables pass. `within` is a second white list that must admit a table, too (the instance's)."""

    def __init__(self, tables: str = "", black_tables: str = "", within: str = "") -> None:
        self._texts = (tables, black_tables, within)
        self._white = _compiled(tables)
        self._black = _compiled(black_tables)
        self._within = _compiled(within)
        self._known: dict[tuple[str, str], bool] = {}

    def admits(self, schema: str, table: str) -> bool:
        """Whether the table passes; remembered."""
        key = (schema, table)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._decide(f"{schema}.{table}".lower())
        return found

    def _decide(self, name: str) -> bool:
        if self._black is not None and self._black.fullmatch(name):
            return False
        return all(w is None or w.fullmatch(name) for w in (self._white, self._within))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TableFilter) and self._texts == other._texts

    def __hash__(self) -> int:
        return hash(self._texts)

    def __str__(self) -> str:
        return self._texts[0]
