"""Names of tables in InnoDB, as MySQL 9.7, MySQL 5.6 and MariaDB gave them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ray_canal.errors import PrivilegeMissing
from ray_canal.snapshot.stored_tables import stored_name, stored_now

NAMES = {
    "shop/orders": ("shop", "orders"),
    "e@002d@0p/a@0020b#p#p0": ("e-é", "a b"),
    "e@002d@0p/a@0020b#P#p1#SP#s0": ("e-é", "a b"),
    "e@002d@0p/@4e2d#p#p0": ("e-é", "中"),
    "e@002d@0p/@0p@0024@002dx": ("e-é", "é$-x"),
    "e@002d@0p/x@0023p@0023p0#p#p1": ("e-é", "x#p#p0"),
    "e/@7P#p#p0": ("e", "Ω"),
    "e/CON@@@#p#p0": ("e", "con"),
    "e/T": ("e", "T"),
}


def catalog_of(names: list[str], *, version: str = "9.7.0", is_mariadb: bool = False) -> Any:
    asked: list[str] = []

    def rows(sql: str) -> list[dict[str, Any]]:
        asked.append(sql)
        return [{"NAME": name, "TABLE_ID": number} for number, name in enumerate(names)]

    return SimpleNamespace(rows=rows, version=version, is_mariadb=is_mariadb, asked=asked)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_found_by_its_file(name: str) -> None:
    assert stored_now(catalog_of([name])) == {stored_name(*NAMES[name]): {(name, 0)}}


def test_partitions_are_of_one_table() -> None:
    names = ["e/t#p#p0", "e/x", "e/t#p#p1"]
    assert stored_now(catalog_of(names)) == {
        ("e", "t"): {(names[0], 0), (names[2], 2)}, ("e", "x"): {(names[1], 1)},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("version", "is_mariadb", "table"),
    [("9.7.0", False, "INNODB_TABLES"), ("5.6.51", False, "INNODB_SYS_TABLES"),
     ("10.11.6-MariaDB", True, "INNODB_SYS_TABLES")],
)  # fmt: skip
def test_each_server_has_its_own_table_of_them(
    version: str, is_mariadb: bool, table: str
) -> None:
    catalog = catalog_of([], version=version, is_mariadb=is_mariadb)
    stored_now(catalog)
    assert catalog.asked[0].endswith(f".{table}")


def test_who_may_not_see_them_does_not_know() -> None:
    def rows(sql: str) -> None:
        raise PrivilegeMissing("Access denied; you need PROCESS")

    assert stored_now(SimpleNamespace(rows=rows, version="9.7.0", is_mariadb=False)) is None  # type: ignore
