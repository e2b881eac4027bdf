"""One blocking connection to a server of Canal's protocol: packets out, packets in."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
from dataclasses import dataclass, field
from typing import Any

from ray_canal.canal import packet as packets
from ray_canal.canal.generated import CanalProtocol_pb2 as pb
from ray_canal.errors import ConfigError, CorruptPacket

DEFAULT_PORT = 11111
READ_S = 60.0
_CONNECT_S = 10.0
KEEP_ALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""Seconds of silence, seconds between questions after that, and how many remain unanswered before
a connection is given up: a get without an end notices within a minute that the server's machine is
gone. Linux waits for two hours."""


def lacking(what: str) -> ConfigError:
    """Return what to raise where a call asks for what Canal's protocol cannot say."""
    return ConfigError(
        f"Canal's protocol has no {what}: connect by Ray or Arrow Flight (grpc://…), or set for "
        "the destination what may be set there"
    )


@dataclass(frozen=True, slots=True)
class Address:
    """Where the server is and how it is entered. `tls`: None for a plain connection."""

    host: str
    port: int
    username: str = ""
    password: str = field(default="", repr=False)
    tls: ssl.SSLContext | None = None

    @classmethod
    def parse(cls, text: str, **login: Any) -> Address:
        """`host`, `host:port` or `[v6]:port`. Raises ConfigError."""
        host, colon, port = text.rpartition(":")
        if not colon or text.endswith("]") or (":" in host and not host.startswith("[")):
            host, port = text, str(DEFAULT_PORT)
        if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
            raise ConfigError(f"address {text!r}: expected host:port")
        return cls(host.strip("[]"), int(port), **login)


def _keep_alive(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEP_ALIVE.items():
        if hasattr(socket, name):  # macOS names some of them otherwise
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class Wire:
    """One connection: packets out, packets in. Raises OSError, EOFError."""

    def __init__(self, address: Address) -> None:
        raw = socket.create_connection((address.host, address.port), timeout=_CONNECT_S)
        try:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _keep_alive(raw)
            if address.tls is not None:
                raw = address.tls.wrap_socket(raw, server_hostname=address.host)
        except BaseException:
            raw.close()
            raise
        self._socket = raw

    def send(self, data: bytes) -> None:
        self._socket.settimeout(READ_S)
        self._socket.sendall(data)

    def read(self, timeout_s: float | None = READ_S) -> pb.Packet:
        """The next packet. Raises CorruptPacket."""
        self._socket.settimeout(timeout_s)
        (size,) = struct.unpack(">i", self._exactly(packets.LENGTH_BYTES))
        if size < 0:
            raise CorruptPacket(f"the server announces a packet of {size} bytes")
        return packets.parsed_packet(self._exactly(size))

    def _exactly(self, size: int) -> bytes:
        data = bytearray(size)
        view, at = memoryview(data), 0
        while at < size:
            count = self._socket.recv_into(view[at:])
            if not count:
                raise EOFError("the server closed the connection")
            at += count
        return bytes(data)

    def interrupt(self) -> None:
        """Let who reads fail; from any thread."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.close()
