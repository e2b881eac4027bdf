"""What Tansu's Fetch answers lack: which transactions were aborted.

Tansu 0.6 writes a marker behind each transaction, as Kafka does, and shows readers of what is
committed nothing beyond the oldest open one, but leaves the list of aborted transactions empty, so
their messages are shown, too. `Completed` is a broker's address that adds the list, from the
markers in the log (Kafka's protocol guide: Fetch version 4, record batches of magic 2, control
records).
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

_FETCH, _API_VERSIONS = 1, 18
_FETCH_VERSION = 4
_HEADER = 61
"""Bytes of a record batch before its first record."""
_TRANSACTIONAL, _CONTROL = 0x10, 0x20
_ABORT = 0
_BYTES = 50 << 20


class _Batch(NamedTuple):
    first: int
    last: int
    producer: int
    is_transactional: bool
    marker: int | None
    """Of a control record: 0 aborts, 1 commits."""


class Completed:
    """Stands before a broker, which has to advertise this address. `port` is on loopback; `tls`:
    clients are answered by TLS alone."""

    def __init__(self, broker_port: int, tls: ssl.SSLContext | None = None) -> None:
        self._broker, self._tls = ("127.0.0.1", broker_port), tls
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        """Pass on what comes from both sides, until one of them ends."""
        with contextlib.suppress(OSError), client:
            if self._tls is not None:
                client = self._tls.wrap_socket(client, server_side=True)
            with client, socket.create_connection(self._broker) as broker:
                self._pass_on(client, broker)

    def _pass_on(self, client: socket.socket, broker: socket.socket) -> None:
        for each in (client, broker):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        asked: dict[int, tuple[int, int]] = {}  # of a request's number: kind and version
        back = threading.Thread(target=self._answer, args=(broker, client, asked), daemon=True)
        back.start()
        with contextlib.suppress(OSError, EOFError):
            for request in _frames(client):
                kind, version, number = struct.unpack_from(">hhi", request)
                if kind == _API_VERSIONS or (kind == _FETCH and _is_of_committed(request)):
                    asked[number] = kind, version
                _send(broker, request)
        with contextlib.suppress(OSError):
            broker.shutdown(socket.SHUT_RDWR)
        back.join()

    def _answer(
        self, broker: socket.socket, client: socket.socket, asked: dict[int, tuple[int, int]]
    ) -> None:
        with contextlib.suppress(OSError, EOFError):
            for answer in _frames(broker):
                kind, version = asked.pop(struct.unpack_from(">i", answer)[0], (None, 0))
                if kind == _API_VERSIONS:
                    answer = _with_old_fetch(answer, version)
                elif kind == _FETCH:
                    answer = self._complete(answer)
                _send(client, answer)
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)

    def _complete(self, answer: bytes) -> bytes:
        found, at = bytearray(answer[:12]), 12
        for _ in range(struct.unpack_from(">i", answer, 8)[0]):
            topic, partitions, head = _topic(answer, at)
            found += answer[at:head]
            at = head
            for _ in range(partitions):
                number, _, end = struct.unpack_from(">ihq", answer, at)
                records, after = _records(answer, at)
                found += answer[at : at + 22]
                aborted = self._aborted(topic, number, list(_batches(records)), end)
                found += struct.pack(">i", len(aborted))
                for producer, first in aborted:
                    found += struct.pack(">qq", producer, first)
                found += struct.pack(">i", len(records)) + records
                at = after
        return bytes(found)

    def _aborted(
        self, topic: bytes, partition: int, shown: list[_Batch], end: int
    ) -> list[tuple[int, int]]:
        """(producer, first offset) of the aborted transactions that `shown` has messages of."""
        if not any(batch.is_transactional for batch in shown):
            return []
        open_since: dict[int, int] = {}
        aborted = []
        for batch in self._log(topic, partition, end):
            if batch.marker is None and batch.is_transactional:
                open_since.setdefault(batch.producer, batch.first)
            elif batch.marker is not None:
                first = open_since.pop(batch.producer, None)
                is_shown = batch.first >= shown[0].first and (first or 0) <= shown[-1].last
                if batch.marker == _ABORT and first is not None and is_shown:
                    aborted.append((batch.producer, first))
        return sorted(aborted, key=lambda each: each[1])

    def _log(self, topic: bytes, partition: int, end: int) -> Iterator[_Batch]:
        """All of a partition, also what is not decided."""
        at = 0
        with socket.create_connection(self._broker) as broker:
            answers = _frames(broker)
            while at < end:
                _send(broker, _fetch(topic, partition, at))
                head = _topic(answer := next(answers), 12)[2]
                batches = list(_batches(_records(answer, head)[0]))
                if not batches:
                    return
                yield from batches
                at = batches[-1].last + 1


def _frames(peer: socket.socket) -> Iterator[bytes]:
    """Raises EOFError when the peer has ended."""
    with peer.makefile("rb") as stream:
        while True:
            yield _exactly(stream, struct.unpack(">i", _exactly(stream, 4))[0])


def _exactly(stream: BinaryIO, count: int) -> bytes:
    found = stream.read(count)
    if len(found) < count:
        raise EOFError
    return found


def _send(peer: socket.socket, frame: bytes) -> None:
    peer.sendall(struct.pack(">i", len(frame)) + frame)


def _is_of_committed(request: bytes) -> bool:
    """Whether the reader wants what is committed alone: behind the client's name and four sizes."""
    return request[10 + max(struct.unpack_from(">h", request, 8)[0], 0) + 16] == 1


def _with_old_fetch(answer: bytes, version: int) -> bytes:
    """ApiVersions, which says that Fetch is there up to the version that is read here."""
    found, at = bytearray(answer), 6
    if version >= 3:  # compact arrays, and tags behind each entry
        count, at = _varint(answer, at)
        count, size = count - 1, 7
    else:
        count, at, size = struct.unpack_from(">i", answer, at)[0], at + 4, 6
    for entry in range(at, at + count * size, size):
        if struct.unpack_from(">h", found, entry)[0] == _FETCH:
            struct.pack_into(">h", found, entry + 4, _FETCH_VERSION)
    return bytes(found)


def _fetch(topic: bytes, partition: int, offset: int) -> bytes:
    """A request for what is there from an offset on, committed or not."""
    return b"".join((
        struct.pack(">hhih", _FETCH, _FETCH_VERSION, 1, -1),
        struct.pack(">iiiib", -1, 100, 0, _BYTES, 0),
        struct.pack(">ih", 1, len(topic)), topic,
        struct.pack(">iiqi", 1, partition, offset, _BYTES),
    ))  # fmt: skip


def _topic(answer: bytes, at: int) -> tuple[bytes, int, int]:
    """Name, number of partitions, and where the first one begins."""
    (length,) = struct.unpack_from(">h", answer, at)
    at += 2 + length
    return answer[at - length : at], struct.unpack_from(">i", answer, at)[0], at + 4


def _records(answer: bytes, at: int) -> tuple[bytes, int]:
    """The records of a partition whose answer begins at `at`, and where it ends."""
    (aborted,) = struct.unpack_from(">i", answer, at + 22)
    at += 26 + 16 * max(aborted, 0)
    length = max(struct.unpack_from(">i", answer, at)[0], 0)
    return answer[at + 4 : at + 4 + length], at + 4 + length


def _batches(records: bytes) -> Iterator[_Batch]:
    """The whole ones: an answer may end in the midst of one."""
    at = 0
    while at + _HEADER <= len(records):
        first, length = struct.unpack_from(">qi", records, at)
        if at + 12 + length > len(records):
            return
        attributes, last = struct.unpack_from(">hi", records, at + 21)
        (producer,) = struct.unpack_from(">q", records, at + 43)
        marker = _marker(records, at + _HEADER) if attributes & _CONTROL else None
        yield _Batch(first, first + last, producer, bool(attributes & _TRANSACTIONAL), marker)
        at += 12 + length


def _marker(records: bytes, at: int) -> int:
    """The kind in a control record's key: behind length, attributes, two deltas, key length."""
    _, at = _varint(records, at)
    at += 1
    for _ in range(3):
        _, at = _varint(records, at)
    return int(struct.unpack_from(">hh", records, at)[1])


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """An unsigned one, and where it ends."""
    found = shift = 0
    while True:
        found |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return found, at
