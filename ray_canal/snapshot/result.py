"""Result sets in MySQL's binary protocol, read from the socket into one buffer.

PyMySQL connects and sends the commands; from the first byte of an answer on its socket is read
here. Rows come out as pieces: whole packets in the buffer, and where each of their values lies.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Generator
from typing import Any, NamedTuple

import numpy as np

from ray_canal.config import SourceConfig
from ray_canal.errors import CanalError, ConnectionLost, CorruptEvent, UnsupportedEvent
from ray_canal.kernels.base.jit import read_only
from ray_canal.kernels.result import rows as k
from ray_canal.kernels.rows import wire
from ray_canal.model.arrays import Bytes, Int64s
from ray_canal.snapshot.columns import ResultColumn, Selection
from ray_canal.source.connection import server_error, translated
from ray_canal.types.charset_tables import tables as charset_tables

_COM_STMT_PREPARE, _COM_STMT_EXECUTE, _COM_STMT_CLOSE = 0x16, 0x17, 0x19
_BUFFER_BYTES = 4 << 20
"""Each piece costs a millisecond of Python or more, up to its batch, whatever is in it: with 1 MiB
a quarter of the CPU. 8 MiB take no less than 4."""
_FULL = 0.75  # of the buffer: then rows are looked at
_PAUSE_S = 0.02
"""Where nothing comes for so long, what has come is looked at: an error packet is the last one."""
_SLACK_BYTES = 64
_ROWS_TIMEOUT_S = 60.0  # no heartbeat comes while a server looks for rows
_BODY_MAX = 0xFFFFFF
_HEAD_BYTES = 4
_CELLS = 1 << 19
_END_PACKET_BYTES = 9

_MESSAGES = {
    wire.TRUNCATED: "a value ends behind its row",
    wire.BAD_WIDTH: "a row is longer than its columns",
    wire.BAD_DECIMAL: "a decimal has impossible digits",
    wire.BAD_TEMPORAL: "a date or time has impossible fields",
    wire.BAD_PACKED: "a vector is broken",
}


class ResultRows(NamedTuple):
    """Rows of a result, valid until the next ones are asked for: `cells` says where in `source`
    each value lies, `sizes` how many bytes of text each column has (int64[columns, 2])."""

    source: Bytes
    cells: Int64s
    sizes: Int64s
    rows: int
    size_bytes: int


def broken(selection: Selection, code: int) -> CorruptEvent:
    """The error that a kernel's code means."""
    return CorruptEvent(f"rows of {selection.meta.full_name}: {_MESSAGES[code]}")


class ResultReader:
    """Statements over one connection, each read to its end before the next one."""

    def __init__(
        self, connection: Any, config: SourceConfig, buffer_bytes: int = _BUFFER_BYTES
    ) -> None:
        self._connection = connection
        self._config = config
        self._buffer: Bytes = np.zeros(buffer_bytes + _SLACK_BYTES, np.uint8)
        self._size = self._least_size = buffer_bytes
        self._at = self._end = 0
        self._cells: Int64s = np.empty(_CELLS, np.int64)
        self._statement = b""
        self._timeout_s = max(config.read_timeout_s, _ROWS_TIMEOUT_S)
        self.received_bytes = 0

    def pieces(
        self, sql: str, selection: Selection, among: str = ""
    ) -> Generator[ResultRows, None, None]:
        """Run a statement; its rows. `among`: the condition that they fit, for errors. Raises
        SourceError kinds, TableMetaMismatch, CorruptEvent, UnsupportedEvent: a row is too long.
        The connection can be used again after what the server said, and after no other error."""
        try:
            with translated(self._config, logged_in=True):
                selection.check(self._execute(sql))
                yield from self._rows(selection, among)
                self._command(_COM_STMT_CLOSE, self._statement)
        finally:
            self._give_back_the_socket()

    def _give_back_the_socket(self) -> None:
        """PyMySQL sets a timeout only where it is not what it set last, and knows nothing of ours:
        with one of milliseconds left, the next statement would be a lost connection."""
        connection = self._connection
        if connection._sock is not None:
            with contextlib.suppress(OSError):  # it is closed
                connection._sock.settimeout(connection._read_timeout)
            connection._current_timeout = connection._read_timeout

    def _command(self, code: int, body: bytes) -> None:
        self._give_back_the_socket()
        self._connection._execute_command(code, body)
        self._at = self._end = 0

    def _execute(self, sql: str) -> list[ResultColumn]:
        self._command(_COM_STMT_PREPARE, sql.encode("utf-8"))
        answer = self._packet()
        number, columns, parameters = struct.unpack_from("<IHH", answer, 1)
        self._statement = struct.pack("<I", number)
        for count in (parameters, columns):
            if count:
                self._columns(count)
        self._command(_COM_STMT_EXECUTE, self._statement + struct.pack("<BI", 0, 1))
        count, _ = _packed(self._packet(), 0)
        return self._columns(count)

    def _columns(self, count: int) -> list[ResultColumn]:
        found = [_column(self._packet()) for _ in range(count)]
        self._packet()  # the end of the definitions
        return found

    def _packet(self) -> bytes:
        """The next packet's body. Raises what an error packet says."""
        while True:
            left = self._end - self._at
            size = int.from_bytes(self._buffer[self._at : self._at + 3].tobytes(), "little")
            if left >= 4 and left >= 4 + size:
                body = self._buffer[self._at + 4 : self._at + 4 + size].tobytes()
                self._at += 4 + size
                if body[:1] == b"\xff":
                    raise self._said(body)
                return body
            self._receive(self._timeout_s)

    def _said(self, body: bytes) -> CanalError:
        number = int.from_bytes(body[1:3], "little")
        text = body[9:] if body[3:4] == b"#" else body[3:]
        return server_error(
            self._config, number, text.decode("utf-8", "replace"), logged_in=True
        )

    def _receive(self, wait_s: float) -> bool:
        """Read once into the buffer; False: nothing came in that time. Raises ConnectionLost."""
        if self._at and self._end == self._size:
            left = self._end - self._at
            if left <= self._least_size // 2 < self._size // 2:  # a long row is read by now
                self._resize(self._least_size)
            else:
                self._buffer[:left] = self._buffer[self._at : self._end].copy()
            self._at, self._end = 0, left
        if self._end == self._size:
            self._resize(2 * self._size)
        count = self._receive_into(self._buffer[self._end : self._size], wait_s)
        self._end += count
        return count > 0

    def _receive_into(self, target: Bytes, wait_s: float) -> int:
        """Read once; return how many bytes came, 0 if none did in that time. Raises
        ConnectionLost."""
        socket = self._connection._sock
        socket.settimeout(wait_s)
        try:
            count = int(socket.recv_into(target.data))
        except TimeoutError:
            if wait_s < self._timeout_s:
                return 0
            raise ConnectionLost(
                f"MySQL at {self._config.address}: no rows for {wait_s:g} s"
            ) from None
        if not count:
            raise ConnectionLost(f"MySQL at {self._config.address}: it closed the connection")
        self.received_bytes += count
        return count

    def _resize(self, size: int) -> None:
        """Take a buffer of another size, with what is not read yet."""
        buffer = np.zeros(size + _SLACK_BYTES, np.uint8)
        buffer[: self._end - self._at] = self._buffer[self._at : self._end]
        self._buffer, self._size = buffer, size

    def _is_end(self) -> bool:
        """Return whether an end packet seems to be the last thing that came."""
        tail = self._buffer[max(self._end - _END_PACKET_BYTES, 0) : self._end].tobytes()
        return tail[:3] == b"\x05\0\0" and tail[4:5] == b"\xfe"

    def _fill_buffer(self) -> None:
        """Receive until the buffer is full enough, or the result has ended, or pauses."""
        self._receive(self._timeout_s)
        while self._end - self._at < self._least_size * _FULL and not self._is_end():
            if not self._receive(_PAUSE_S):
                return

    def _rows(self, selection: Selection, among: str) -> Generator[ResultRows, None, None]:
        columns = len(selection.plan.codes)
        if len(self._cells) < columns:
            self._cells = np.empty(columns, np.int64)
        while True:
            code, piece = self._locate(selection, self._buffer, self._at, self._end, 0)
            if piece.rows:
                self._at += piece.size_bytes
                yield piece
            if code == k.FULL:
                continue
            if code == k.END:
                return
            if code == k.ERROR:
                self._packet()
            if code == k.LONG:
                yield self._long_row(selection, among)
            elif not piece.rows:
                self._refuse_long(selection, self._body_bytes(), among)
                self._fill_buffer()

    def _body_bytes(self) -> int:
        """Length of the next packet's body; 0: not known yet."""
        if self._end - self._at < _HEAD_BYTES:
            return 0
        return int.from_bytes(self._buffer[self._at : self._at + 3].tobytes(), "little")

    def _refuse_long(self, selection: Selection, size: int, among: str) -> None:
        """Raise UnsupportedEvent if a row takes more bytes than an event of the log may."""
        if size > self._config.event_bytes_max:
            row = f"a row with {among}" if among else "a row"
            raise UnsupportedEvent(
                f"{selection.meta.full_name}: {row} has more bytes than "
                f"source.event_bytes_max ({self._config.event_bytes_max:,}): raise that, or name "
                "the columns to read without the long ones (--columns)"
            )

    def _locate(
        self, selection: Selection, source: Bytes, at: int, end: int, body: int
    ) -> tuple[int, ResultRows]:
        sizes = np.zeros((len(selection.plan.codes), 2), np.int64)
        code, stop, rows = k.locate_rows(
            read_only(source),
            at,
            end,
            body,
            selection.plan.lines.reshape(-1),
            charset_tables(),
            self._cells,
            sizes.reshape(-1),
        )
        if code < 0:
            raise broken(selection, code)
        return code, ResultRows(source, self._cells, sizes, rows, stop - at)

    def _long_row(self, selection: Selection, among: str) -> ResultRows:
        """One row of several packets, in a buffer of its own."""
        whole: Bytes = np.zeros(2 * _BODY_MAX, np.uint8)
        size, body = 0, _BODY_MAX
        while body == _BODY_MAX:
            while self._end - self._at < _HEAD_BYTES:
                self._receive(self._timeout_s)
            body = self._body_bytes()
            self._at += _HEAD_BYTES
            self._refuse_long(selection, size + body, among)
            if size + body + _SLACK_BYTES > whole.size:
                longer: Bytes = np.zeros(2 * whole.size, np.uint8)
                longer[:size] = whole[:size]
                whole = longer
            self._fill(whole[size : size + body])
            size += body
        _, piece = self._locate(selection, whole, 0, size, size)
        return piece

    def _fill(self, target: Bytes) -> None:
        """Receive until the target is full."""
        done = min(self._end - self._at, len(target))
        target[:done] = self._buffer[self._at : self._at + done]
        self._at += done
        while done < len(target):
            done += self._receive_into(target[done:], self._timeout_s)


def _packed(body: bytes, at: int) -> tuple[int, int]:
    """(packed integer, offset behind it)."""
    first = body[at]
    if first < 251:
        return first, at + 1
    count = {252: 2, 253: 3}.get(first, 8)
    return int.from_bytes(body[at + 1 : at + 1 + count], "little"), at + 1 + count


def _column(body: bytes) -> ResultColumn:
    at, texts = 0, []
    for _ in range(6):  # catalog, schema, table and its own name, column and its own name
        size, at = _packed(body, at)
        texts.append(body[at : at + size])
        at += size
    _, _, kind, flags, _ = struct.unpack_from("<HIBHB", body, at + 1)
    return ResultColumn(texts[4].decode("utf-8", "replace"), kind, flags)
