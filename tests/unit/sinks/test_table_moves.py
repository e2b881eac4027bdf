"""Names that one statement gives away, by the tables that a sink follows."""

from __future__ import annotations

import itertools
import random

import pytest

from ray_canal.client.message import TableChange
from ray_canal.model.table_event import ERASE, RENAME
from ray_canal.sinks.table_moves import in_order, moves_of


def changes_of(renames: str, followed: str) -> list[TableChange]:
    """`a>b c>d`: as the log tells of RENAME TABLE to those who follow these tables; `a>`: DROP."""
    found = []
    for pair in renames.split():
        old, new = pair.split(">")
        told = [(new, RENAME, {"renamed_from": f"s.{old}"})] if new else []
        told += [(old, ERASE, {"renamed_to": f"s.{new}"} if new else {})]
        for name, kind, more in told:
            if name in followed:
                found.append(TableChange("b.1", 4, "s", name, None, kind=kind, **more))
    return found


@pytest.mark.parametrize(
    ("renames", "followed", "renamed", "gone", "foreign"),
    [
        ("a>b", "ab", "a>b", "", ""),
        ("a>x", "ab", "", "a", ""),
        ("x>a", "ab", "", "", "a<x"),
        ("a>", "ab", "", "a", ""),
        ("a>x b>a x>b", "ab", "a>b b>a", "", ""),
        ("a>x b>a x>b", "abx", "a>b b>a", "x", ""),
        ("a>x y>a", "a", "", "", "a<y"),
        ("a>x b>a", "ab", "b>a", "", ""),
        ("a>x x>a", "a", "", "", ""),
        ("a>b b>c c>d", "ad", "", "a", "d<c"),
        ("a>", "", "", "", ""),
    ],
)
def test_moves(renames: str, followed: str, renamed: str, gone: str, foreign: str) -> None:
    found = moves_of(changes_of(renames, followed))
    assert " ".join(sorted(f"{o[1]}>{n[1]}" for o, n in found.renamed.items())) == renamed
    assert " ".join(f"{n[1]}<{o[1]}" for n, o in found.foreign.items()) == foreign
    assert [name for _, name in found.gone] == [*gone]


def test_in_order_comes_to_what_was_asked() -> None:
    generator = random.Random(26)
    for _ in range(500):
        names = "abcdef"[: generator.randrange(1, 7)]
        pairs = dict(zip(names, generator.sample("abcdefgh", len(names)), strict=True))
        pairs = {old: new for old, new in pairs.items() if old != new}
        tables = {name: name for name in pairs}
        free = map(str, itertools.repeat("free"))
        for old, new in in_order(pairs, next(free)):
            assert new not in tables
            tables[new] = tables.pop(old)
        assert tables == {new: old for old, new in pairs.items()}


def test_names_with_dots_are_those_that_are_followed() -> None:
    new = TableChange("b.1", 4, "s", "new", None, kind=RENAME, renamed_from="my.shop.old.1")
    old = TableChange("b.1", 4, "my.shop", "old.1", None, kind=ERASE, renamed_to="s.new")
    assert moves_of([new, old]).renamed == {("my.shop", "old.1"): ("s", "new")}
    assert moves_of([new]).foreign == {("s", "new"): ("my", "shop.old.1")}
