"""One binlog dump: a connection that poses as a replica, read in big pieces into a ChunkCutter.

PyMySQL connects and sets the session up; after the dump command its socket is read raw, and a
kernel takes the packet framing off (kernels/framing/packets.py). Commands are those of MySQL's
replication protocol.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import struct
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from ray_canal.binlog.cutter import ChunkCutter
from ray_canal.config import SourceConfig
from ray_canal.errors import CanalError, ConnectionLost, PositionNotFound
from ray_canal.kernels.framing import packets
from ray_canal.model.arrays import Bytes
from ray_canal.model.gtid import GtidSet
from ray_canal.model.position import BINLOG_START, EntryPosition
from ray_canal.source import server_id
from ray_canal.source.connection import (
    SERVER_SQL,
    connect,
    is_encrypted,
    query,
    server_error,
    server_uuid,
    translated,
)
from ray_canal.source.start.log_file import WIDE_OFFSET, takes_wide_offsets

_COM_REGISTER_SLAVE = 0x15
_COM_BINLOG_DUMP = 0x12
_COM_BINLOG_DUMP_GTID = 0x1E
_NON_BLOCK = 1  # the server ends the dump where the log ends
_SEND_ANNOTATE_ROWS = 2  # MariaDB: do not leave ANNOTATE_ROWS events out
_THROUGH_GTID = 4
_SEMI_SYNC_MAGIC = 0xEF
_MARIADB_CAPABILITY_GTID = 4
_WRITE_TIMEOUT_S = 600
"""So long the server waits for us when back-pressure keeps us from reading. Then it ends the dump,
and a new one goes on there when there is room: meanwhile nothing keeps the server from purging the
file, and a connection whose other end is gone is not kept for a day."""

_TLS_BATCH_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ReplicaIdentity:
    """The identity that a dump gives the server; the uuid stays the same over reconnects, so that
    the server ends the dump of a connection that it still believes alive."""

    uuid: str
    server_id: int = 0


class BinlogDump:
    """A running dump. `receive` moves what the socket has into the cutter."""

    def __init__(self, config: SourceConfig, cutter: ChunkCutter) -> None:
        self._config = config
        self._cutter = cutter
        self._connection: Any = None
        self._socket: Any = None
        self._buffer: Bytes = np.empty(config.receive_buffer_bytes, np.uint8)
        self._left = 0  # bytes of a cut-off packet head at the buffer's beginning
        self._state = np.zeros(packets.STATE_SIZE, np.int64)
        self._silent_s = 0.0
        self._least = 1
        self._ack_wanted = False
        self.received_bytes = 0
        self.waited_s = 0.0
        self.last_received_at = 0.0
        self.semi_sync = False
        self.server_uuid = ""

    def start(
        self,
        position: EntryPosition,
        replica: ReplicaIdentity,
        *,
        by_gtid: bool,
        follow: bool = True,
    ) -> ReplicaIdentity:
        """Connect and ask for events from `position` on; without `follow`, up to the log's present
        end. Returns the replica with its server id.

        Raises SourceError kinds; errors about the position itself come with the first `receive`.
        """
        self._connection = connection = connect(self._config)
        self.server_uuid = server_uuid(self._query(SERVER_SQL))
        version = str(self._query("SELECT VERSION() AS v")[0]["v"])
        is_mariadb = "mariadb" in version.lower()
        chosen = replica.server_id or server_id.choose(connection, self._config)
        self._set_up_session(is_mariadb, replica.uuid, position.gtid if by_gtid else "")
        name = b"" if by_gtid else position.journal_name.encode("utf-8", "surrogateescape")
        self._command(_COM_REGISTER_SLAVE, struct.pack("<IBBBHII", chosen, 0, 0, 0, 0, 0, 0))
        with translated(self._config, logged_in=True):
            connection._read_ok_packet()
        is_far = position.position >= WIDE_OFFSET
        if not is_mariadb and (by_gtid or (is_far and self._takes_wide_offsets(version))):
            encoded = GtidSet.parse(position.gtid if by_gtid else "").encode()
            # Where it is so far that the events' own 32 bits do not tell, the place is named, too.
            file = position.journal_name.encode("utf-8", "surrogateescape") if is_far else b""
            head = struct.pack("<HII", _THROUGH_GTID, chosen, len(file)) + file
            head += struct.pack("<QI", position.position if file else BINLOG_START, len(encoded))
            self._command(_COM_BINLOG_DUMP_GTID, head + encoded)
        else:
            offset = BINLOG_START if by_gtid else position.position
            if offset >= WIDE_OFFSET:
                raise PositionNotFound(
                    f"{position}: this server can only be asked for offsets below 4 GiB; start at "
                    "the next file"
                ).at(position.journal_name, position.position)
            flags = (_SEND_ANNOTATE_ROWS if is_mariadb else 0) | (0 if follow else _NON_BLOCK)
            self._command(_COM_BINLOG_DUMP, struct.pack("<IHI", offset, flags, chosen) + name)
        self._socket = connection._sock
        self._socket.settimeout(self._config.read_timeout_s)
        self.last_received_at = time.time()
        return ReplicaIdentity(replica.uuid, chosen)

    def _takes_wide_offsets(self, version: str) -> bool:
        rows = self._query("SHOW GLOBAL VARIABLES LIKE 'gtid_mode'")
        return takes_wide_offsets(version, str(rows[0]["Value"]) if rows else "")

    def _query(self, sql: str, *values: object) -> list[dict[str, Any]]:
        return query(self._connection, self._config, sql, *values)

    def _command(self, code: int, body: bytes) -> None:
        with translated(self._config, logged_in=True):
            self._connection._execute_command(code, body)

    def _set_up_session(self, is_mariadb: bool, uuid: str, gtid: str) -> None:
        period_ns = int(self._config.heartbeat_s * 1e9)
        settings = [
            "@master_binlog_checksum = @@global.binlog_checksum",
            "@source_binlog_checksum = @@global.binlog_checksum",
            f"@master_heartbeat_period = {period_ns}",
            f"@source_heartbeat_period = {period_ns}",
            f"@@session.net_write_timeout = {_WRITE_TIMEOUT_S}",
        ]
        if is_mariadb:
            settings.append(f"@mariadb_slave_capability = {_MARIADB_CAPABILITY_GTID}")
        self._query("SET " + ", ".join(settings))
        self._query("SET @slave_uuid = %s, @replica_uuid = %s", uuid, uuid)
        if is_mariadb and gtid:
            self._query("SET @slave_connect_state = %s, @slave_gtid_strict_mode = 0", gtid)
        self.semi_sync = self._config.semi_sync and self._offers_semi_sync()
        if self.semi_sync:
            self._query("SET @rpl_semi_sync_slave = 1, @rpl_semi_sync_replica = 1")

    def _offers_semi_sync(self) -> bool:
        rows = self._query("SHOW GLOBAL VARIABLES LIKE 'rpl\\_semi\\_sync\\_%enabled'")
        return any(
            row["Value"] == "ON" and "slave" not in name and "replica" not in name
            for row in rows
            for name in [str(row["Variable_name"])]
        )

    # ---- reading

    def receive(self, wait_s: float, wake: int, least: int = 1) -> bool:
        """Wait up to `wait_s` for bytes, better `least` of them, and feed the cutter; whether any
        came.

        Returns early when the file descriptor `wake` becomes readable. Raises ConnectionLost (the
        server closed, or was silent for read_timeout_s although it should send heartbeats),
        PositionNotFound, PositionPurged, PrivilegeMissing, SourceError: what the server said.
        """
        self._wake_for(least)
        if not self._wait(wait_s, wake):
            if self._least == 1:
                return False
            self._wake_for(1)
            if not self._wait(0.0, wake):
                return False
        count = self._read_socket()
        end = self._left + count
        self.received_bytes += count
        self._silent_s = 0.0
        self.last_received_at = time.time()
        self._unpack(end)
        return True

    def _wake_for(self, least: int) -> None:
        """Set the number of bytes from which on the socket counts as readable. (TLS has records
        instead.)"""
        if least != self._least and not isinstance(self._socket, ssl.SSLSocket):
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, least)
            self._least = least

    def _wait(self, wait_s: float, wake: int) -> bool:
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return True
        limit_s = self._config.read_timeout_s - self._silent_s
        poller = select.poll()
        poller.register(self._socket.fileno(), select.POLLIN)
        poller.register(wake, select.POLLIN)
        if any(fd == self._socket.fileno() for fd, _ in poller.poll(0)):
            return True  # whatever time this took, nobody waited for the server
        started = time.monotonic()
        ready = {fd for fd, _ in poller.poll(max(0.0, min(wait_s, limit_s)) * 1000)}
        waited_s = time.monotonic() - started
        self.waited_s += waited_s
        if self._socket.fileno() in ready:
            return True
        # Only time spent waiting counts: under back-pressure nobody reads, and nobody is silent.
        self._silent_s += waited_s
        if self._silent_s >= self._config.read_timeout_s:
            raise ConnectionLost(
                f"MySQL at {self._config.address}: nothing for {self._silent_s:.0f} s, although "
                f"heartbeats are due every {self._config.heartbeat_s:g} s"
            )
        return False

    def _read_socket(self) -> int:
        view = self._buffer.data[self._left :][: self._cutter.rest_bytes]
        count = 0
        try:
            while True:
                got = int(self._socket.recv_into(view[count:]))
                if got == 0:
                    raise ConnectionLost(
                        f"MySQL at {self._config.address}: the server closed the connection"
                    )
                count += got
                # TLS hands out one record (16 KiB) a call; gather the ones that are here already.
                if not isinstance(self._socket, ssl.SSLSocket) or not self._socket.pending():
                    return count
                if count >= min(_TLS_BATCH_BYTES, len(view)):
                    return count
        except (OSError, ValueError) as error:
            raise ConnectionLost(f"MySQL at {self._config.address}: {error}") from None

    def _unpack(self, end: int) -> None:
        at = 0
        while True:
            target = self._cutter.reserve(end - at)
            code, at = packets.unpack(
                self._buffer, at, end, target, self._state, self.semi_sync
            )
            self._cutter.commit(int(self._state[packets.WRITTEN_BYTES]), self.last_received_at)
            if code == packets.MORE:
                break
            if code == packets.ACK:
                self._ack_wanted = True
                continue
            raise self._ended(int(code), at)
        self._left = end - at
        if self._left:
            self._buffer[: self._left] = self._buffer[at:end].copy()

    def _ended(self, code: int, at: int) -> CanalError:
        if code == packets.END:
            return ConnectionLost(f"MySQL at {self._config.address}: the server ended the dump")
        if code == packets.BROKEN:
            return ConnectionLost(
                f"MySQL at {self._config.address}: bytes that are no dump packet: "
                f"{self._buffer[at : at + 16].tobytes().hex()}"
            )
        size = int.from_bytes(self._buffer[at : at + 3].tobytes(), "little")
        body = self._buffer[at + 4 : at + 4 + size].tobytes()
        number = int.from_bytes(body[1:3], "little")
        text = body[9:] if body[3:4] == b"#" else body[3:]
        message = text.decode("utf-8", "replace")
        return server_error(self._config, number, message, logged_in=True)

    def acknowledge(self, journal_name: str, position: int) -> None:
        """Semi-synchronous: where the server waits for it, tell it how far events have arrived."""
        if not self._ack_wanted:
            return
        self._ack_wanted = False
        name = journal_name.encode("utf-8", "surrogateescape")
        body = struct.pack("<BQ", _SEMI_SYNC_MAGIC, position) + name
        try:
            self._socket.sendall(struct.pack("<I", len(body)) + body)
        except OSError as error:
            raise ConnectionLost(f"MySQL at {self._config.address}: {error}") from None

    def take_received_bytes(self) -> int:
        """Bytes received since the last call."""
        count, self.received_bytes = self.received_bytes, 0
        return count

    @property
    def encrypted(self) -> bool:
        """Return whether the connection uses TLS."""
        return self._connection is not None and is_encrypted(self._connection)

    def close(self) -> None:
        """Close the socket without a farewell: the server is writing, not listening."""
        connection, self._connection, self._socket = self._connection, None, None
        if connection is not None:
            with contextlib.suppress(Exception):
                connection._force_close()


def load_kernels() -> None:
    """Load the machine code into this process before a dump begins."""
    nothing = np.zeros(0, np.uint8)
    packets.unpack(nothing, 0, 0, nothing, np.zeros(packets.STATE_SIZE, np.int64), False)
