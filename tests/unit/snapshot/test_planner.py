"""Ranges of an integer key: all keys, in order, halved until the estimate is small enough."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from ray_canal.snapshot.planner import condition_of, from_clause, has_integer_key, integer_ranges
from ray_canal.snapshot.tables import SnapshotTable
from tests.unit.snapshot.test_result import META

TABLE = SnapshotTable(META, ("id",), "PRIMARY", 1000, 100, True)


class Estimating:
    """A server whose optimizer knows how many of these keys lie in a range."""

    def __init__(self, *keys: int) -> None:
        self._keys = keys

    def rows(self, sql: str) -> list[dict[str, Any]]:
        if sql.startswith("SELECT MIN"):
            return [{"low": min(self._keys, default=None), "high": max(self._keys, default=None)}]
        found = re.search(r">= (-?\d+) AND `id` <= (-?\d+)", sql)
        assert found is not None
        low, high = int(found[1]), int(found[2])
        return [{"rows": sum(low <= key <= high for key in self._keys)}]


def ranges(*keys: int, rows: int) -> list[tuple[int | None, int | None]]:
    return list(integer_ranges(Estimating(*keys), TABLE, rows))  # type: ignore[arg-type]


def test_they_are_all_keys_that_there_can_be() -> None:
    keys = [*range(-50, 100), 10_000, 10_001, 2**63 - 1]
    found = ranges(*keys, rows=20)
    assert found[0][0] is found[-1][1] is None
    assert [one[1] for one in found[:-1]] == [other[0] for other in found[1:]]
    assert len(found) > 5
    for low, high in found:
        inside = [k for k in keys if (low is None or k >= low) and (high is None or k < high)]
        assert len(inside) <= 20


def test_a_small_or_an_empty_table_is_one() -> None:
    assert ranges(rows=10) == ranges(1, 2, 3, rows=10) == [(None, None)]
    assert condition_of(TABLE, (None, None)) == ""
    assert condition_of(TABLE, (-5, 7)) == "`id` >= -5 AND `id` < 7"


def test_only_one_integer_is_such_a_key() -> None:
    assert has_integer_key(TABLE)
    assert not has_integer_key(replace(TABLE, key=("name",)))
    assert not has_integer_key(replace(TABLE, key=("id", "name")))
    assert from_clause(TABLE) == "`d`.`t` FORCE INDEX (`PRIMARY`)"
    assert from_clause(replace(TABLE, index="")) == "`d`.`t`"
