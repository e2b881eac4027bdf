"""The server's errors in our words: each says what to do about it."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ray_canal.config import SourceConfig, TlsConfig
from ray_canal.errors import (
    AuthenticationFailed,
    CanalError,
    ConfigError,
    ConnectionLost,
    PrivilegeMissing,
    ServerSettingRefused,
    SourceError,
)
from ray_canal.source.connection import connect, server_error, server_uuid, tls_context
from ray_canal.source.live import LiveSource
from tests.certificates import make_certificate
from tests.local_destination import instance
from tests.open_files import no_more_files

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
        (3159, "insecure transport are prohibited", False, AuthenticationFailed, "tls.mode"),
        (3032, "currently in offline mode", False, ConnectionLost, "offline"),
        (1236, "Cannot replicate GTID-transaction when @@GLOBAL.GTID_MODE = OFF, at file", True,
         ServerSettingRefused, "gtid_mode = OFF_PERMISSIVE until"),
        (1236, "Cannot replicate anonymous transaction when AUTO_POSITION = 1, at file", True,
         ServerSettingRefused, "gtid_mode = ON_PERMISSIVE"),
        (1236, "thread cannot start in AUTO_POSITION mode: this server has GTID_MODE = OFF", True,
         ServerSettingRefused, "source.gtid = false"),
        (1226, "exceeded the 'max_questions' resource", True, ConnectionLost, "ALTER USER"),
        (1047, "WSREP has not yet prepared node for application use", True, ConnectionLost, "1047"),
        (1047, "Unknown command", True, SourceError, "1047"),
        (2003, f"Can't connect ({VERIFY})", False, ConnectionLost, "source.tls.ca"),
        (2026, "SSL is required but the server doesn't support it", False, ConnectionLost,
         "source.tls.mode"),
        (2003, "Can't connect (Connection refused)", False, ConnectionLost, "running"),
        (2003, "Can't connect ([Errno 24] Too many open files)", False, ConnectionLost, "ulimit"),
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


@contextlib.contextmanager
def answering(greeting: bytes) -> Iterator[str]:
    """The address of something that greets whoever connects once, and ends."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            peer, _ = listener.accept()
            with peer, contextlib.suppress(OSError):
                peer.sendall(greeting)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        thread.join(60)


@pytest.mark.parametrize(
    "greeting",
    [
        b"SSH-2.0-OpenSSH_9.2p1\r\n",
        b"-ERR unknown command\r\n",
        bytes(200),
        b"\x05\x00\x00\x00\x0a8.0.",
    ],
)
def test_what_listens_and_is_no_mysql_is_told(greeting: bytes) -> None:
    """PyMySQL let an IndexError through, or told of sequence numbers."""
    with answering(greeting) as address, pytest.raises(ConnectionLost, match="speak MySQL's proto"):
        connect(SourceConfig(address=address, username="canal"))


@pytest.mark.parametrize("host", ["db..example", "x" * 64 + ".example"])
def test_a_name_that_no_host_has_is_told(host: str) -> None:
    """The resolver's own encoding refuses it, with a UnicodeError."""
    with pytest.raises(ConfigError, match=r"source\.address.*no host"):
        connect(SourceConfig(address=f"{host}:3306", username="canal"))


def test_no_more_open_files_pass_and_are_told(tmp_path: Path) -> None:
    """A snapshot, which counts what is no lost connection, had failed for good; and a certificate
    was taken for a wrong one."""
    config = instance(source={"address": "127.0.0.1:1", "username": "root"})
    tls = TlsConfig(mode="verify_ca", ca=str(make_certificate(tmp_path)[0]))
    tls_context(tls, "source.tls")
    for call in (lambda: LiveSource(config), lambda: tls_context(tls, "source.tls")):
        with no_more_files(), pytest.raises(CanalError, match="ulimit -n") as caught:
            call()
        assert caught.value.retryable


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"server_uuid": "u", "server_id": "1"}, "u"),
        ({"server_uuid": "u", "server_id": "1", "wsrep_on": "ON", "wsrep_node_name": "n"}, "u"),
        ({"server_id": "7"}, "mariadb-7"),
        ({"server_id": "7", "wsrep_on": "OFF", "wsrep_node_name": "n"}, "mariadb-7"),
        ({"server_id": "7", "wsrep_on": "ON", "wsrep_node_name": "n"}, "mariadb-7-n"),
    ],
)
def test_who_a_server_is(variables: dict[str, str], expected: str) -> None:
    """Nodes of a Galera cluster may have one server id: one was taken for another, reset one."""
    rows = [{"Variable_name": name, "Value": value} for name, value in variables.items()]
    assert server_uuid(rows) == expected
