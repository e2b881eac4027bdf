"""The server's errors in our words: each says what to do about it."""

from __future__ import annotations

from typing import Any

import pytest

from ray_canal.config import SourceConfig
from ray_canal.errors import AuthenticationFailed, CanalError, ConnectionLost, PrivilegeMissing
from ray_canal.source.connection import server_error

VERIFY = "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate"


@pytest.mark.parametrize(
    ("code", "text", "logged_in", "kind", "advice"),
    [
        (1045, "Access denied", False, AuthenticationFailed, "source.password"),
        (1045, "Access denied", True, PrivilegeMissing, "GRANT REPLICATION SLAVE"),
        (1227, "Access denied", True, PrivilegeMissing, "GRANT REPLICATION SLAVE"),
        (1862, "Your password has expired", False, AuthenticationFailed, "ALTER USER"),
        (1820, "You must SET PASSWORD", True, AuthenticationFailed, "ALTER USER"),
        (3118, "Account is locked", False, AuthenticationFailed, "ACCOUNT UNLOCK"),
        (4151, "this account is locked", False, AuthenticationFailed, "ACCOUNT UNLOCK"),
        (2003, f"Can't connect ({VERIFY})", False, ConnectionLost, "source.tls.ca"),
        (2026, "SSL is required but the server doesn't support it", False, ConnectionLost,
         "source.tls.mode"),
        (2003, "Can't connect (Connection refused)", False, ConnectionLost, "running"),
    ],
)  # fmt: skip
def test_each_error_says_what_to_do(
    code: int, text: str, logged_in: bool, kind: type[CanalError], advice: str
) -> None:
    source = SourceConfig(address="db:3306", username="canal")
    found = server_error(source, code, text, logged_in=logged_in)
    assert type(found) is kind
    assert advice in str(found)
    assert ("running and reachable" in str(found)) == (advice == "running")
    assert ("GRANT" in str(found)) == (kind is PrivilegeMissing)


@pytest.mark.parametrize("mode", ["disabled", "preferred", "required"])
def test_a_user_that_must_have_tls_is_thought_of(mode: Any) -> None:
    """REQUIRE SSL refuses a login without TLS with the words of a wrong password."""
    source = SourceConfig(address="db:3306", username="canal", tls={"mode": mode})
    assert ("REQUIRE SSL" in str(server_error(source, 1045, "Access denied"))) == (
        mode != "required"
    )
