"""Words that two readers of statements look for: what entry a statement is (statements.py), and
what it does to rows (row_effects.py)."""

from __future__ import annotations

from ray_canal.schema.ddl.words import Words
from ray_canal.schema.names import Name

CALLING_VERBS = frozenset(("CALL", "DO", "SELECT", "WITH", "HANDLER"))
"""Verbs that change rows through something else; which rows is not known."""
NOT_A_TABLE = frozenset(("COLUMN", "INDEX", "KEY", "CONSTRAINT"))
"""Behind RENAME, in ALTER TABLE: another name than the table's changes."""
_MODIFIERS = ("LOW_PRIORITY", "DELAYED", "HIGH_PRIORITY", "QUICK", "IGNORE")


def skip_modifiers(words: Words) -> None:
    """Go past the modifiers behind INSERT, REPLACE, UPDATE or DELETE."""
    while words.take_any(*_MODIFIERS):
        pass


def skip_alter_options(words: Words) -> None:
    """Go past what stands between ALTER and TABLE."""
    while words.take_any("ONLINE", "OFFLINE", "IGNORE"):
        pass


def skip_lock_wait(words: Words) -> None:
    """Go past MariaDB's WAIT n | NOWAIT behind a table's name."""
    if words.take("WAIT"):
        words.skip()
    else:
        words.take("NOWAIT")


def loaded_table(words: Words, schema: str) -> Name | None:
    """Return (schema, table) of LOAD DATA … INTO TABLE t; None: it names none."""
    while not words.done:
        if words.take("INTO", "TABLE"):
            return words.name(schema)
        words.skip()
    return None
