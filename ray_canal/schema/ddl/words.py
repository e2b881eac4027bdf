"""Split a statement into words, read from left to right to classify and to apply it.

Reading words never fails, on any server's syntax: what is not known is a token of one character,
and a quotation that never ends goes on to the end. It is lazy, as a statement may have megabytes of
values. A `Dialect` says what the server that ran the statement took for a comment, an identifier
and an escape; without one, every conditional comment counts. Grammar is not known here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

MODE_REAL_AS_FLOAT, MODE_ANSI_QUOTES, MODE_NO_BACKSLASH_ESCAPES = 1, 4, 1 << 20
MODE_ORACLE, MODE_MAXDB = 1 << 9, 1 << 12
"""Bits of sql_mode, as QUERY events carry it, that change what a statement says."""

_MARIADB_IGNORES = range(50700, 100000)
"""Versions in /*!NNNNN */ that are of MySQL's alone; MariaDB skips those comments."""

_ESCAPES = {
    "n": "\n", "t": "\t", "r": "\r", "0": "\0", "b": "\b", "Z": "\x1a", "%": r"\%", "_": r"\_",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Dialect:
    """Rules by which one session of one server reads SQL. `version` is 80036 for 8.0.36; 0:
    unknown."""

    mariadb: bool | None = None
    version: int = 0
    sql_mode: int = 0

    def is_mysql_before(self, version: int) -> bool:
        """Tell if it is known to be a MySQL older than this."""
        return self.mariadb is False and 0 < self.version < version

    def runs(self, for_mariadb: bool, version: int) -> bool:
        """Tell if the inside of /*!VERSION … */ (`for_mariadb`: /*M!VERSION … */) is executed."""
        if for_mariadb and self.mariadb is False:
            return False
        if self.mariadb and not for_mariadb and version in _MARIADB_IGNORES:
            return False
        return not self.version or version <= self.version


@dataclass(frozen=True, slots=True)
class Token:
    """A word: `kind` is word, back, single, double (the quote around it) or other; `text` is the
    inside of the quotes, escapes included."""

    kind: str
    text: str

    @property
    def raw(self) -> str:
        """The token as in the statement."""
        quote = _QUOTES.get(self.kind, "")
        return f"{quote}{self.text}{quote}"


_QUOTES = {"back": "`", "single": "'", "double": '"'}
_END = Token("", "")
_DIGITS_MAX = 64


_BLANKS = r"\ \t\n\r\f\v"
"""And no others: every character beyond ASCII is one of a name (MySQL's "Schema Object Names")."""


@lru_cache(maxsize=4)
def _pattern(no_backslash: bool) -> re.Pattern[str]:
    single, double = ("[^']", '[^"]') if no_backslash else (r"[^'\\]", r'[^"\\]')
    return re.compile(
        rf"""
        (?P<skip> [{_BLANKS}]+ | \#[^\n]* | --(?=[{_BLANKS}]|\Z)[^\n]*
                | /\*(?!M?!).*?(?:\*/|\Z) | \*/ )
      | /\*(?P<maria>M?)!(?P<open>(?:[0-9]{{5,6}})?)  # what is inside a conditional comment counts
      | `(?P<back> (?:[^`]+|``)* ) `?
      | '(?P<single> (?:{single}+|\\.|'')* ) '?
      | "(?P<double> (?:{double}+|\\.|"")* ) "?
      | (?P<word> [\w$@\u0080-\uffff]+ )
      | (?P<other> . )
        """,
        re.VERBOSE | re.DOTALL,
    )


def tokens(sql: str, dialect: Dialect | None = None) -> Iterator[Token]:
    """The tokens of a statement, comments left out."""
    dialect = dialect or Dialect()
    ansi = bool(dialect.sql_mode & MODE_ANSI_QUOTES)
    match = _pattern(bool(dialect.sql_mode & MODE_NO_BACKSLASH_ESCAPES)).match
    at = 0
    while at < len(sql):
        found = match(sql, at)
        if found is None:  # cannot be: `other` takes any character
            return
        at = max(found.end(), at + 1)
        kind = found.lastgroup or "other"
        if kind == "open":
            if not dialect.runs(bool(found["maria"]), int(found["open"] or 0)):
                end = sql.find("*/", at)
                at = len(sql) if end < 0 else end + 2
        elif kind != "skip":
            text = found[kind]
            if ansi and kind == "double":
                kind, text = "back", text.replace('""', '"').replace("`", "``")
            yield Token(kind, text)


def number_of(text: str) -> int | None:
    """The value of a word of digits; None: it is another word, or longer than any number in SQL."""
    is_number = text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX
    return int(text) if is_number else None


class Words:
    """A cursor over a statement's tokens. Keywords are compared in upper case; a quoted word is
    none."""

    def __init__(self, sql: str | Iterable[Token], dialect: Dialect | None = None) -> None:
        self._tokens = tokens(sql, dialect) if isinstance(sql, str) else iter(sql)
        self._ahead: list[Token] = []

    def token(self, ahead: int = 0) -> Token:
        """Return a token; its kind is empty after the end."""
        while len(self._ahead) <= ahead:
            self._ahead.append(next(self._tokens, _END))
        return self._ahead[ahead]

    def peek(self, ahead: int = 0) -> str:
        """Return a token in upper case, as a keyword or punctuation; empty after the end."""
        token = self.token(ahead)
        return f"{_QUOTES[token.kind]}{token.text}" if token.kind in _QUOTES else token.text.upper()

    def skip(self) -> None:
        """Go past one word."""
        self.token()
        del self._ahead[0]

    def take(self, *words: str) -> bool:
        """Step over these words if they come next."""
        if any(self.peek(ahead) != word for ahead, word in enumerate(words)):
            return False
        for _ in words:
            self.skip()
        return True

    def take_any(self, *words: str) -> str:
        """Step over the next word if it is one of these; which one, or empty."""
        found = self.peek()
        if found not in words or not found:
            return ""
        self.skip()
        return found

    @property
    def done(self) -> bool:
        """Return whether there is no word left."""
        return self.token().kind == ""

    def rest(self) -> list[Token]:
        """Every token that is left."""
        found = []
        while not self.done:
            found.append(self.token())
            self.skip()
        return found

    def name(self, schema: str) -> tuple[str, str]:
        """Take the (schema, table) of the name that comes next; `schema` if it is not qualified."""
        first = self.identifier()
        if self.take("."):  # `.t` is a table of the session's database
            return first or schema, self.identifier()
        return schema, first

    def column(self) -> str:
        """Take a column's name, without the names of its table and database in front of it."""
        name = self.identifier()
        while self.take("."):
            name = self.identifier()
        return name

    def identifier(self) -> str:
        """The identifier that comes next, without its quotes; empty if none does."""
        token = self.token()
        if token.kind not in ("word", *_QUOTES):
            return ""
        self.skip()
        quote = _QUOTES.get(token.kind, "")
        return token.text.replace(quote * 2, quote) if quote else token.text


def statement(sql: str, dialect: Dialect | None = None) -> Words:
    """Return the words of a statement, after MariaDB's SET STATEMENT … FOR, which its log has."""
    words = Words(sql, dialect)
    if words.take("SET", "STATEMENT"):
        while not words.done and not words.take("FOR"):
            words.skip()
    return words


def parts(found: list[Token], separator: str = ",") -> list[list[Token]]:
    """Tokens between the separators that stand outside of parentheses; empty parts left out."""
    split: list[list[Token]] = [[]]
    depth = 0
    for token in found:
        if token.kind == "other":
            depth += (token.text == "(") - (token.text == ")")
            if depth == 0 and token.text == separator:
                split.append([])
                continue
        split[-1].append(token)
    return [part for part in split if part]


def unquoted(text: str, no_backslash: bool = False, quote: str = "'") -> str:
    """The inside of a string literal without its escapes. `quote`: what stands around it."""
    text = text.replace(quote * 2, quote)
    if no_backslash:
        return text
    return re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), text, flags=re.DOTALL)
