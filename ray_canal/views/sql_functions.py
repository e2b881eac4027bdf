"""Implement SQL's operators of a row predicate where Arrow has no function for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ray_canal.errors import ConfigError


def same(left: Any, right: Any) -> Any:
    """Compare by <=>: NULL is equal to NULL alone."""
    equal = pc.fill_null(pc.equal(left, right), False)
    return pc.or_(equal, pc.and_(pc.is_null(left), pc.is_null(right)))


def nonzero(divisor: Any) -> Any:
    """Return NULL for zero, so that a quotient by zero is NULL."""
    return pc.if_else(pc.equal(divisor, 0), pa.scalar(None, divisor.type), divisor)


def remainder(left: Any, right: Any) -> Any:
    """Return the remainder with the sign of the dividend; NULL for a divisor of zero."""
    right = nonzero(right)
    quotient = pc.divide_checked(left, right)
    return pc.subtract_checked(left, pc.multiply_checked(quotient, right))


def chosen(condition: Any, yes: Any, no: Any) -> Any:
    """Return `yes` where the condition is true, else `no`: also where it is NULL."""
    return pc.if_else(pc.fill_null(condition, False), yes, no)


def arrow_pattern(pattern: str, escape: str) -> str:
    """Return a LIKE pattern with Arrow's escape, the backslash. Raises ConfigError."""

    def parts() -> Iterator[str]:
        characters = iter(pattern)
        for character in characters:
            if escape and character == escape:
                escaped = next(characters, None)
                character = escape if escaped is None else escaped
                yield "\\" + character if character in "%_\\" else character
            else:
                yield "\\\\" if character == "\\" else character

    if len(escape) > 1:
        raise ConfigError(f"ESCAPE {escape!r}: expected one character")
    return "".join(parts())
