"""mysql-replication as a reader of binlog events, from files and from a server.

It has a reader of a server's stream alone, so events are framed here, apart from ray_canal's own
cutter, and given one by one to its BinLogPacketWrapper. Its exceptions end an event, not the
reading: such an event's rows are reported as not compared.
"""

from __future__ import annotations

import random
import struct
import warnings
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ray_canal.binlog.events import event_name, parse_format_description
from ray_canal.config import SourceConfig
from ray_canal.errors import ConfigError
from ray_canal.kernels.base import event_types
from ray_canal.source.connection import connect, query, translated
from ray_canal.types import mysql
from ray_canal.verify.rows import ABSENT, Image, TheirColumn, TheirEvent, TheirRow

_MAGIC_BYTES = 4
_KINDS = {
    event_types.WRITE_ROWS_V1: "INSERT",
    event_types.UPDATE_ROWS_V1: "UPDATE",
    event_types.DELETE_ROWS_V1: "DELETE",
    event_types.WRITE_ROWS: "INSERT",
    event_types.UPDATE_ROWS: "UPDATE",
    event_types.DELETE_ROWS: "DELETE",
    event_types.PARTIAL_UPDATE_ROWS: "UPDATE",
}
_HEARTBEATS = (event_types.HEARTBEAT, event_types.HEARTBEAT_V2)
_COMPRESSED = {
    event_types.TRANSACTION_PAYLOAD,
    *range(
        event_types.MARIADB_WRITE_ROWS_COMPRESSED_V1, event_types.LAST_MARIADB_COMPRESSED + 1
    ),
}  # fmt: skip
_KNOWN_TYPES = frozenset({*range(1, 6), *range(7, 14), *range(15, 20), *range(245, 249), 252, 254})
_KNOWN_TYPES |= {mysql.VAR_STRING, mysql.GEOMETRY}
_COM_BINLOG_DUMP = 0x12
_NON_BLOCKING, _SEND_ANNOTATE_ROWS = 1, 2
_OUT_OF_RANGE = "out of date"  # what its `none_sources` say of a date that Python cannot hold


class Framed(NamedTuple):
    """One event of a file, header and checksum included, and where it begins."""

    position: int
    data: bytes


def require_library() -> None:
    """Raises ConfigError: mysql-replication is not installed."""
    try:
        import pymysqlreplication  # noqa: F401
    except ImportError:
        raise ConfigError(
            "verify compares with mysql-replication, which is not installed; "
            "run: pip install 'ray-canal[verify]'"
        ) from None


def file_events(path: Path) -> Iterator[Framed]:
    """Yield the events of a binlog file, up to its last whole one."""
    with path.open("rb") as file:
        position = len(file.read(_MAGIC_BYTES))
        while len(header := file.read(event_types.HEADER_BYTES)) == event_types.HEADER_BYTES:
            length = int.from_bytes(header[9:13], "little")
            data = header + file.read(max(0, length - event_types.HEADER_BYTES))
            if len(data) != length:
                return
            yield Framed(position, data)
            position += length


def server_events(config: SourceConfig, journal_name: str, size_bytes: int) -> Iterator[Framed]:
    """Yield the events of a server's file, over a connection of its own, up to `size_bytes`.

    Raises SourceError kinds.
    """
    connection = connect(config)
    try:
        row = query(connection, config, "SELECT VERSION() AS v, @@global.binlog_checksum AS c")[0]
        is_mariadb = "mariadb" in str(row["v"]).lower()
        query(connection, config, "SET @master_binlog_checksum = @@global.binlog_checksum")
        query(connection, config, "SET @source_binlog_checksum = @@global.binlog_checksum")
        if is_mariadb:
            query(connection, config, "SET @mariadb_slave_capability = 4")
        flags = _NON_BLOCKING | (_SEND_ANNOTATE_ROWS if is_mariadb else 0)
        replica = config.server_id or random.randrange(1 << 31, 1 << 32)
        place = struct.pack("<IHI", _MAGIC_BYTES, flags, replica)
        with translated(config, logged_in=True):
            connection._execute_command(_COM_BINLOG_DUMP, place + journal_name.encode())
        position = _MAGIC_BYTES
        while position < size_bytes:
            with translated(config, logged_in=True):
                packet = connection._read_packet()
            if packet.is_eof_packet():
                return
            data = packet.get_all_data()[1:]
            flags = int.from_bytes(data[17:19], "little")
            end = int.from_bytes(data[13:17], "little")
            if flags & event_types.FLAG_ARTIFICIAL or data[4] in _HEARTBEATS:
                continue
            if data[4] == event_types.ROTATE and not data[:4].strip(b"\0"):
                continue  # an older server's artificial one has no flag
            if end and (position + len(data)) & 0xFFFFFFFF != end:
                position = (position & ~0xFFFFFFFF) + end - len(data)
            yield Framed(position, data)
            position += len(data)
    finally:
        connection.close()


class _Control:
    """The control connection that its events ask."""

    charset = "utf8"

    def __init__(self) -> None:
        self.dbms = "mysql"

    def _get_dbms(self) -> str:
        return self.dbms


class SecondReader:
    """Decodes the events of one file after another with mysql-replication."""

    def __init__(self) -> None:
        require_library()
        from pymysqlreplication import row_event

        self._wanted = frozenset(
            {
                row_event.TableMapEvent,
                row_event.WriteRowsEvent,
                row_event.UpdateRowsEvent,
                row_event.DeleteRowsEvent,
                row_event.PartialUpdateRowsEvent,
            }
        )
        self._control = _Control()
        self._has_checksum = False
        self._tables: dict[int, Any] = {}
        self._unknown: dict[int, str] = {}

    def events(self, journal_name: str, framed: Iterable[Framed]) -> Iterator[TheirEvent]:
        """Yield the row events of one file, and a reason for each that is not decoded."""
        self._tables, self._unknown, self._has_checksum = {}, {}, False
        for position, data in framed:
            kind = data[4]
            if kind == event_types.FORMAT_DESCRIPTION:
                self._read_format(data)
            elif kind == event_types.TABLE_MAP:
                self._read_table_map(data)
            elif kind in _COMPRESSED:
                reason = f"compressed, unknown to mysql-replication: {event_name(kind)}"
                yield TheirEvent(journal_name=journal_name, position=position, reason=reason)
            elif kind in _KINDS:
                yield self._row_event(journal_name, position, data)

    def _read_format(self, data: bytes) -> None:
        told = parse_format_description(data)
        self._control.dbms = told.flavor
        self._has_checksum = told.has_checksum

    def _decode(self, data: bytes) -> Any:
        """Its event object. Raises whatever it raises."""
        from pymysql.protocol import MysqlPacket
        from pymysqlreplication.packet import BinLogPacketWrapper

        if not self._has_checksum:  # it takes a table map's last four bytes for one, always
            length = struct.pack("<I", len(data) + event_types.CHECKSUM_BYTES)
            data = data[:9] + length + data[13:]
            data += struct.pack("<I", zlib.crc32(data))
        return BinLogPacketWrapper(
            from_packet=MysqlPacket(b"\0" + data, "utf8"),
            table_map=self._tables,
            ctl_connection=self._control,
            mysql_version=(0, 0, 0),
            use_checksum=True,
            allowed_events=self._wanted,
            only_tables=None,
            ignored_tables=None,
            only_schemas=None,
            ignored_schemas=None,
            freeze_schema=False,
            ignore_decode_errors=False,
            verify_checksum=False,
            optional_meta_data=True,
            enable_logging=False,
        ).event

    def _read_table_map(self, data: bytes) -> None:
        table_id = int.from_bytes(data[19:25], "little")
        self._tables.pop(table_id, None)
        self._unknown.pop(table_id, None)
        try:
            event = self._decode(data)
            table = event.get_table()
        except Exception as error:
            self._tables.pop(table_id, None)
            self._unknown[table_id] = f"mysql-replication fails on the table map: {_name(error)}"
            return
        unknown = {c.type for c in table.columns} - _KNOWN_TYPES
        if unknown:
            names = ", ".join(mysql.type_name(code) for code in sorted(unknown))
            self._unknown[table_id] = f"a table with a type unknown to mysql-replication: {names}"
        self._tables[table_id] = table

    def _row_event(self, journal_name: str, position: int, data: bytes) -> TheirEvent:
        table_id = int.from_bytes(data[19:25], "little")
        table = self._tables.get(table_id)
        reason = self._unknown.get(table_id, "")
        if table is None or reason:
            reason = reason or "mysql-replication knows no table map of the event"
            return TheirEvent(journal_name=journal_name, position=position, reason=reason)
        columns = tuple(_column(column) for column in table.columns)
        rows: tuple[TheirRow, ...] = ()
        event = None
        try:
            event = self._decode(data)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                _ = event.rows
        except Exception as error:
            reason = f"mysql-replication fails on the event: {_name(error)}"
        if event is not None:
            rows = tuple(_row(event, row, len(columns)) for row in event.rows)  # those before it
        return TheirEvent(
            journal_name=journal_name,
            position=position,
            event_type=_KINDS[data[4]],
            schema=table.schema,
            table=table.table,
            columns=columns,
            rows=rows,
            reason=reason,
        )


def _name(error: Exception) -> str:
    return type(error).__name__


def _column(column: Any) -> TheirColumn:
    labels = column.enum_values or column.set_values
    return TheirColumn(column.name, column.type, column.character_set_name, bool(labels))


def _row(event: Any, row: dict[str, Any], count: int) -> TheirRow:
    present = event.columns_present_bitmap
    irregular = frozenset(
        name
        for sources in ("none_sources", "before_none_sources", "after_none_sources")
        for name, source in row.get(sources, {}).items()
        if str(source).startswith(_OUT_OF_RANGE)
    )
    if "before_values" in row:
        after = _image(row["after_values"], event.columns_present_bitmap2, count)
        return TheirRow(_image(row["before_values"], present, count), after, irregular)
    image = _image(row["values"], present, count)
    is_delete = type(event).__name__ == "DeleteRowsEvent"
    return TheirRow(image, None, irregular) if is_delete else TheirRow(None, image, irregular)


def _image(values: dict[str, Any], present: bytes, count: int) -> Image:
    kept = list(values.values())
    if len(kept) != count:
        raise ValueError(f"{len(kept)} values for {count} columns")
    return tuple(
        value if present[k // 8] >> (k % 8) & 1 else ABSENT for k, value in enumerate(kept)
    )
