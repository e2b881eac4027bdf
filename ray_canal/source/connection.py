"""A connection to the server from a SourceConfig, and the server's errors in our words.

PyMySQL does handshake, TLS and authentication. Passwords never get into a message.
"""

from __future__ import annotations

import errno
import logging
import ssl
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pymysql.connections import Connection
from pymysql.cursors import DictCursor, SSDictCursor
from pymysql.err import MySQLError

from ray_canal.config import SourceConfig, TlsConfig, secret
from ray_canal.errors import (
    MORE_OPEN_FILES,
    AuthenticationFailed,
    CanalError,
    ConfigError,
    ConnectionLost,
    PositionNotFound,
    PositionPurged,
    PrivilegeMissing,
    ServerSettingRefused,
    SourceError,
)

log = logging.getLogger(__name__)

_AUTHENTICATION = {1044, 1045, 1130, 1251, 1524, 1698, 2054, 2059, 2061}
_EXPIRED, _LOCKED = {1820, 1862}, {3118, 4151}
_NO_TLS, _ONLY_TLS = 2026, 3159
_LIMIT_OF_USER = 1226
_PASSING = {
    1040, 1053, 1077, 1079, 1080, 1152, 1158, 1159, 1160, 1161, 1203, 1317, 1927, 3032, 3169,
}  # fmt: skip
"""Errors that say no more than that the server is not there for us now: it has no connection left,
is ending, killed the connection, is in offline mode."""
_UNKNOWN_COMMAND = 1047
"""Galera's, too, for a node that is not in its cluster now."""
_PRIVILEGE = {1142, 1143, 1227, 1370}
_FATAL_READING_BINLOG = 1236
_SETTINGS = (
    "SET autocommit = 1, sql_select_limit = 18446744073709551615, sql_big_selects = 1,"
    " completion_type = 0,"
    " sql_mode = REPLACE(@@sql_mode, 'NO_BACKSLASH_ESCAPES', '')"
    "/*!50708 , max_execution_time = 0 *//*M!100101 , max_statement_time = 0 */"
    "/*M!100304 , system_versioning_asof = DEFAULT */"
)
"""Settings that a server may have otherwise for every connection. `init_connect` runs behind the
login, so PyMySQL takes autocommit for on: reads would all be of one old view, and writes never
committed. A limit would cut off rows without a word, one of joins refuses reads of the catalog, and
COMMIT may end the connection or begin a transaction. Without backslashes no name that has a `_`
would fit its pattern in LIKE, so the server would seem to have no variable of that name. A catalog
of very many tables takes longer than applications allow a query. (MariaDB skips 50708 to 50999.)"""

GRANTS = "REPLICATION SLAVE, REPLICATION CLIENT, SELECT"


def grant_advice(username: str) -> str:
    """Return what to run so that `username` may read the binlog and table definitions."""
    return f"run: GRANT {GRANTS} ON *.* TO '{username}'@'%'"


def connect(config: SourceConfig) -> Any:
    """A PyMySQL connection, autocommit, utf8mb4.

    Raises ConfigError (TLS files), ConnectionLost, AuthenticationFailed, PrivilegeMissing.
    """
    host, port = config.host_port
    with translated(config):
        try:
            connection = _Connection(
                host=host,
                port=port,
                user=config.username,
                password=secret(config.password),
                charset="utf8mb4",
                autocommit=True,
                init_command=_SETTINGS,
                connect_timeout=max(1, round(config.connect_timeout_s)),
                read_timeout=max(1, round(config.read_timeout_s)),
                write_timeout=max(1, round(config.read_timeout_s)),
                section=config.section,
                **_tls(config),
            )
        except (
            RuntimeError
        ) as error:  # PyMySQL lacks an optional package for an authentication plugin
            raise AuthenticationFailed(f"{_who(config)}: {error}") from None
        except UnicodeError:
            text = f"{config.section}.address {config.address!r}: no host has such a name"
            raise ConfigError(text) from None
        except (AssertionError, LookupError, ValueError, struct.error) as error:
            raise _no_mysql(config, str(error)) from None
    if config.tls.mode not in ("disabled", "preferred") and not is_encrypted(connection):
        connection.close()
        raise ConnectionLost(
            f"{_who(config)}: the server offers no TLS, and {config.section}.tls.mode is "
            f"{config.tls.mode!r}"
        )
    return connection


_CLEARTEXT = (b"mysql_clear_password", b"dialog")


class _Connection(Connection):  # type: ignore[misc]
    """PyMySQL's, but that it loads no authorities where none is asked for (20 ms of CPU), and sends
    no password in clear text over a connection that is not encrypted, whoever asks for it.
    `section`: of the configuration."""

    def __init__(self, section: str, **settings: Any) -> None:
        self._section = section
        super().__init__(**settings)

    def _create_ssl_ctx(self, given: Any) -> ssl.SSLContext:
        return given if isinstance(given, ssl.SSLContext) else _unverified()

    def _process_auth(self, plugin_name: bytes, *exchange: Any) -> Any:
        """Override PyMySQL's: refuse a password in clear text. Raises AuthenticationFailed."""
        if plugin_name in _CLEARTEXT and not is_encrypted(self):
            raise AuthenticationFailed(
                f"MySQL at {self.host}:{self.port} asks for the password in clear text "
                f"({plugin_name.decode()}), and the connection is not encrypted; set "
                f'{self._section}.tls.mode = "verify_identity" (or "verify_ca", "required")'
            )
        return super()._process_auth(plugin_name, *exchange)


def is_encrypted(connection: Any) -> bool:
    """Return whether the connection runs over TLS."""
    return isinstance(connection._sock, ssl.SSLSocket)


def query(connection: Any, config: SourceConfig, sql: str, *values: object) -> list[dict[str, Any]]:
    """Run one statement; its rows as dicts. Raises as `connect`, SourceError for the rest."""
    with (
        translated(config, logged_in=True),
        connection.cursor(DictCursor) as cursor,
    ):
        cursor.execute(sql, values or None)
        return list(cursor.fetchall())


def stream(
    connection: Any, config: SourceConfig, sql: str, *values: object
) -> Iterator[dict[str, Any]]:
    """Run one statement, and yield its rows as they come. Raises as `query`."""
    with (
        translated(config, logged_in=True),
        connection.cursor(SSDictCursor) as cursor,
    ):
        cursor.execute(sql, values or None)
        yield from cursor.fetchall_unbuffered()


def named_values(rows: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return what SHOW VARIABLES or SHOW STATUS has answered: values by name in lower case."""
    return {str(row["Variable_name"]).lower(): str(row["Value"]) for row in rows}


SERVER_SQL = (
    "SHOW GLOBAL VARIABLES WHERE Variable_name IN "
    "('server_uuid', 'server_id', 'wsrep_on', 'wsrep_node_name')"
)


def server_uuid(rows: list[dict[str, Any]]) -> str:
    """Return who a server is, of its answer to SERVER_SQL: MySQL's server_uuid; MariaDB has none,
    so its server id, and in a Galera cluster the node's name, too: with wsrep_gtid_mode all nodes
    have one server id, and each a log of its own."""
    found = named_values(rows)
    if uuid := found.get("server_uuid"):
        return uuid
    node = f"-{found.get('wsrep_node_name', '')}" if found.get("wsrep_on") == "ON" else ""
    return f"mariadb-{found['server_id']}{node}"


def server_error(
    config: SourceConfig, code: int, text: str, *, logged_in: bool = False
) -> CanalError:
    """The error that the server's error `code` with `text` means.

    `logged_in`: the login has succeeded, so "access denied" is about a grant.
    """
    who, section = _who(config), config.section
    if code in _AUTHENTICATION and not logged_in:
        is_plain = config.tls.mode in ("disabled", "preferred")
        tls = f"; a user with REQUIRE SSL needs {section}.tls.mode = 'required'" if is_plain else ""
        return AuthenticationFailed(
            f"{who}: {text} ({code}); check {section}.username and {section}.password, and that "
            f"this host may log in as that user{tls}"
        )
    if code in _EXPIRED | _LOCKED:
        what = "ACCOUNT UNLOCK" if code in _LOCKED else "IDENTIFIED BY a new password"
        return AuthenticationFailed(f"{who}: {text} ({code}); run: ALTER USER … {what}")
    if code in _PRIVILEGE or code in _AUTHENTICATION:
        return PrivilegeMissing(f"{who}: {text} ({code}); {grant_advice(config.username)}")
    if code == _FATAL_READING_BINLOG:
        return _binlog_error(who, text)
    if code == 1381:
        return ServerSettingRefused(f"{who}: {text} ({code}); start the server with --log-bin")
    if code in _PASSING or (code == _UNKNOWN_COMMAND and text.startswith("WSREP")):
        return ConnectionLost(f"{who}: {text} ({code})")
    if code == _LIMIT_OF_USER:
        return ConnectionLost(
            f"{who}: {text} ({code}); run: ALTER USER … WITH MAX_USER_CONNECTIONS 0 "
            "MAX_QUERIES_PER_HOUR 0 MAX_CONNECTIONS_PER_HOUR 0, or wait for what counts to end"
        )
    if code == _ONLY_TLS:
        return AuthenticationFailed(f"{who}: {text} ({code}); set {section}.tls.mode = 'required'")
    if code == _NO_TLS:
        return ConnectionLost(f"{who}: {text} ({code}); {section}.tls.mode is {config.tls.mode!r}")
    if "Packet sequence number" in text and not logged_in:
        return _no_mysql(config, text)
    if "[SSL:" in text:
        return ConnectionLost(
            f"{who}: {text} ({code}); {section}.tls.ca names the file with the authority that has "
            "signed the server's certificate (mode 'required' checks none)"
        )
    if 2000 <= code < 2100 or code in (0, 4031):
        return ConnectionLost(f"{who}: {text} ({code}); {_hint(text)}")
    return SourceError(f"{who}: {text} ({code})")


def _hint(text: str) -> str:
    if f"[Errno {errno.EMFILE}]" in text:
        return MORE_OPEN_FILES
    return "is the server running and reachable?"


def _binlog_error(who: str, text: str) -> CanalError:
    """Error 1236 has one code for many causes; its text tells them apart."""
    low = text.lower()
    if "same server_uuid/server_id" in low or "same server_id" in low or "same server_uuid" in low:
        return SourceError(
            f"{who}: {text} (1236); another replica uses our server id: set source.server_id to a "
            "number that no other replica has, or leave it 0"
        )
    if "purged" in low or "have been deleted" in low:
        return PositionPurged(
            f"{who}: {text} (1236); the events needed are gone: reset the destination's position "
            '(start = "earliest" or "latest") and keep binlogs longer '
            "(binlog_expire_logs_seconds)"
        )
    if (
        "could not find first log" in low
        or "could not find next log" in low  # its log was reset under the dump
        or "impossible position" in low
        or "file size" in low
        or "not in the master's binlog" in low
        or "bogus data" in low
        or "more gtids than" in low
        or "error reading packet" in low
        or "could not open log file" in low
    ):
        return PositionNotFound(
            f"{who}: {text} (1236); see SHOW BINARY LOGS for the files and sizes that the server "
            "has, and check journal_name, position or gtid_set"
        )
    if "binary log is not open" in low:
        return ServerSettingRefused(f"{who}: {text} (1236); start the server with --log-bin")
    if "gtid_mode" in low or "auto_position" in low:
        error = ServerSettingRefused(f"{who}: {text} (1236); {_gtid_advice(low)}")
        error.retryable = True  # the mode goes on by a person's hand, step by step
        return error
    if "shutting down" in low or "server shutdown" in low:
        return ConnectionLost(f"{who}: {text} (1236)")
    return SourceError(f"{who}: {text} (1236)")


def _gtid_advice(text: str) -> str:
    """Return what helps where gtid_mode keeps events from a replica."""
    if "cannot replicate gtid" in text:
        return "set gtid_mode = OFF_PERMISSIVE until what was written with GTIDs is read"
    if "cannot replicate anonymous" in text:
        return (
            "set gtid_mode = ON_PERMISSIVE, and source.gtid = false, until what was written "
            "without GTIDs is read"
        )
    return "set gtid_mode = ON, or source.gtid = false and no start by GTID set"


def _no_mysql(config: SourceConfig, text: str) -> ConnectionLost:
    return ConnectionLost(
        f"{_who(config)}: what answers does not speak MySQL's protocol ({text}); see the port in "
        f"{config.section}.address"
    )


def _who(config: SourceConfig) -> str:
    return f"MySQL at {config.address} as user {config.username!r}"


@contextmanager
def translated(config: SourceConfig, *, logged_in: bool = False) -> Iterator[None]:
    """Turn errors of PyMySQL and of the network into ours."""
    try:
        yield
    except CanalError:
        raise
    except MySQLError as error:
        arguments = error.args
        code = arguments[0] if arguments and isinstance(arguments[0], int) else 0
        text = str(arguments[-1]) if arguments else type(error).__name__
        raise server_error(config, code, text, logged_in=logged_in) from None
    except (OSError, EOFError) as error:
        raise ConnectionLost(f"{_who(config)}: {error}{_advice(error)}") from None


def _advice(error: OSError | EOFError) -> str:
    """Return what to do where no more files may be open; else nothing."""
    is_full = isinstance(error, OSError) and error.errno == errno.EMFILE
    return f"; {MORE_OPEN_FILES}" if is_full else ""


def _tls(config: SourceConfig) -> dict[str, Any]:
    """PyMySQL's arguments for a TLS mode. `preferred` is what it does when told nothing."""
    tls = config.tls
    if tls.mode == "disabled":
        return {"ssl_disabled": True}
    if tls.mode == "preferred" and not (tls.ca or tls.cert):
        return {}
    return {"ssl": tls_context(tls, f"{config.section}.tls")}


def tls_context(tls: TlsConfig, key: str) -> ssl.SSLContext | None:
    """Return what TLS is made with; None: it is disabled. Raises ConfigError: a file of the section
    `key` cannot be read."""
    if tls.mode == "disabled":
        return None
    try:
        verifies = tls.mode in ("verify_ca", "verify_identity")
        with_ca = tls.ca or verifies
        context = ssl.create_default_context(cafile=tls.ca or None) if with_ca else _unverified()
        context.check_hostname = tls.mode == "verify_identity"
        if not verifies:
            context.verify_mode = ssl.CERT_NONE
        # MySQL's self-made certificates have no key usage extensions; Python 3.13 asks for them.
        context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
        if tls.cert:
            context.load_cert_chain(tls.cert, tls.key or None)
    except (OSError, ssl.SSLError) as error:
        failure = ConfigError(
            f"{key}: cannot use ca {tls.ca!r}, cert {tls.cert!r}, key {tls.key!r}: {error}"
            f"{_advice(error)}"
        )
        failure.retryable = error.errno == errno.EMFILE  # nothing is wrong with the files
        raise failure from error
    return context


def _unverified() -> ssl.SSLContext:
    """TLS with whoever answers."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
