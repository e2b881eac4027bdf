"""What a MySQL server's errors mean for the sink: again, aside, another schema, or the end."""

from __future__ import annotations

import pytest
from pymysql.err import DataError, InternalError, OperationalError

from ray_canal.sinks.databases.mysql_errors import of_changed_table, translated
from ray_canal.sinks.port import SinkError


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (3, "retry"),  # Error writing file '/tmp/ML…' (OS errno 28 - No space left on device)
        (1205, "retry"),
        (3989, "retry"),  # ALTER SCHEMA … READ ONLY = 1
        (1526, "poison"),
        (1644, "poison"),  # a trigger's SIGNAL
        (1071, "schema"),
        (3750, "schema"),  # sql_require_primary_key
        (3780, "schema"),  # a column that a foreign key of the target's own needs
        (1142, "fatal"),
    ],
)
def test_errors(number: int, kind: str) -> None:
    assert translated(OperationalError(number, "no"), "INSERT").kind == kind


def test_an_error_without_a_number_is_of_the_connection_and_one_of_data_of_a_row() -> None:
    assert translated(OperationalError("gone"), b"INSERT").kind == "retry"
    assert translated(DataError(1999, "no"), b"INSERT").kind == "poison"


def test_a_statement_that_takes_too_long_names_the_setting() -> None:
    error = OperationalError(2013, "Lost connection to MySQL server (timed out)")
    assert "raise mirror.timeout_s" in str(translated(error, "ALTER TABLE t"))


@pytest.mark.parametrize(
    ("number", "kind"), [(1060, "retry"), (1118, "schema"), (1366, "schema"), (1142, "fatal")]
)
def test_what_an_error_of_alter_table_means(number: int, kind: str) -> None:
    """A table that has changed meanwhile is looked at again. Values that do not become another type
    were the statement's fault: it went to the dead letters, and the column kept its type."""
    error = translated(InternalError(number, "no"), "ALTER TABLE t")
    error.__cause__ = InternalError(number, "no")
    with pytest.raises(SinkError) as caught, of_changed_table():
        raise error
    assert caught.value.kind == kind


@pytest.mark.parametrize(
    ("columns", "kind"),
    [(["id", "B"], "schema"), (["id"], "retry"), (["b", "New"], "retry"), ([], "retry")],
)
def test_a_column_that_is_there_and_is_not_found_is_no_change(
    columns: list[str], kind: str
) -> None:
    """MariaDB says so of a column that a CHECK needs."""
    error = translated(InternalError(1054, "Unknown column 'b' in 'CHECK'"), "ALTER TABLE t")
    error.__cause__ = InternalError(1054, "no")
    with pytest.raises(SinkError) as caught, of_changed_table(lambda: columns, ["b"], ["new"]):
        raise error
    assert caught.value.kind == kind
