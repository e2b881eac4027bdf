"""Many tables of a database are asked for at once, few one by one, with the same answer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ray_canal.model.schema_record import TableState
from ray_canal.model.table_meta import TableMeta
from ray_canal.snapshot.descriptions import Descriptions

THERE = [("shop", f"t{n}") for n in range(20)] + [("other", "t0")]


class Server:
    """Has these tables, each with a primary key; notes what is asked of it."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def rows(self, sql: str, *values: str) -> list[dict[str, Any]]:
        if sql.startswith("SHOW COLUMNS"):
            self.asked.append("columns of STATISTICS")
            return [{"Field": "TABLE_NAME"}, {"Field": "INDEX_NAME"}, {"Field": "IGNORED"}]
        self.asked.append("indexes of " + ".".join(values))
        if len(values) == 1:
            assert "SELECT TABLE_NAME, INDEX_NAME, IGNORED FROM" in sql
        return [
            {"TABLE_NAME": table, "INDEX_NAME": "PRIMARY", "COLUMN_NAME": f"of {table}"}
            for schema, table in THERE
            if (schema, table)[: len(values)] == values
        ]

    def table(self, schema: str, table: str) -> TableState | None:
        self.asked.append(f"{schema}.{table}")
        return TableState(TableMeta(schema, table, ()), "") if (schema, table) in THERE else None

    def tables_of(self, schema: str) -> tuple[TableState, ...]:
        self.asked.append(schema)
        found = [TableState(TableMeta(*name, ()), "") for name in THERE if name[0] == schema]
        return (*found, TableState(TableMeta("SHOP", "t1", ()), ""))


@pytest.mark.parametrize(
    ("count", "asked"),
    [
        (5, {"shop", "columns of STATISTICS", "indexes of shop"}),  # of twenty
        (4, {f"shop.t{n}" for n in range(4)} | {f"indexes of shop.t{n}" for n in range(4)}),
    ],
)
def test_a_database_is_read_as_a_whole_if_much_of_it_is_wanted(
    count: int, asked: set[str]
) -> None:
    server: Any = Server()
    wanted = THERE[:count]
    now = Descriptions(server, server, wanted, THERE)
    for schema, table in wanted:
        state = now.state(schema, table)
        assert state is not None
        assert (state.meta.schema, state.meta.table) == (schema, table)
        [part] = now.indexes(schema, table)["PRIMARY"]
        assert part["COLUMN_NAME"] == f"of {table}"
    assert set(server.asked) == asked
    assert len(server.asked) == len(asked)


@pytest.mark.parametrize("count", [5, 4])
def test_collations_are_those_of_a_table(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def rows(sql: str, *values: str) -> list[dict[str, Any]]:
        return [
            {"TABLE_NAME": table, "COLUMN_NAME": "c", "COLLATION_NAME": f"utf8mb3_{table}"}
            for schema, table in THERE
            if (schema, table)[: len(values)] == values
        ]

    server: Any = Server()
    monkeypatch.setattr(server, "rows", rows)
    now = Descriptions(server, server, THERE[:count], THERE)
    for name in THERE[:count]:
        assert now.collations(*name) == {"c": f"utf8_{name[1]}"}
    assert now.collations("shop", "gone") == {}


def test_a_table_that_is_gone_is_none() -> None:
    server: Any = Server()
    wanted = [("shop", f"t{n}") for n in range(15, 25)]
    now = Descriptions(server, server, wanted, THERE)
    assert now.state("shop", "t24") is None
    assert now.indexes("shop", "t24") == {}
    assert Descriptions(server, SimpleNamespace(table=server.table)).state("shop", "x") is None  # type: ignore
