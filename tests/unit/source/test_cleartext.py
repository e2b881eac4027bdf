"""A server, or who poses as it, that asks for the password in clear text."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from ray_canal.config import SourceConfig
from ray_canal.errors import AuthenticationFailed
from ray_canal.source.connection import connect

SECRET = "S3cret-of-the-test"
_CAPABILITIES = 0x00080000 | 0x00008000 | 0x00000200 | 0x00000001  # PLUGIN_AUTH, 4.1, no TLS


def _packet(number: int, body: bytes) -> bytes:
    return struct.pack("<I", len(body))[:3] + bytes([number]) + body


def _greeting() -> bytes:
    low, high = _CAPABILITIES & 0xFFFF, _CAPABILITIES >> 16
    return (
        b"\x0a8.0.99\x00" + struct.pack("<I", 7) + b"12345678\x00" + struct.pack("<H", low)
        + b"\x21" + struct.pack("<HH", 2, high) + bytes([21]) + bytes(10) + b"123456789012\x00"
        + b"mysql_native_password\x00"
    )  # fmt: skip


@contextlib.contextmanager
def asking_for(plugin: bytes, heard: bytearray) -> Iterator[str]:
    """A server that switches the authentication; `heard`: what it is told."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        peer, _ = listener.accept()
        peer.settimeout(5)
        with peer, contextlib.suppress(OSError):
            peer.sendall(_packet(0, _greeting()))
            heard.extend(peer.recv(4096))
            peer.sendall(_packet(2, b"\xfe" + plugin + b"\x00\x02Password: "))
            while data := peer.recv(4096):
                heard.extend(data)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.close()
        thread.join(10)


@pytest.mark.parametrize("plugin", ["mysql_clear_password", "dialog"])
@pytest.mark.parametrize("mode", ["preferred", "disabled"])
def test_no_password_is_sent_in_clear_text(plugin: str, mode: str) -> None:
    """C7: also not where TLS is only preferred, and the server says that it has none."""
    heard = bytearray()
    with asking_for(plugin.encode(), heard) as address:
        config = SourceConfig.model_validate(
            {"address": address, "username": "u", "password": SECRET, "tls": {"mode": mode}}
        )
        with pytest.raises(AuthenticationFailed, match=rf"{plugin}.*source\.tls\.mode") as caught:
            connect(config)
    assert b"u\x00" in heard
    assert SECRET.encode() not in heard
    assert SECRET not in str(caught.value)
