"""INTVAR, RAND and USER_VAR bodies: real ones of MySQL 9.7 with Canal's text, and made ones."""

from __future__ import annotations

import random
import struct
from decimal import Decimal

import pytest

from ray_canal.binlog.statement_vars import text_of
from ray_canal.errors import CorruptEvent

INTVAR, RAND, USER_VAR = 5, 13, 14


@pytest.mark.parametrize(
    ("kind", "body", "text"),
    [
        (INTVAR, "02 01 00 00 00 00 00 00 00", "SET INSERT_ID = 1"),
        (INTVAR, "01 02 00 00 00 00 00 00 00", "SET INSERT_ID = 2"),
        (
            RAND,
            "03 97 62 23 00 00 00 00 83 9c 1b 00 00 00 00 00",
            "SET SESSION rand_seed1 = 593663747 , rand_seed2 = 1809539",
        ),
        (
            USER_VAR,
            "02 00 00 00 75 76 00 00 ff 00 00 00 06 00 00 00 e4 b8 ad e6 96 87",
            "SET @uv := '中文'",
        ),
        (
            USER_VAR,
            "01 00 00 00 6e 00 02 ff 00 00 00 08 00 00 00 05 00 00 00 00 00 00 00 00",
            "SET @n := 5",
        ),
        (
            USER_VAR,
            "01 00 00 00 64 00 04 ff 00 00 00 04 00 00 00 02 01 81 05",
            "SET @d := 1.5",
        ),
        (USER_VAR, "03 00 00 00 6e 75 6c 01", "SET @nul := NULL"),
        (
            USER_VAR,
            "03 00 00 00 64 65 63 00 04 ff 00 00 00 07 00 00 00 0b 02 80 00 00 01 19",
            "SET @dec := 1.25",
        ),
    ],
)
def test_real_events_as_canal_prints_them(kind: int, body: str, text: str) -> None:
    assert text_of(kind, bytes.fromhex(body)) == text


def user_var(value_type: int, value: bytes, collation: int = 255, flags: bytes = b"") -> bytes:
    head = struct.pack("<I1sBBII", 1, b"v", 0, value_type, collation, len(value))
    return head + value + flags


def test_text_is_in_its_own_charset_and_can_be_run_again() -> None:
    assert text_of(USER_VAR, user_var(0, "中文".encode("gbk"), 28)) == "SET @v := '中文'"
    assert text_of(USER_VAR, user_var(0, b"it's \\n")) == r"SET @v := 'it''s \\n'"


def test_integers_signed_and_unsigned() -> None:
    body = user_var(2, b"\xff" * 8)
    assert text_of(USER_VAR, body) == "SET @v := -1"
    assert text_of(USER_VAR, body + b"\x01") == f"SET @v := {2**64 - 1}"
    assert text_of(USER_VAR, user_var(1, struct.pack("<d", 1e7))) == "SET @v := 1.0E7"


def packed_decimal(digits: str, scale: int, negative: bool) -> bytes:
    """MySQL's binary form, made the other way round: by whole groups of nine digits."""
    whole, fraction = digits[: len(digits) - scale], digits[len(digits) - scale :]
    first = len(whole) % 9
    parts = [whole[:first], *(whole[i : i + 9] for i in range(first, len(whole), 9))]
    parts += [fraction[i : i + 9] for i in range(0, len(fraction), 9)]
    sizes = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
    data = b"".join(int(p).to_bytes(sizes[len(p)], "big") for p in parts if p)
    data = bytes((data[0] ^ 0x80, *data[1:]))
    return bytes(byte ^ 0xFF for byte in data) if negative else data


def test_decimals_of_every_size() -> None:
    generator = random.Random(3)
    for _ in range(300):
        precision = generator.randint(1, 81)
        scale = generator.randint(0, min(precision, 38))
        digits = "".join(generator.choice("0123456789") for _ in range(precision))
        negative = generator.random() < 0.5
        data = packed_decimal(digits, scale, negative)
        body = user_var(4, bytes((precision, scale)) + data)
        text = text_of(USER_VAR, body).removeprefix("SET @v := ")
        assert Decimal(text) == Decimal(f"{'-' * negative}{digits}E-{scale}")
        assert len(text.partition(".")[2]) == scale


def test_short_and_impossible_bodies_are_corrupt() -> None:
    good = user_var(4, bytes((11, 2)) + bytes(5))
    for body in (good[:k] for k in range(len(good))):
        with pytest.raises(CorruptEvent):
            text_of(USER_VAR, body)
    for body in (user_var(3, b""), user_var(4, bytes((2, 9, 0, 0))), user_var(2, b"abc")):
        with pytest.raises(CorruptEvent):
            text_of(USER_VAR, body)
    for kind, size in ((INTVAR, 9), (RAND, 16)):
        with pytest.raises(CorruptEvent, match="too short"):
            text_of(kind, bytes(size - 1))
