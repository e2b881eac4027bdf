"""UUID and INET texts; the INET6 cases are what MariaDB 10.11 printed."""

from __future__ import annotations

import ipaddress
import random
import uuid

import numpy as np
import pytest

from ray_canal.kernels.rows import wire
from ray_canal.kernels.rows.addresses import address_bytes, address_text


def text(data: bytes, read: int) -> str:
    stored = np.frombuffer(data.rstrip(b"\0") + b"\xee", np.uint8)
    stored.flags.writeable = False
    count = len(stored) - 1
    most = address_bytes(read, count)
    out = np.zeros(most + 4, np.uint8)
    used = address_text(stored, 0, count, read, out, 0)
    assert used <= most
    return out[:used].tobytes().decode()


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("::1", "::1"),
        ("::", "::"),
        ("::0.0.1.2", "::102"),
        ("::1:2", "::0.1.0.2"),
        ("1::", "1::"),
        ("0:0:1:0:0:0:1:0", "0:0:1::1:0"),
        ("1:0:1:0:1:0:1:0", "1::1:0:1:0:1:0"),
        ("0:1:1:1:1:1:1:1", "::1:1:1:1:1:1:1"),
        ("::ffff:0:1", "::ffff:0.0.0.1"),
        ("::ffff:1.2.3.4", "::ffff:1.2.3.4"),
        ("::1.2.3.4", "::1.2.3.4"),
        ("1:0:0:1:0:0:1:1", "1::1:0:0:1:1"),
        ("::1:1:1", "::1:1:1"),
        ("1:1:1:1:1:1:0:0", "1:1:1:1:1:1::"),
        ("::ffff:0:0:0", "::ffff:0:0:0"),
        ("2001:db8::ff00:42:8329", "2001:db8::ff00:42:8329"),
        ("1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7:8"),
    ],
)
def test_inet6(given: str, wanted: str) -> None:
    assert text(ipaddress.IPv6Address(given).packed, wire.READ_INET6) == wanted


def test_random() -> None:
    rng = random.Random(3)
    for _ in range(500):
        data = bytearray(rng.randbytes(16))
        for k in range(0, 16, 2):
            if rng.random() < 0.4:
                data[k : k + 2] = b"\0\0"
        assert text(bytes(data), wire.READ_UUID) == str(uuid.UUID(bytes=bytes(data)))
        assert text(bytes(data[:4]), wire.READ_INET4) == str(ipaddress.IPv4Address(bytes(data[:4])))
        shown = text(bytes(data), wire.READ_INET6)
        assert ipaddress.IPv6Address(shown).packed == bytes(data)


def test_too_long() -> None:
    for read, size in ((wire.READ_UUID, 16), (wire.READ_INET4, 4), (wire.READ_INET6, 16)):
        assert address_bytes(read, size) > 0
        assert address_bytes(read, size + 1) == wire.BAD_PACKED
