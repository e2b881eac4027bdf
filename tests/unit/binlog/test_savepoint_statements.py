"""Statements about savepoints, as servers write them (tests/integration/test_savepoints.py has
logs of real ones)."""

from __future__ import annotations

import pytest

from ray_canal.binlog.savepoint_statements import parse_savepoint


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("SAVEPOINT `a`", ("A", False)),
        ("savepoint A;", ("A", False)),
        ("ROLLBACK TO `a b`", ("A B", True)),
        ('ROLLBACK TO "a""b"', ('A"B', True)),
        ("ROLLBACK TO `a``b` ", ("A`B", True)),
        ("ROLLBACK WORK TO SAVEPOINT a", ("A", True)),
        ("rollback to savepoint `to`", ("TO", True)),
        ("ROLLBACK TO `\xe4\xdf\xe9`", ("ASE", True)),  # utf8mb3_general_ci: one letter each
        ("ROLLBACK TO `\u540d`", ("\u540d", True)),
        ("SAVEPOINT `", ("`", False)),
        ("ROLLBACK", None),
        ("ROLLBACK WORK", None),
        ("RELEASE SAVEPOINT a", None),
        ("SAVEPOINT", None),
    ],
)
def test_names_that_are_one_to_the_server_are_alike(
    sql: str, found: tuple[str, bool] | None
) -> None:
    assert parse_savepoint(sql) == found
