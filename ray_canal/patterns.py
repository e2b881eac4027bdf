r"""Regular expressions over names, matched by RE2: in time linear in the name.

Canal's are Perl 5's (Apache ORO). RE2 has their syntax without what needs backtracking, and its
`\d`, `\w` and `\s` are of ASCII alone, where ORO's are of Unicode; so those are written out here.
Look-around is not RE2's either. Its one common use, a pattern that begins with what a name must not
go on with (`shop\.(?!secret).*`), is two patterns: the one that remains, and what must not match.
All else that RE2 lacks is refused when the pattern is compiled.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import re2

from ray_canal.errors import ConfigError

PATTERN_MEMORY_BYTES = 1 << 20
"""Bytes of memory that RE2 may use for one pattern; with more, a counted repetition takes
seconds."""

_SPAN_BYTES = 64
_LACKS = (
    "there are no look-around assertions (but a negative one behind literal text at the "
    "beginning), backreferences, atomic groups and possessive quantifiers here, since a match must "
    "take linear time: docs/reference/filters.md"
)
_OUTSIDE = {
    r"\d": r"\p{Nd}", r"\D": r"\P{Nd}", r"\w": r"[\p{L}\p{Nd}_]", r"\W": r"[^\p{L}\p{Nd}_]",
    r"\s": r"[\t-\r\p{Z}]", r"\S": r"[^\t-\r\p{Z}]", r"\Z": r"\z",
}  # fmt: skip
_INSIDE = {
    r"\d": r"\p{Nd}", r"\D": r"\P{Nd}", r"\w": r"\p{L}\p{Nd}_", r"\s": r"\t-\r\p{Z}",
}  # fmt: skip
_NOT_INSIDE = (r"\W", r"\S")
_LITERAL = re.compile(r"(?:\(\?i\))?\^?(?:\\[^A-Za-z0-9]|[^\\\[\](){}.*+?^$|])*")
_QUANTIFIERS = ("*", "+", "?", "{")
_COUNT_TOO_LARGE = re.compile(r"\{(?:\d+,)?\d{5}")
_AHEAD_NOT = "(?!"


@dataclass(frozen=True, slots=True)
class NamePattern:
    """A pattern that must match the whole of a name, in any case. `size`: instructions of its
    program; time to match is at most proportional to it."""

    text: str
    size: int
    _must: tuple[Any, ...]
    _must_not: tuple[Any, ...]

    def matches(self, name: str) -> bool:
        """Return whether the whole name matches."""
        return any(
            must.fullmatch(name) is not None
            and (must_not is None or must_not.fullmatch(name) is None)
            for must, must_not in zip(self._must, self._must_not, strict=True)
        )


@lru_cache(maxsize=64)
def span(pattern: str) -> tuple[bytes, bytes] | None:
    """The least and the greatest of the lower-cased names that a pattern may match, in UTF-8; None:
    not known. So patterns whose spans do not overlap match no name in common."""
    tokens = _tokens(pattern)
    if any(inside and part != part.lower() for part, inside in tokens):
        return None
    lowered = "".join(part.lower() if len(part) == 1 else part for part, _ in tokens)
    options = re2.Options()
    options.log_errors = False
    options.max_mem = PATTERN_MEMORY_BYTES
    try:
        found = re2.compile(_in_unicode(lowered), options=options)
        first, last = found.possiblematchrange(_SPAN_BYTES)
    except (re2.error, ValueError):
        return None
    return first, last


def compiled(pattern: str) -> NamePattern:
    """Raises ConfigError: not a regular expression, or one that RE2 lacks, or too large."""
    try:
        branches = _alternatives(pattern) if _AHEAD_NOT in pattern else [pattern]
        pairs = [_with_exclusion(branch) for branch in branches]
        must = tuple(_compile(text) for text, _ in pairs)
        must_not = tuple(None if text is None else _compile(text) for _, text in pairs)
    except (re2.error, ValueError) as error:  # UnicodeEncodeError is one
        raise ConfigError(
            f"{pattern!r} is not a regular expression that can be used: {_reason(error)}; {_LACKS}"
        ) from None
    size = sum(each.programsize for each in (*must, *must_not) if each is not None)
    return NamePattern(pattern, size, must, must_not)


def _compile(text: str) -> Any:
    options = re2.Options()
    options.case_sensitive = False
    options.log_errors = False
    options.max_mem = PATTERN_MEMORY_BYTES
    return re2.compile(_in_unicode(text), options=options)


def _reason(error: Exception) -> str:
    reason = error.args[0] if error.args else ""
    if isinstance(reason, bytes):
        return reason.decode("utf-8", "replace")
    return str(error)


def _in_unicode(text: str) -> str:
    r"""The pattern with `\d`, `\w`, `\s` as Unicode has them. Raises ValueError."""
    if _COUNT_TOO_LARGE.search(text):  # RE2 takes it for text
        raise ValueError("invalid repetition size")
    parts: list[str] = []
    for part, inside in _tokens(text):
        if inside and part in _NOT_INSIDE:
            raise ValueError(f"{part} inside [] is not known")
        parts.append((_INSIDE if inside else _OUTSIDE).get(part, part))
    return "".join(parts)


def _tokens(text: str) -> list[tuple[str, bool]]:
    r"""(a character, an escape or a quotation \Q…\E; whether it stands inside a class)."""
    found: list[tuple[str, bool]] = []
    at, class_from = 0, -1  # a `]` before `class_from` is a letter of the class
    while at < len(text):
        part = text[at : at + 2] if text[at] == "\\" else text[at]
        inside = class_from >= 0
        if part == r"\Q":
            end = text.find(r"\E", at)
            part = text[at:] if end < 0 else text[at : end + 2]
        elif inside and text.startswith("[:", at) and ":]" in text[at + 2 :]:
            part = text[at : text.index(":]", at + 2) + 2]
        elif part == "[" and not inside:
            part = "[^" if text.startswith("[^", at) else "["
            class_from = at + len(part) + 1
        elif part == "]" and inside and at >= class_from:
            class_from = -1
        found.append((part, inside))
        at += len(part)
    return found


def _alternatives(text: str) -> list[str]:
    """The pattern's branches: between `|` that stand in no group and no class."""
    found, depth = [""], 0
    for part, inside in _tokens(text):
        if not inside:
            depth += (part == "(") - (part == ")")
        if part == "|" and not inside and depth == 0:
            found.append("")
        else:
            found[-1] += part
    return found


def _with_exclusion(text: str) -> tuple[str, str | None]:
    """(what a name must match, what it must not: None for nothing).

    Where a branch begins with literal text, a negative look-ahead behind that text can only stand
    in one place of a name, so it is a pattern of its own.
    """
    start = _LITERAL.match(text)
    before = "" if start is None else start[0]
    rest, excluded = text[len(before) :], []
    while rest.startswith(_AHEAD_NOT):
        length = _group_length(rest)
        excluded.append(rest[len(_AHEAD_NOT) : length - 1])
        rest = rest[length:]
    if not excluded:
        return text, None
    if rest.startswith(_QUANTIFIERS):
        raise ValueError("a look-ahead assertion cannot be repeated")
    return before + rest, f"{before}(?:{'|'.join(f'(?:{each})' for each in excluded)})(?s:.*)"


def _group_length(text: str) -> int:
    """Return how long the group is that the text begins with. Raises ValueError: it does not
    end."""
    depth = length = 0
    for part, inside in _tokens(text):
        length += len(part)
        if not inside:
            depth += (part == "(") - (part == ")")
        if depth == 0:
            return length
    raise ValueError("missing ): " + text)
