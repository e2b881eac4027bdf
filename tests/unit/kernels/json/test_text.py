"""MySQL's binary JSON as text; hostile bytes end in an error code, never outside the buffer."""

from __future__ import annotations

import base64
import random
import struct

import numpy as np
import pytest

from ray_canal.kernels.json.scalars import CORRUPT, NO_SPACE
from ray_canal.kernels.json.text import DEPTH_MAX, STACK_FIELDS, json_text


def text(document: bytes, space: int = 4096, behind: int = 1) -> str | int:
    """`behind`: bytes that follow the document, as other rows do."""
    source = np.frombuffer(b"\xaa\xaa" + document + b"\xaa" * behind, np.uint8)
    out = np.full(space + 8, 0xEE, np.uint8)
    stack = np.empty((DEPTH_MAX + 1, STACK_FIELDS), np.int64)
    end = json_text(source, 2, 2 + len(document), out, 4, 4 + space, stack)
    assert (out[:4] == 0xEE).all()
    assert (out[4 + space :] == 0xEE).all(), "wrote behind its end"
    return int(end) if end < 0 else out[4:end].tobytes().decode(errors="replace")


def string(value: str) -> bytes:
    data = value.encode()
    return bytes([12, len(data)]) + data


def array(*values: tuple[int, bytes]) -> bytes:
    """A small array of (type, two inline bytes)."""
    body = b"".join(bytes([kind]) + inline for kind, inline in values)
    return bytes([2]) + struct.pack("<HH", len(values), 4 + len(body)) + body


def small_object(members: list[tuple[str, int, bytes]]) -> bytes:
    """A small object of (key, type, body), in this order."""
    keys = [key.encode() for key, _, _ in members]
    at = 4 + 7 * len(members)
    heads = values = bodies = b""
    for key in keys:
        heads += struct.pack("<HH", at, len(key))
        at += len(key)
    for _, kind, body in members:
        is_inline = kind in (4, 5, 6)
        values += bytes([kind]) + (body.ljust(2, b"\0") if is_inline else struct.pack("<H", at))
        bodies += b"" if is_inline else body
        at += 0 if is_inline else len(body)
    whole = heads + values + b"".join(keys) + bodies
    return b"\0" + struct.pack("<HH", len(members), 4 + len(whole)) + whole


def member(rng: random.Random) -> tuple[tuple[str, int, bytes], str]:
    """Of an object, and its text."""
    key = "".join(rng.choices("kéy 1", k=rng.randrange(1, 40)))
    kind = rng.choice([4, 5, 6, 7, 8, 12, 12])
    if kind == 4:
        number = rng.randrange(3)
        return (key, kind, bytes([number])), f'"{key}": {["null", "true", "false"][number]}'
    if kind == 12:
        plain = "".join(rng.choices("abc d/é", k=rng.randrange(40)))
        cut = rng.randrange(len(plain) + 1)
        escaped = rng.choice(["", "", '"', "\\"])
        value = plain[:cut] + escaped + plain[cut:]
        shown = plain[:cut] + (f"\\{escaped}" if escaped else "") + plain[cut:]
        return (key, kind, string(value)[1:]), f'"{key}": "{shown}"'
    code, low, high = {
        5: ("<h", -(2**15), 2**15), 6: ("<H", 0, 2**16), 7: ("<i", -(2**31), 2**31),
        8: ("<I", 0, 2**32),
    }[kind]  # fmt: skip
    number = rng.choice([low, high - 1, 0, rng.randrange(low, high), rng.randrange(high) % 1000])
    return (key, kind, struct.pack(code, number)), f'"{key}": {number}'


OBJECT = bytes([0]) + struct.pack("<HH", 1, 12) + struct.pack("<HHBh", 11, 1, 5, -3) + b"k"


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (b"\x04\x00", "null"),
        (b"\x04\x01", "true"),
        (string('a"\\\n\x01/é😀'), '"a\\"\\\\\\n\\u0001/é😀"'),
        (array((5, b"\xfe\xff"), (4, b"\x02\x00"), (6, b"\xff\xff")), "[-2, false, 65535]"),
        (array(), "[]"),
        (OBJECT, '{"k": -3}'),
        (b"\x09" + struct.pack("<q", -(2**63)), "-9223372036854775808"),
        (b"\x0a" + struct.pack("<Q", 2**64 - 1), "18446744073709551615"),
        (b"\x0b" + struct.pack("<d", 1.5), "1.5"),
        (b"\x0f\xf6\x04\x03\x02\x81\x19", "1.25"),
        (b"\x0f\x10\x02\x01\x02", '"base64:type16:AQI="'),
        (b"", "null"),
    ],
)
def test_documents(document: bytes, expected: str) -> None:
    assert text(document) == expected


def test_objects_of_short_values() -> None:
    rng = random.Random(11)
    for _ in range(500):
        members = [member(rng) for _ in range(rng.randrange(5))]
        document = small_object([each for each, _ in members])
        wanted = "{" + ", ".join(shown for _, shown in members) + "}"
        for behind in (0, 7, 31, 64):
            assert text(document, behind=behind) == wanted
        size = len(wanted.encode())
        for space in range(max(0, size - 40), size + 40):
            assert text(document, space, 64) in (NO_SPACE, wanted)


def test_temporal() -> None:
    packed = (((2024 * 13 + 1) << 5 | 2) << 17 | (3 << 12 | 4 << 6 | 5)) << 24 | 6
    body = struct.pack("<q", packed)
    assert text(b"\x0f\x0c\x08" + body) == '"2024-01-02 03:04:05.000006"'
    assert text(b"\x0f\x0a\x08" + body) == '"2024-01-02"'


def test_too_little_space_is_told() -> None:
    document = array(*[(5, b"\x01\x00")] * 50)
    whole = text(document)
    assert isinstance(whole, str)
    for space in range(len(whole) + 1):
        assert text(document, space) in (NO_SPACE, whole)


def test_truncation_is_told() -> None:
    for document in (OBJECT, string("hello"), array((5, b"\x01\x00"), (5, b"\x02\x00"))):
        for size in range(1, len(document)):
            assert text(document[:size]) == CORRUPT


def test_too_deep_is_corrupt() -> None:
    document = array((4, b"\x00\x00"))[1:]
    for _ in range(120):
        inner = document
        document = struct.pack("<HHBH", 1, 7 + len(inner), 2, 7) + inner
    assert text(b"\x02" + document) == CORRUPT


def test_random_bytes() -> None:
    rng = random.Random(7)
    for _ in range(5_000):
        document = bytearray(rng.choice([OBJECT, array(*[(5, b"\x01\x00")] * 9), string("abc")]))
        for _ in range(rng.randrange(1, 6)):
            document[rng.randrange(len(document))] = rng.randrange(256)
        text(bytes(document), 600)


def test_text_that_no_document_has_is_corrupt() -> None:
    """Both elements of each array are the same inner one: 605 bytes, 2^60 elements of text."""
    document = struct.pack("<HH", 0, 4)
    for _ in range(60):
        element = struct.pack("<BH", 2, 10)
        document = struct.pack("<HH", 2, 10 + len(document)) + 2 * element + document
    assert text(b"\x02" + document, 100) == NO_SPACE
    assert text(b"\x02" + document, 20_000) == CORRUPT


@pytest.mark.parametrize("size", [0, 1, 56, 57, 58, 113, 114, 115, 1000])
def test_opaque_bytes_are_in_lines_of_76_characters(size: int) -> None:
    """As MySQL's encoder has them, so that a streamed document is the one that SELECT shows."""
    data = bytes(range(256)) * 4
    head = bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7])
    shown = base64.b64encode(data[:size]).decode()
    lines = "\\n".join(shown[at : at + 76] for at in range(0, len(shown), 76))
    wanted = f'"base64:type15:{lines}"'
    document = b"\x0f\x0f" + head + data[:size]
    assert text(document, 2000) == wanted
    assert text(document, len(wanted) - 1) == NO_SPACE


def test_what_grows_most_is_no_corruption() -> None:
    for document in (string("\x01" * 100), array(*[(5, b"\x00\x80")] * 100)):
        assert len(str(text(document, 50_000))) > 2 * len(document)
