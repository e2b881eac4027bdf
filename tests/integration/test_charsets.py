"""Every code of every character set, by the server's CONVERT and by our kernel."""

from __future__ import annotations

import random

import numpy as np
import pytest

from ray_canal.kernels.rows import charset as k
from ray_canal.types.charset_tables import table_of, tables
from ray_canal.types.charsets import CHARSETS, canonical, decode_text
from tests.charset_truth import NOT_TABLES, UNDEFINED, Truth
from tests.servers import Server

WIDE = ["ucs2", "utf16", "utf16le", "utf32"]


def ours(charset: str, data: bytes) -> str:
    kind, offset = table_of(charset)
    source = np.frombuffer(data, np.uint8)
    source.flags.writeable = False
    out = np.zeros(4 * len(data) + 4, np.uint8)
    used = k.to_utf8(source, 0, len(data), kind, tables(), offset, out, 0)
    assert used == k.utf8_bytes(source, 0, len(data), kind, tables(), offset)
    return out[:used].tobytes().decode()


@pytest.mark.parametrize(
    "server",
    ["mysql97", *(pytest.param(kind, marks=pytest.mark.soak) for kind in ("mysql56", "mariadb"))],
    indirect=True,
)
def test_every_code(server: Server) -> None:
    truth = Truth(server)
    known = {canonical(charset) for charset in truth.charsets}
    assert known <= CHARSETS.keys()
    for charset in sorted(known - NOT_TABLES):
        points = truth.points(charset)
        wrong = {
            code.hex(): (f"{point:04X}", ours(charset, code))
            for code, point in points.items()
            if ours(charset, code)[:1] != chr(point)
        }
        # What one server lacks another may have; then the other's answer stands.
        lacks = [code for code, (point, _) in wrong.items() if int(point, 16) == UNDEFINED]
        assert len(wrong) == len(lacks), (charset, dict(list(wrong.items())[:5]))
        assert not lacks, (charset, lacks[:5])
        for code in random.Random(charset).sample(sorted(points), 50):
            if points[code] != UNDEFINED:
                assert decode_text(code, charset) == chr(points[code])


@pytest.mark.parametrize("charset", WIDE)
def test_wide_sets(server: Server, charset: str) -> None:
    truth, rng = Truth(server), random.Random(charset)
    top = 0x10000 if charset == "ucs2" else 0x110000
    codec = CHARSETS[charset][0]
    for _ in range(40):
        points = [rng.choice([rng.randrange(1, top), rng.randrange(1, 0x3000)]) for _ in range(20)]
        text = "".join(chr(p) for p in points if not 0xD800 <= p < 0xE000)
        assert truth.text(charset, text.encode(codec)) == text
        assert ours(charset, text.encode(codec)) == text
