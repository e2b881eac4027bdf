"""What a server makes of every code of a character set: the truth for types/charset_data.py.

`python -m tests.charset_truth` asks MySQL 9.7, MySQL 5.6 and MariaDB and writes that module: what
differs from the Python codec that stands nearest. The servers never contradict each other (checked
here); what one lacks another may have (gb18030 is MySQL 5.7's and newer).
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ray_canal.types.charsets import CHARSETS
from tests.servers import KINDS, Server, start

UNDEFINED = 0xFFFD
NOT_TABLES = {"binary", "ascii", "utf8mb4", "utf8mb3", "ucs2", "utf16", "utf16le", "utf32"}
_BATCH = 4000


class Truth:
    """Conversions by one server."""

    def __init__(self, server: Server) -> None:
        self.cursor = server.connect().cursor()
        self.cursor.execute("set sql_mode=''")
        self.cursor.execute("create database if not exists charset_truth")
        self.cursor.execute("use charset_truth")
        self.cursor.execute("drop table if exists codes")
        self.cursor.execute("create table codes (b varbinary(4)) engine=memory")
        self.cursor.execute("select character_set_name from information_schema.character_sets")
        self.charsets = {str(row[0]) for row in self.cursor.fetchall()}

    def points(self, charset: str) -> dict[bytes, int]:
        """Every well-formed code of a character set, and its code point or UNDEFINED."""
        singles = self._ask(charset, [bytes([b]) for b in range(256)])
        if CHARSETS[charset][1] == 1:
            return singles
        leads = [b for b in range(0x80, 256) if singles[bytes([b])] == UNDEFINED]
        found = dict(singles)
        pairs = [bytes([a, b]) for a in leads for b in range(0x30, 256)]
        found.update(self._ask(charset, pairs))
        if charset in ("ujis", "eucjpms"):
            threes = [bytes([0x8F, a, b]) for a in range(0xA1, 255) for b in range(0xA1, 255)]
            found.update(self._ask(charset, threes))
        if charset == "gb18030":
            fours = [bytes([a, b, c, d]) for a in (0x81, 0x82, 0x83, 0x84, 0x90, 0xE3)
                     for b in range(0x30, 0x3A) for c in range(0x81, 255)
                     for d in range(0x30, 0x3A)]  # fmt: skip
            found.update(self._ask(charset, fours))
        return found

    def text(self, charset: str, data: bytes) -> str | None:
        """A text of several characters."""
        text = f"convert(x'{data.hex()}' using {charset})"
        self.cursor.execute(f"select convert({text} using utf8mb4)")
        [(text,)] = self.cursor.fetchall()
        return None if text is None else str(text)

    def _ask(self, charset: str, codes: list[bytes]) -> dict[bytes, int]:
        self.cursor.execute("truncate codes")
        for low in range(0, len(codes), _BATCH):
            values = ",".join(f"(x'{code.hex()}')" for code in codes[low : low + _BATCH])
            self.cursor.execute(f"insert into codes values {values}")
        convert = f"convert(convert(b using {charset}) using utf32)"
        self.cursor.execute(f"select b, hex({convert}) from codes")
        return {bytes(code): _point(bytes(code), text) for code, text in self.cursor.fetchall()}


def _point(code: bytes, text: str | None) -> int:
    """A server shows what a character set leaves undefined as '?'."""
    if not text or len(text) != 8 or (int(text, 16) == ord("?") and code != b"?"):
        return UNDEFINED
    return int(text, 16)


def _by_codec(code: bytes, codec: str) -> int:
    text = code.decode(codec, "replace")
    return ord(text) if len(text) == 1 else UNDEFINED


def differences(charset: str, points: dict[bytes, int]) -> list[tuple[int, int, int]]:
    """Runs (first code, count, first code point) in which the codec differs from the server."""
    runs: list[tuple[int, int, int]] = []
    for code in sorted(points, key=lambda c: (len(c), c)):
        point, number = points[code], int.from_bytes(code, "big")
        if point == _by_codec(code, CHARSETS[charset][0]):
            continue
        first, count, start = runs[-1] if runs else (0, 0, 0)
        step = 0 if point == UNDEFINED else count
        if count and number == first + count and point == start + step:
            runs[-1] = (first, count + 1, start)
        else:
            runs.append((number, 1, point))
    return runs


def merged(truths: Iterable[dict[bytes, int]]) -> dict[bytes, int]:
    """All servers' answers; ValueError where two contradict each other."""
    found: dict[bytes, int] = {}
    for points in truths:
        for code, point in points.items():
            known = found.get(code, UNDEFINED)
            if UNDEFINED not in (known, point) and known != point:
                raise ValueError(f"{code.hex()}: U+{known:04X} and U+{point:04X}")
            found[code] = point if known == UNDEFINED else known
    return found


HEAD = '''"""Where MySQL's character sets differ from the Python codecs of types/charsets.py.

Made by `python -m tests.charset_truth` from the answers of MySQL 9.7, MySQL 5.6 and MariaDB 10.11
to CONVERT(... USING utf32) for every code; tests/integration/test_charsets.py asks them again.
Runs of (first code, count, first code point); codes are big-endian numbers of their bytes, code
points count up with them, and 0xFFFD stays: the code is undefined there.
"""

from __future__ import annotations

from typing import Final

DIFFERENCES: Final[dict[str, tuple[tuple[int, int, int], ...]]] = {
'''


def module(truths: list[Any]) -> str:
    """The text of types/charset_data.py."""
    lines = [HEAD]
    for charset in CHARSETS:
        if charset in NOT_TABLES:
            continue
        points = merged(t.points(charset) for t in truths if charset in t.charsets)
        runs = differences(charset, points)
        if not runs:
            continue
        lines.append(f'    "{charset}": (\n')
        line = "       "
        for code, count, point in runs:
            item = f" (0x{code:X}, {count}, 0x{point:X}),"
            if len(line + item) > 100:
                lines.append(line + "\n")
                line = "       "
            line += item
        lines.append(line + "\n    ),\n")
    lines.append("}  # fmt: skip\n")
    return "".join(lines)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        truths = []
        running = [start(kind, Path(folder) / kind) for kind in KINDS]
        servers = [each.__enter__() for each in running]
        try:
            truths = [Truth(server) for server in servers]
            sys.stdout.write(module(truths))
        finally:
            for each in running:
                each.__exit__(None, None, None)


if __name__ == "__main__":
    main()
