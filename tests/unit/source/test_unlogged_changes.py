"""Foreign keys that change rows below the log. Real servers: tests/integration/test_checks.py."""

from __future__ import annotations

from typing import Any, cast

import pytest

from ray_canal.errors import SourceError
from ray_canal.source.catalog import Catalog
from ray_canal.source.unlogged_changes import check_foreign_keys

KEY = "  CONSTRAINT `x` FOREIGN KEY (`p`) REFERENCES `p` (`id`)"


class Shown:
    """A catalog with these tables of one schema, each with its SHOW CREATE TABLE."""

    def __init__(self, tables: dict[str, str], native: str | None = None) -> None:
        self._tables, self._native = tables, native

    def variable(self, name: str) -> str | None:
        return self._native

    def rows(self, sql: str) -> list[dict[str, Any]]:
        if "KEY_COLUMN_USAGE" in sql:
            return [{"s": "shop", "t": table} for table in self._tables]
        text = self._tables[sql.rpartition(".")[2].strip("`")]
        if not text:
            raise SourceError("Unknown table")
        return [{"Table": "t", "Create Table": text}]


@pytest.mark.parametrize(
    ("text", "ok"),
    [
        (f"CREATE TABLE `t` (\n{KEY}\n)", True),
        (f"CREATE TABLE `t` (\n{KEY} ON DELETE NO ACTION ON UPDATE RESTRICT\n)", True),
        (f"CREATE TABLE `t` (\n  `p` int COMMENT 'ON DELETE CASCADE',\n{KEY}\n)", True),
        (f"CREATE TABLE `t` (\n{KEY} ON DELETE CASCADE\n)", False),
        (f"CREATE TABLE `t` (\n{KEY} ON DELETE RESTRICT ON UPDATE SET NULL,\n{KEY}\n)", False),
        ("", True),
    ],
)
def test_what_changes_rows(text: str, ok: bool) -> None:
    found = check_foreign_keys(cast(Catalog, Shown({"t": text})), lambda *_: True)
    assert (found.ok, found.advisory) == (ok, not ok)


@pytest.mark.parametrize(("native", "ok"), [("OFF", True), ("ON", False), (None, False)])
def test_a_server_that_logs_them_is_told(native: str | None, ok: bool) -> None:
    tables = {f"t{number}": f"(\n{KEY} ON DELETE CASCADE\n)" for number in range(8)}
    catalog = cast(Catalog, Shown(tables, native))
    found = check_foreign_keys(catalog, lambda _, table: table != "t0")
    assert found.ok == ok
    assert ok or "shop.t1, shop.t2, shop.t3, shop.t4, shop.t5 and 2 more" in found.detail
