"""Where the rows of tables go when one statement gives names away: RENAME, DROP, CREATE OR REPLACE.

A statement may swap names, also by way of one that the sink does not follow. So its changes are
read together: which table is under each name when it is done.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ray_canal.client.message import TableChange
from ray_canal.model.table_event import ERASE, RENAME

Name = tuple[str, str]
T = TypeVar("T", bound=Hashable)


@dataclass(frozen=True)
class Moves:
    """`renamed`: old names of tables that the sink follows under their new ones, too. `gone`: names
    that no table has now, as it was dropped or has a name that is not followed. `foreign`: names
    that have the rows of a table that is not followed, with that table's name."""

    renamed: dict[Name, Name]
    gone: list[Name]
    foreign: dict[Name, Name]


def moves_of(changes: Sequence[TableChange]) -> Moves:
    """Return what becomes of tables by the changes of one statement, which are those of the tables
    that the sink follows."""
    followed = dict.fromkeys((change.schema, change.table) for change in changes)
    now: dict[Name, Name | None] = {}  # whose rows are under a name; None: no table has it
    for change in changes:
        name = change.schema, change.table
        if change.kind == RENAME:
            old = _name(change.renamed_from, followed)
            now[name], now[old] = now.get(old, old), None
        elif change.kind == ERASE and not change.renamed_to:
            now[name] = None
        elif change.kind == ERASE and (to := _name(change.renamed_to, followed)) not in followed:
            now[to], now[name] = now.get(name, name), None
    renamed, foreign = {}, {}
    for name, origin in now.items():
        if name in followed and origin is not None and origin != name:
            if origin in followed:
                renamed[origin] = name
            else:
                foreign[name] = origin
    gone = [name for name in followed if now.get(name, name) is None and name not in renamed]
    return Moves(renamed, gone, foreign)


def in_order(pairs: Mapping[T, T], free: T | None = None) -> list[tuple[T, T]]:
    """Return renames one after the other, each to a name that is free by then; where names are
    swapped, by way of the name `free`, one swap after the other. Raises ValueError: names are
    swapped, and there is no such name."""
    left, found = dict(pairs), list[tuple[T, T]]()
    while left:
        ready = [old for old, new in left.items() if new not in left]
        for old in ready:
            found.append((old, left.pop(old)))
        if not ready:
            if free is None:
                raise ValueError("names are swapped")
            old = next(iter(left))
            found.append((old, free))
            left[free] = left.pop(old)
    return found


def _name(text: str, followed: Container[Name]) -> Name:
    """Return the table of a text; where names have dots, too, one that is followed."""
    names = [(text[:at], text[at + 1 :]) for at, sign in enumerate(text) if sign == "."]
    schema, _, table = text.partition(".")
    return next((name for name in names if name in followed), (schema, table))
