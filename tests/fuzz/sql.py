"""Mangled SQL, GTID sets and table filters: texts out of the golden files' own."""

from __future__ import annotations

import random
import re
from functools import lru_cache
from pathlib import Path

_DATA = Path(__file__).resolve().parents[1] / "golden" / "data"
_WORDS = (
    "CREATE", "TABLE", "ALTER", "RENAME", "TO", "DROP", "INDEX", "LIKE", "(", ")", ",", "`", "'",
    '"', "/*", "*/", "/*!50001", "/*M!100400", "--", "#", ";", "\\", "\0", "PRIMARY", "KEY", "ADD",
    "COLUMN", "MODIFY", "CHANGE", "AFTER", "FIRST", "CONVERT", "CHARACTER", "SET", "ENUM", "int(",
    "decimal(99999999999999999999,2)", "varchar(-1)", "bit(0)", "vector(", "DEFAULT", "CHECK", "((",
    "\N{SUPERSCRIPT TWO}", "int(\N{SUPERSCRIPT TWO})", "9" * 5000, "text(99999999999)", "enum(x'4",
    "PARTITION", "BY", "AS", "SELECT", "0x", "1e999", "\N{GREEK SMALL LETTER ALPHA}", "\ud800", ".",
    "DATABASE", "IF", "EXISTS", "NOT", "NULL", "GENERATED", "UNIQUE", "UNSIGNED", "=", "COLLATE",
)  # fmt: skip
_GTIDS = (
    "3E11FA47-71CA-11E1-9E33-C80AA9429562:1-5:7", "3E11FA47-71CA-11E1-9E33-C80AA9429562:tag:1-3",
    "0-1-5,1-2-9", "", "a:1", ":", "-", "1-", "0-1--5",
)  # fmt: skip
_FILTERS = (r".*\..*", r"shop\..*,a\.b", r"test\.(a|b)", r"t\\..*", "(", "[", "a{2,1}", "*", "(?P<")


@lru_cache(maxsize=1)
def scripts() -> tuple[tuple[str, ...], ...]:
    """The statements of each of the golden files' scripts."""
    found = []
    for path in sorted(_DATA.glob("*/*.sql")):
        parts = (part.strip() for part in re.split(r";\s*\n", path.read_text(encoding="utf-8")))
        found.append(tuple(part for part in parts if 0 < len(part) < 4096))
    return tuple(script for script in found if script)


@lru_cache(maxsize=1)
def statements() -> tuple[str, ...]:
    """Every statement of the golden files' scripts."""
    return tuple(sorted({statement for script in scripts() for statement in script}))


def mangled(rng: random.Random) -> str:
    """A statement with words lost, doubled, moved, or put in from elsewhere."""
    return mangle(rng.choice(statements()), rng)


def mangled_script(rng: random.Random) -> list[str]:
    """Some statements of a script, half of them mangled: a table is made, then changed."""
    script = rng.choice(scripts())
    first = rng.randrange(len(script))
    some = script[first : first + rng.choice((2, 4, 8))]
    return [mangle(sql, rng) if rng.random() < 0.5 else sql for sql in some]


def mangled_gtids(rng: random.Random) -> str:
    return _characters(rng.choice(_GTIDS), rng, "0123456789:,-afAF tag\n ")


def mangled_filter(rng: random.Random) -> str:
    return _characters(rng.choice(_FILTERS), rng, r"\.*+?()[]{}|^$,ab0-1:=!<>P/")


def mangle(text: str, rng: random.Random) -> str:
    parts = re.findall(r"\w+|\s+|.", text, re.DOTALL)
    for _ in range(rng.choice((1, 1, 2, 4, 8))):
        at = rng.randrange(len(parts) + 1)
        way = rng.randrange(5)
        if way == 0:
            del parts[at : at + rng.choice((1, 1, 2, 5))]
        elif way == 1:
            parts[at:at] = [" ", rng.choice(_WORDS), " "]
        elif way == 2:
            parts[at:at] = parts[at : at + rng.choice((1, 3, 9))] * rng.choice((1, 2, 50))
        elif way == 3:
            del parts[at:]
        else:
            parts[at : at + 1] = [rng.choice(_WORDS)]
    return "".join(parts)[:100_000]


def _characters(text: str, rng: random.Random, alphabet: str) -> str:
    out = list(text)
    for _ in range(rng.choice((0, 1, 1, 2, 4))):
        at = rng.randrange(len(out) + 1)
        if rng.random() < 0.5:
            out[at:at] = [rng.choice(alphabet)]
        else:
            del out[at : at + 1]
    return "".join(out)
