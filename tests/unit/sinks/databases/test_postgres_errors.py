"""What a PostgreSQL server's errors mean for the sink: again, aside, another schema, or the end."""

from __future__ import annotations

import pytest
from psycopg import OperationalError, errors

from ray_canal.sinks.databases.postgres_errors import refused, translated


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        ("40001", "retry"),
        ("25006", "retry"),  # it is read-only for a while
        ("53100", "retry"),  # its disk is full
        ("23505", "poison"),
        ("42P01", "schema"),
        ("42501", "fatal"),
        ("3F000", "fatal"),
    ],
)
def test_errors(state: str, kind: str) -> None:
    assert translated(errors.lookup(state)("no"), "INSERT").kind == kind


def test_an_error_without_a_state_is_of_the_connection() -> None:
    assert translated(OperationalError("gone"), "INSERT").kind == "retry"


def test_a_login_that_is_refused_does_not_pass() -> None:
    assert refused(OperationalError('password authentication failed for user "x"')).kind == "fatal"
    assert refused(OperationalError("connection refused")).kind == "retry"


def test_a_statement_that_takes_too_long_names_the_setting() -> None:
    assert "raise mirror.timeout_s" in str(translated(errors.QueryCanceled("no"), "ALTER TABLE t"))
