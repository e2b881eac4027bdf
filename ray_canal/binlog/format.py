"""Event headers and the control events that Python reads itself: FORMAT_DESCRIPTION, QUERY.

All integers little-endian. A body is an event without its 19-byte header and without its checksum.
Every parser raises CorruptEvent where bytes are missing.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ray_canal.binlog import types
from ray_canal.binlog.chunk import FLAVOR_MARIADB, FLAVOR_MYSQL
from ray_canal.errors import CorruptEvent
from ray_canal.types.charsets import charset_of_collation, decode_text

MAGIC = b"\xfebin"
_HEADER = struct.Struct("<IBIIIH")
_FORMAT_FIXED = struct.Struct("<H50sIB")
_QUERY_FIXED = struct.Struct("<IIBHH")
_CHECKSUM_SINCE = (5, 6, 1)
_MARIADB_CHECKSUM_SINCE = (5, 3, 0)


@dataclass(frozen=True, slots=True)
class EventHeader:
    """`timestamp` in seconds, `length` with header and checksum, `log_position` the event's end."""

    timestamp: int
    type_code: int
    server_id: int
    length: int
    log_position: int
    flags: int


@dataclass(frozen=True, slots=True)
class FormatDescription:
    """`post_header_bytes`: length of each event type's fixed part, index = type - 1."""

    server_version: str
    flavor: str
    has_checksum: bool
    post_header_bytes: bytes


@dataclass(frozen=True, slots=True)
class Query:
    """`charset` is the session's character_set_client, in which `sql` was written."""

    thread_id: int
    error_code: int
    schema: str
    sql: str
    charset: str
    server_charset: str = ""  # of collation_server; empty: not said
    sql_mode: int = 0


def parse_header(data: bytes) -> EventHeader:
    if len(data) < types.HEADER_BYTES:
        raise CorruptEvent(f"an event header has {types.HEADER_BYTES} bytes, {len(data)} are left")
    stamp, kind, server_id, length, position, flags = _HEADER.unpack_from(data)
    return EventHeader(stamp, kind, server_id, length, position, flags)


def version_numbers(server_version: str) -> tuple[int, ...]:
    """(8, 0, 36) of "8.0.36-log"."""
    numbers = []
    for part in server_version.split("-")[0].split(".")[:3]:
        digits = "".join(c for c in part if c in "0123456789")
        numbers.append(int(digits or 0))
    return tuple(numbers)


def parse_format_description(event: bytes) -> FormatDescription:
    """From the whole event, header included: its checksum algorithm is in its own last five
    bytes."""
    body = event[types.HEADER_BYTES :]
    if len(body) < _FORMAT_FIXED.size:
        raise CorruptEvent("FORMAT_DESCRIPTION is too short")
    version, name, _, header_bytes = _FORMAT_FIXED.unpack_from(body)
    if version != 4 or header_bytes != types.HEADER_BYTES:
        what = f"binlog version {version} with headers of {header_bytes} bytes"
        raise CorruptEvent(f"{what}, not version 4 with 19")
    server_version = name.split(b"\0")[0].decode("ascii", "replace")
    mariadb = "mariadb" in server_version.lower()
    # MariaDB used to put "5.5.5-" before its own version for old replicas.
    numbers = version_numbers(server_version.removeprefix("5.5.5-") if mariadb else server_version)
    lengths = body[_FORMAT_FIXED.size :]
    has_checksum = False
    if numbers >= (_MARIADB_CHECKSUM_SINCE if mariadb else _CHECKSUM_SINCE):
        if len(lengths) < 1 + types.CHECKSUM_BYTES:
            raise CorruptEvent("FORMAT_DESCRIPTION lacks its checksum algorithm")
        algorithm = lengths[-1 - types.CHECKSUM_BYTES]
        if algorithm not in (0, 1):
            raise CorruptEvent(f"unknown binlog checksum algorithm {algorithm}")
        has_checksum = algorithm == 1
        lengths = lengths[: -1 - types.CHECKSUM_BYTES]
    flavor = FLAVOR_MARIADB if mariadb else FLAVOR_MYSQL
    return FormatDescription(server_version, flavor, has_checksum, bytes(lengths))


def parse_query(body: bytes) -> Query:
    if len(body) < _QUERY_FIXED.size:
        raise CorruptEvent("QUERY is too short")
    thread_id, _, schema_bytes, error_code, status_bytes = _QUERY_FIXED.unpack_from(body)
    schema_at = _QUERY_FIXED.size + status_bytes
    sql_at = schema_at + schema_bytes + 1
    if sql_at > len(body):
        raise CorruptEvent("QUERY is shorter than its status variables and schema name")
    charset, server_charset, sql_mode = _session(body[_QUERY_FIXED.size : schema_at])
    schema = body[schema_at : schema_at + schema_bytes].decode("utf-8", "replace")
    sql = decode_text(body[sql_at:], charset)
    return Query(thread_id, error_code, schema, sql, charset, server_charset, sql_mode)


_STATUS_BYTES = {0: 4, 1: 8, 3: 4, 4: 6, 7: 2, 8: 2, 9: 8, 10: 4, 13: 3, 16: 1, 17: 8, 128: 3}
"""Status variables of a fixed length; 2, 5 and 6 carry a length, all others end the search."""
_STATUS_SQL_MODE, _STATUS_CATALOG, _STATUS_CHARSET = 1, 2, 4
_STATUS_TIME_ZONE, _STATUS_CATALOG_NZ = 5, 6


def _session(status: bytes) -> tuple[str, str, int]:
    """(character_set_client, collation_server's character set, sql_mode) of a query's status
    variables; utf8mb4, nothing and 0 where they are not said."""
    charset, server_charset, sql_mode = "utf8mb4", "", 0
    at = 0
    while at + 1 < len(status):
        code = status[at]
        at += 1
        if code == _STATUS_CHARSET:
            client, _, server = struct.unpack_from("<HHH", status.ljust(at + 6, b"\0"), at)
            charset = charset_of_collation(client) if client else "utf8mb4"
            server_charset = charset_of_collation(server) if server else ""
            break  # what comes behind is not needed
        if code == _STATUS_SQL_MODE:
            sql_mode = int.from_bytes(status[at : at + 8], "little")
        if code in (_STATUS_CATALOG, _STATUS_TIME_ZONE, _STATUS_CATALOG_NZ):
            at += 1 + status[at] + (code == _STATUS_CATALOG)
        elif code in _STATUS_BYTES:
            at += _STATUS_BYTES[code]
        else:
            break
    return charset, server_charset, sql_mode


def read_events(path: str | Path) -> Iterator[tuple[int, EventHeader, bytes]]:
    """(offset, header, whole event) of a small binlog file, unchecked: for tests and tools."""
    data = Path(path).read_bytes()
    at = len(MAGIC)
    while at < len(data):
        header = parse_header(data[at : at + types.HEADER_BYTES])
        if header.length < types.HEADER_BYTES or at + header.length > len(data):
            raise CorruptEvent(f"event length {header.length} is wrong").at(str(path), at)
        yield at, header, data[at : at + header.length]
        at += header.length
