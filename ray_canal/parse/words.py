"""A statement as words, read from left to right: all that classifying it needs.

This never fails, on any server's syntax: what it does not know is a token of one character, and a
quotation that never ends goes on to the end. It reads lazily, as a statement may have megabytes of
values. Not a parser: CREATE TABLE text is read in create_table.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_TOKEN = re.compile(
    r"""
    (?P<skip> \s+ | \#[^\n]* | --(?=\s|\Z)[^\n]* | /\*(?!M?!).*?(?:\*/|\Z)
            | /\*M?!\d* | \*/ )                    # what is inside a conditional comment counts
  | `(?P<back> (?:[^`]+|``)* ) `?
  | '(?P<single> (?:[^'\\]+|\\.|'')* ) '?
  | "(?P<double> (?:[^"\\]+|\\.|"")* ) "?
  | (?P<word> [\w$@]+ )
  | (?P<other> . )
    """,
    re.VERBOSE | re.DOTALL,
)
_QUOTES = {"back": "`", "single": "'", "double": '"'}


class Words:
    """A cursor over a statement's tokens. Keywords are compared in upper case; a quoted word is
    none."""

    def __init__(self, sql: str) -> None:
        self._tokens = _tokens(sql)
        self._ahead: list[tuple[str, str]] = []

    def _token(self, ahead: int) -> tuple[str, str]:
        """(kind, text); kind is empty behind the end."""
        while len(self._ahead) <= ahead:
            self._ahead.append(next(self._tokens, ("", "")))
        return self._ahead[ahead]

    def peek(self, ahead: int = 0) -> str:
        """A token in upper case, as a keyword or punctuation; empty behind the end."""
        kind, text = self._token(ahead)
        return f"{_QUOTES[kind]}{text}" if kind in _QUOTES else text.upper()

    def skip(self) -> None:
        self._token(0)
        del self._ahead[0]

    def take(self, *words: str) -> bool:
        """Step over these words if they come next."""
        if any(self.peek(ahead) != word for ahead, word in enumerate(words)):
            return False
        for _ in words:
            self.skip()
        return True

    @property
    def done(self) -> bool:
        return self._token(0)[0] == ""

    def name(self, schema: str) -> tuple[str, str]:
        """(schema, table) of the name that comes next; `schema` where it is not qualified."""
        first = self._identifier()
        if self.take("."):
            return first, self._identifier()
        return schema, first

    def _identifier(self) -> str:
        kind, text = self._token(0)
        if kind not in ("word", *_QUOTES):
            return ""
        self.skip()
        quote = _QUOTES.get(kind, "")
        return text.replace(quote * 2, quote) if quote else text


def _tokens(sql: str) -> Iterator[tuple[str, str]]:
    for found in _TOKEN.finditer(sql):
        kind = found.lastgroup or "other"
        if kind != "skip":
            yield kind, found[kind]
