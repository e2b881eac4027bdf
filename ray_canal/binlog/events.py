"""Event headers, and the events that Python reads itself: FORMAT_DESCRIPTION, ROTATE, heartbeats,
QUERY.

All integers little-endian. A body is an event without its 19-byte header and without its checksum.
Every parser raises CorruptEvent where bytes are missing.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

from ray_canal.binlog.chunk import FLAVOR_MARIADB, FLAVOR_MYSQL
from ray_canal.errors import CorruptEvent, UnsupportedEvent
from ray_canal.kernels.base import event_types
from ray_canal.kernels.base.event_types import CHECKSUM_BYTES, HEADER_BYTES
from ray_canal.types.charsets import charset_of_collation, decode_text

MAGIC = b"\xfebin"
_HEADER = struct.Struct("<IBIIIH")
_FORMAT_FIXED = struct.Struct("<H50sIB")
_QUERY_FIXED = struct.Struct("<IIBHH")
_CHECKSUM_SINCE = {FLAVOR_MYSQL: (5, 6, 1), FLAVOR_MARIADB: (5, 3, 0)}
_HEARTBEAT_POSITION = 2


@dataclass(frozen=True, slots=True)
class EventHeader:
    """Header of an event: `timestamp` in seconds, `length` with header and checksum, `log_position`
    the event's end."""

    timestamp: int
    type_code: int
    server_id: int
    length: int
    log_position: int
    flags: int


@dataclass(frozen=True, slots=True)
class FormatDescription:
    """Format of a file's events: `post_header_bytes` has the length of each type's fixed part, at
    type - 1; `created_s`: when the server made the file; `first_since_start`: it is the first file
    that the server has written since its start (only there the event's body has a time)."""

    server_version: str
    flavor: str
    has_checksum: bool
    post_header_bytes: bytes
    created_s: int
    first_since_start: bool


@dataclass(frozen=True, slots=True)
class Query:
    """A QUERY event's statement; `charset` is the session's character_set_client, in which `sql`
    was written."""

    thread_id: int
    error_code: int
    schema: str
    sql: str
    charset: str
    server_charset: str = ""  # of collation_server; empty: not said
    sql_mode: int = 0
    has_ddl_xid: bool = False  # MySQL 8.0: it has changed the data dictionary


def event_name(type_code: int) -> str:
    """Return an event type's name and number: `WRITE_ROWS (30)`."""
    return f"{event_types.NAMES.get(type_code, 'unknown')} ({type_code})"


def may_be_skipped(type_code: int) -> bool:
    """Tell if what follows an event of this type can be read without it."""
    return type_code not in event_types.STRUCTURE


def parse_header(data: bytes) -> EventHeader:
    """Return the header that `data` begins with. Raises CorruptEvent."""
    if len(data) < HEADER_BYTES:
        raise CorruptEvent(f"an event header has {HEADER_BYTES} bytes, {len(data)} are left")
    stamp, kind, server_id, length, position, flags = _HEADER.unpack_from(data)
    return EventHeader(stamp, kind, server_id, length, position, flags)


def version_numbers(server_version: str) -> tuple[int, ...]:
    """Return (8, 0, 36) for "8.0.36-log"."""
    numbers = []
    for part in server_version.split("-")[0].split(".")[:3]:
        digits = "".join(c for c in part if c in "0123456789")
        numbers.append(int(digits or 0))
    return tuple(numbers)


def parse_format_description(event: bytes) -> FormatDescription:
    """Return what the whole event says, header included: its checksum algorithm is in its own last
    five bytes. Raises CorruptEvent; UnsupportedEvent: another version of the binlog."""
    body = event[HEADER_BYTES:]
    if len(body) < _FORMAT_FIXED.size or event[4] != event_types.FORMAT_DESCRIPTION:
        raise CorruptEvent("FORMAT_DESCRIPTION event is too short, or is none")
    version, name, started_s, header_bytes = _FORMAT_FIXED.unpack_from(body)
    if version != 4 or header_bytes != HEADER_BYTES:
        raise UnsupportedEvent(
            f"binlog version {version} with {header_bytes}-byte event headers; only version 4 "
            "with 19 (MySQL 5.0 and later) is supported"
        )
    server_version = name.split(b"\0")[0].decode("latin-1")
    flavor = FLAVOR_MARIADB if "mariadb" in server_version.lower() else FLAVOR_MYSQL
    lengths, algorithm = body[_FORMAT_FIXED.size :], 0
    has_algorithm = version_numbers(server_version) >= _CHECKSUM_SINCE[flavor]
    if has_algorithm and len(lengths) > CHECKSUM_BYTES:
        algorithm = lengths[-1 - CHECKSUM_BYTES]
        lengths = lengths[: -1 - CHECKSUM_BYTES]
    if algorithm not in (0, 1):
        raise UnsupportedEvent(f"binlog checksum algorithm {algorithm} is not known")
    created_s = int.from_bytes(event[:4], "little")
    return FormatDescription(
        server_version, flavor, algorithm == 1, bytes(lengths), created_s, started_s != 0
    )


def parse_rotate(event: bytes) -> tuple[str, int]:
    """Return the file that the whole event names, and the position in it. The event may come
    before the FORMAT_DESCRIPTION that would say if it ends in a checksum. Raises CorruptEvent."""
    body = event[HEADER_BYTES:]
    if len(body) > 12 and zlib.crc32(event[:-4]) == int.from_bytes(event[-4:], "little"):
        body = body[:-4]
    if len(body) < 9:
        raise CorruptEvent("ROTATE event is too short")
    return body[8:].decode("utf-8", "surrogateescape"), int.from_bytes(body[:8], "little")


def parse_heartbeat(event: bytes, position: int, trailer: int) -> int | None:
    """Return how far the server has read, by a whole heartbeat event that comes at `position`, or
    None. Version 1 has 32 bits in its header; version 2 has 64, as type-length-value."""
    if event[4] == event_types.HEARTBEAT:
        return position >> 32 << 32 | int.from_bytes(event[13:17], "little")
    body = event[HEADER_BYTES : len(event) - trailer]
    at = 0
    told = None
    while at + 2 <= len(body) and body[at]:
        size = body[at + 1]
        if body[at] == _HEARTBEAT_POSITION and size <= 9:
            told = _packed_integer(body[at + 2 : at + 2 + size])
        at += 2 + size
    return told


def _packed_integer(data: bytes) -> int:
    """Return MySQL's length-encoded integer."""
    if not data or data[0] < 0xFB:
        return data[0] if data else 0
    size = {0xFC: 2, 0xFD: 3, 0xFE: 8}.get(data[0], 0)
    return int.from_bytes(data[1 : 1 + size], "little")


def parse_query(body: bytes, may_be_servers: bool = False) -> Query:
    """Return a QUERY event's statement and its session's settings (MySQL's Query_event).
    `may_be_servers`: the server may have written the CREATE TABLE itself, as it does for CREATE
    TABLE … SELECT and LIKE a temporary table: in UTF-8, whatever the session's character set is.
    Raises CorruptEvent."""
    if len(body) < _QUERY_FIXED.size:
        raise CorruptEvent("QUERY is too short")
    thread_id, _, schema_bytes, error_code, status_bytes = _QUERY_FIXED.unpack_from(body)
    schema_at = _QUERY_FIXED.size + status_bytes
    sql_at = schema_at + schema_bytes + 1
    if sql_at > len(body):
        raise CorruptEvent("QUERY is shorter than its status variables and schema name")
    status = body[_QUERY_FIXED.size : schema_at]
    charset, server_charset, sql_mode, has_ddl_xid = _session(status)
    schema = body[schema_at : schema_at + schema_bytes].decode("utf-8", "replace")
    text = body[sql_at:]
    if may_be_servers and text.startswith(_SERVERS_CREATES) and _is_utf8(text):
        sql = text.decode()
    else:
        sql = decode_text(text, charset)
    return Query(
        thread_id, error_code, schema, sql, charset, server_charset, sql_mode, has_ddl_xid
    )


_SERVERS_CREATES = (
    b"CREATE TABLE `", b"CREATE OR REPLACE TABLE `", b"CREATE TABLE IF NOT EXISTS `"
)  # fmt: skip


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


_STATUS_BYTES = {0: 4, 1: 8, 3: 4, 4: 6, 7: 2, 8: 2, 9: 8, 10: 4, 13: 3, 16: 1, 17: 8, 128: 3}
"""Status variables of a fixed length; 2, 5, 6, 11 and 12 tell theirs, all others end the search."""
_STATUS_SQL_MODE, _STATUS_CATALOG, _STATUS_CHARSET = 1, 2, 4
_STATUS_TIME_ZONE, _STATUS_CATALOG_NZ = 5, 6
_STATUS_INVOKER, _STATUS_DATABASES, _STATUS_DDL_XID = 11, 12, 17
_DATABASES_TOLD_MAX = 16


def _session(status: bytes) -> tuple[str, str, int, bool]:
    """Return (character_set_client, collation_server's character set, sql_mode, whether there is a
    number of a DDL transaction) of a query's status variables; utf8mb4, nothing, 0 and False where
    they are missing."""
    charset, server_charset, sql_mode, has_ddl_xid = "utf8mb4", "", 0, False
    at = 0
    while at + 1 < len(status):
        code = status[at]
        at += 1
        if code == _STATUS_CHARSET:
            client, _, server = struct.unpack_from("<HHH", status.ljust(at + 6, b"\0"), at)
            charset = charset_of_collation(client) if client else "utf8mb4"
            server_charset = charset_of_collation(server) if server else ""
        has_ddl_xid |= code == _STATUS_DDL_XID
        if code == _STATUS_SQL_MODE:
            sql_mode = int.from_bytes(status[at : at + 8], "little")
        if code in (_STATUS_CATALOG, _STATUS_TIME_ZONE, _STATUS_CATALOG_NZ):
            at += 1 + status[at] + (code == _STATUS_CATALOG)
        elif code == _STATUS_INVOKER:  # user and host, each with its length
            at += 1 + status[at]
            at += 1 + (status[at] if at < len(status) else 0)
        elif code == _STATUS_DATABASES:  # so many names, each with a zero at its end
            count, at = status[at], at + 1
            for _ in range(count if count <= _DATABASES_TOLD_MAX else 0):
                at = status.find(0, at) + 1 or len(status)
        elif code in _STATUS_BYTES:
            at += _STATUS_BYTES[code]
        else:
            break
    return charset, server_charset, sql_mode, has_ddl_xid
