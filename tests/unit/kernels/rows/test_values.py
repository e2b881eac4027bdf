"""Decimals, temporal values, checksums and memory against Python's own arithmetic."""

from __future__ import annotations

import datetime as dt
import random
import zlib

import numpy as np
import pytest

from ray_canal.errors import UnsupportedEvent
from ray_canal.kernels.base import codes, memory
from ray_canal.kernels.base.crc import crc32
from ray_canal.kernels.base.jit import kernel
from ray_canal.kernels.rows import charset, temporal
from ray_canal.kernels.rows.decimals import decimal64, decimal_bytes, decimal_groups, decimal_wide
from ray_canal.types.charset_tables import table_of, tables

LEFT = {0: 0, 1: 1, 2: 1, 3: 2, 4: 2, 5: 3, 6: 3, 7: 4, 8: 4}


def buffer(data: bytes) -> np.ndarray:
    array = np.frombuffer(data, np.uint8).view()
    array.flags.writeable = False
    return array


def packed_decimal(digits: str, negative: bool, precision: int, scale: int) -> bytes:
    whole = digits[: precision - scale]
    head = len(whole) % 9
    groups = [whole[:head]] + [whole[k : k + 9] for k in range(head, len(whole), 9)]
    fraction = digits[precision - scale :]
    groups += [fraction[k : k + 9] for k in range(0, len(fraction), 9)]
    data = b"".join(int(g).to_bytes(4 if len(g) == 9 else LEFT[len(g)], "big") for g in groups if g)
    data = bytes((data[0] ^ 0x80,)) + data[1:]
    return bytes(b ^ 0xFF for b in data) if negative else data


@pytest.mark.parametrize(
    ("precision", "scale"), [(1, 0), (5, 5), (9, 0), (10, 2), (18, 9), (19, 1), (38, 10), (65, 30)]
)
def test_decimals(precision: int, scale: int) -> None:
    chosen = random.Random(precision)
    for _ in range(20):
        digits = "".join(chosen.choice("0123456789") for _ in range(precision))
        negative = chosen.random() < 0.5 and int(digits) > 0
        data = packed_decimal(digits, negative, precision, scale)
        assert len(data) == decimal_bytes(precision, scale)
        number = -int(digits) if negative else int(digits)
        if precision <= 18:
            assert decimal64(buffer(data), 0, decimal_groups(precision, scale)) == (number, True)
        limbs = 4 if precision <= 38 else 8
        target = np.zeros(4 * limbs, np.uint8)
        assert decimal_wide(buffer(data), 0, precision, scale, target, 0, limbs)
        assert int.from_bytes(target.tobytes(), "little", signed=True) == number


def test_impossible_decimal() -> None:
    data = buffer(b"\xff\xff\xff\xff\xff")
    assert not decimal64(data, 0, decimal_groups(10, 2))[1]


def test_every_day_of_the_calendar() -> None:
    epoch = dt.date(1970, 1, 1).toordinal()
    for ordinal in [*range(1, 800), *range(693_000, 693_800), *range(730_000, 731_500)]:
        day = dt.date.fromordinal(ordinal)
        packed = day.year << 9 | day.month << 5 | day.day
        assert temporal.date_slot(packed) == (ordinal - epoch, True), day


@pytest.mark.parametrize(
    "date", [(0, 0, 0), (2023, 2, 29), (1900, 2, 29), (2023, 4, 31), (0, 1, 1)]
)
def test_dates_of_no_calendar_keep_their_digits(date: tuple[int, int, int]) -> None:
    packed = date[0] << 9 | date[1] << 5 | date[2]
    assert temporal.date_slot(packed) == (codes.IRREGULAR32 + packed, False)


@pytest.mark.parametrize(
    ("data", "micros"),
    [
        ("7fffff", -1_000_000), ("800001", 1_000_000), ("800000", 0),
        ("7ffffff6", -100_000), ("7fffff9c", -1_000_000 + 0), ("7ffffffc18", -100_000),
        ("7fffffffffff", -1), ("800000000001", 1), ("7ffffffe7960", -100_000),
    ],
)  # fmt: skip
def test_time_with_fractions(data: str, micros: int) -> None:
    raw = bytes.fromhex(data)
    slot, valid = temporal.time_new(buffer(raw), 0, len(raw) - 3)
    if data == "7fffff9c":  # a fraction of 100 hundredths is none
        assert valid == -1
    else:
        assert (slot, valid) == (micros, 1)


def test_old_formats() -> None:
    micros = (dt.datetime(2024, 2, 29, 12, 34, 56) - dt.datetime(1970, 1, 1)) // dt.timedelta(
        microseconds=1
    )
    assert temporal.datetime_old(np.int64(20240229123456)) == (micros, 1)
    assert temporal.datetime_old(np.int64(0)) == (codes.IRREGULAR64, 0)
    assert temporal.datetime_old(np.int64(-1))[1] == -1
    assert temporal.time_old(np.int64(-8385959)) == (-3020399000000, 1)


def test_crc32() -> None:
    data = random.Random(1).randbytes(1000)
    for start, end in ((0, 0), (0, 1), (3, 18), (5, 21), (0, 1000), (999, 1000)):
        assert crc32(buffer(data), start, end) == zlib.crc32(data[start:end])


@kernel
def touch(source, at, target):  # type: ignore[no-untyped-def]
    memory.store64(target, at, memory.load64(source, at))
    memory.copy(target, 21, source, at, 4)
    return (
        memory.load16(source, at),
        memory.load32(source, at),
        memory.load64(source, at),
        memory.load_be(source, at, 3),
    )


def test_memory() -> None:
    source = buffer(bytes(range(200, 232)))
    for at in range(8):
        word = source[at : at + 8].tobytes()
        target = np.zeros(40, np.uint8)
        assert touch(source, at, target) == (
            int.from_bytes(word[:2], "little"),
            int.from_bytes(word[:4], "little"),
            int.from_bytes(word, "little", signed=True),
            int.from_bytes(word[:3], "big"),
        )
        assert target.tobytes() == bytes(at) + word + bytes(13 - at) + word[:4] + bytes(15)


TEXTS = {
    "latin1": "café €", "cp1251": "Привет", "koi8r": "Привет", "greek": "Καλημέρα",
    "gbk": "中文abc",
    "gb2312": "中文", "big5": "中文字", "sjis": "日本語ｶﾅ", "cp932": "日本語①", "euckr": "한국어",
    "ujis": "日本語ｶ", "gb18030": "中文😀€ab", "ucs2": "中文", "utf16": "中😀x", "utf16le": "中😀x",
    "utf32": "中😀x", "tis620": "สวัสดี", "hebrew": "שלום", "latin2": "žluťoučký",
}  # fmt: skip


@pytest.mark.parametrize("name", TEXTS)
def test_character_sets(name: str) -> None:
    from ray_canal.types.charsets import CHARSETS

    text = TEXTS[name]
    data = buffer(text.encode(CHARSETS[name][0]))
    kind, base = table_of(name)
    wanted = text.encode()
    size = charset.utf8_bytes(data, 0, data.size, kind, tables(), base)
    assert size == len(wanted)
    target = np.zeros(size, np.uint8)
    assert charset.to_utf8(data, 0, data.size, kind, tables(), base, target, 0) == size
    assert target.tobytes() == wanted


def test_broken_text_becomes_replacement_characters() -> None:
    kind, base = table_of("gbk")
    data = buffer(b"a\xd6")
    target = np.zeros(4, np.uint8)
    assert charset.utf8_bytes(data, 0, 2, kind, tables(), base) == 4
    charset.to_utf8(data, 0, 2, kind, tables(), base, target, 0)
    assert target.tobytes().decode() == "a\ufffd"


def test_character_set_without_a_table() -> None:
    with pytest.raises(UnsupportedEvent, match="klingon"):
        table_of("klingon")
