"""Character sets: collation number -> MySQL's name, name -> Python codec and bytes per character.

Numbers are information_schema.COLLATIONS' ids of MySQL 5.6 to 9.x and of MariaDB 10 and 11.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from ray_canal.errors import UnsupportedEvent
from ray_canal.types.charset_data import DIFFERENCES

# charset: (the nearest Python codec, "" for none; most bytes per character). charset_data.py says
# where MySQL differs from it.
CHARSETS: Final[dict[str, tuple[str, int]]] = {
    "binary": ("", 1), "ascii": ("ascii", 1), "utf8mb4": ("utf-8", 4), "utf8mb3": ("utf-8", 3),
    "latin1": ("cp1252", 1), "latin2": ("iso8859-2", 1), "latin5": ("iso8859-9", 1),
    "latin7": ("iso8859-13", 1), "cp850": ("cp850", 1), "cp852": ("cp852", 1),
    "cp866": ("cp866", 1), "cp1250": ("cp1250", 1), "cp1251": ("cp1251", 1),
    "cp1256": ("cp1256", 1), "cp1257": ("cp1257", 1), "koi8r": ("koi8-r", 1),
    "koi8u": ("koi8-u", 1), "greek": ("iso8859-7", 1), "hebrew": ("iso8859-8", 1),
    "tis620": ("tis-620", 1), "macce": ("mac-latin2", 1), "macroman": ("mac-roman", 1),
    "hp8": ("hp-roman8", 1), "big5": ("big5", 2), "gbk": ("gbk", 2), "gb2312": ("gb2312", 2),
    "sjis": ("shift_jis", 2), "cp932": ("cp932", 2), "euckr": ("cp949", 2),
    "ujis": ("euc-jp", 3), "eucjpms": ("euc-jp", 3), "gb18030": ("gb18030", 4),
    "ucs2": ("utf-16-be", 2), "utf16": ("utf-16-be", 4), "utf16le": ("utf-16-le", 4),
    "utf32": ("utf-32-be", 4),
    "dec8": ("ascii", 1), "swe7": ("ascii", 1), "armscii8": ("ascii", 1),
    "geostd8": ("ascii", 1), "keybcs2": ("ascii", 1),
}  # fmt: skip

_IDS: Final[dict[str, tuple[int, ...]]] = {
    "big5": (1, 84), "latin2": (2, 9, 21, 27, 77), "dec8": (3, 69), "cp850": (4, 80),
    "latin1": (5, 8, 15, 31, 47, 48, 49, 94), "hp8": (6, 72), "koi8r": (7, 74),
    "swe7": (10, 82), "ascii": (11, 65), "ujis": (12, 91), "sjis": (13, 88),
    "cp1251": (14, 23, 50, 51, 52), "hebrew": (16, 71), "tis620": (18, 89), "euckr": (19, 85),
    "latin7": (20, 41, 42, 79), "koi8u": (22, 75), "gb2312": (24, 86), "greek": (25, 70),
    "cp1250": (26, 34, 44, 66, 99), "gbk": (28, 87), "cp1257": (29, 58, 59), "latin5": (30, 78),
    "armscii8": (32, 64), "cp866": (36, 68), "keybcs2": (37, 73), "macce": (38, 43),
    "macroman": (39, 53), "cp852": (40, 81), "utf16le": (56, 62), "cp1256": (57, 67),
    "binary": (63,), "geostd8": (92, 93), "cp932": (95, 96), "eucjpms": (97, 98),
    "utf8mb3": (33, 76, 83, *range(192, 216), 223), "utf8mb4": (45, 46, *range(224, 248)),
    "ucs2": (35, 90, *range(128, 152), 159), "utf16": (54, 55, *range(101, 125)),
    "utf32": (60, 61, *range(160, 184)), "gb18030": (248, 249, 250),
}  # fmt: skip
_BY_ID: Final = {number: name for name, numbers in _IDS.items() for number in numbers}

_UNDEFINED: Final = "\ufffd"
_MYSQL_UTF8MB4: Final = range(255, 324)
# MariaDB: Croatian, Myanmar and Thai collations from 576 on; the NO PAD twin of a collation is 1024
# higher; from 2048 on UCA 14.0.0, 256 numbers per character set.
_MARIADB_MIXED: Final = {
    range(576, 608): "utf8mb3",
    range(608, 640): "utf8mb4",
    range(640, 672): "ucs2",
    range(672, 736): "utf16",
    range(736, 768): "utf32",
}
_MARIADB_NOPAD: Final = 1024
_MARIADB_UCA1400: Final = 2048
_UCA1400_CHARSETS: Final = ("utf8mb3", "utf8mb4", "ucs2", "utf16", "utf32")


def charset_of_collation(number: int) -> str:
    """Return MySQL's character set of a collation id. Raises UnsupportedEvent: unknown."""
    found = _BY_ID.get(number)
    if found:
        return found
    if number in _MYSQL_UTF8MB4:
        return "utf8mb4"
    if _MARIADB_UCA1400 <= number < _MARIADB_UCA1400 + 256 * len(_UCA1400_CHARSETS):
        return _UCA1400_CHARSETS[(number - _MARIADB_UCA1400) >> 8]
    if _MARIADB_NOPAD < number < _MARIADB_UCA1400:
        return charset_of_collation(number - _MARIADB_NOPAD)
    for numbers, name in _MARIADB_MIXED.items():
        if number in numbers:
            return name
    raise UnsupportedEvent(f"unknown collation id {number}")


def canonical(charset: str) -> str:
    """Return the one name of a character set: `utf8` is `utf8mb3`."""
    return "utf8mb3" if charset == "utf8" else charset


def char_bytes_max(charset: str) -> int:
    """Most bytes that one character takes."""
    return CHARSETS.get(canonical(charset), ("", 1))[1]


@lru_cache(maxsize=64)
def differences(charset: str) -> dict[bytes, str]:
    """Characters of a character set for which its codec is not what the servers say."""
    found = {}
    for first, count, point in DIFFERENCES.get(charset, ()):
        for k in range(count):
            code = first + k
            step = 0 if point == ord(_UNDEFINED) else k
            found[code.to_bytes((code.bit_length() + 7) // 8, "big")] = chr(point + step)
    return found


def character(code: bytes, charset: str) -> str:
    """The text of one character's bytes (one character, or U+FFFD, or several when broken)."""
    known = differences(charset).get(code)
    return code.decode(CHARSETS[charset][0], "replace") if known is None else known


def decode_text(data: bytes, charset: str) -> str:
    """Decode a small text: a label, name or statement. What a charset leaves undefined is
    U+FFFD."""
    name = canonical(charset)
    codec, width = CHARSETS.get(name, ("", 1))
    if not differences(name):
        return data.decode(codec or "latin-1", "replace")
    parts = []
    at = 0
    while at < len(data):
        size = 1
        if width > 1 and character(data[at : at + 1], name) == _UNDEFINED:
            size = 3 if data[at] == 0x8F and codec == "euc-jp" else 2
            if codec == "gb18030" and data[at + 1 : at + 2].isdigit():
                size = 4
        parts.append(character(data[at : at + size], name))
        at += size
    return "".join(parts)


def decode_label(data: bytes, charset: str) -> str:
    """Decode a label of an ENUM or SET. With CHARACTER SET binary its bytes are those of the
    statement that made it, nearly always UTF-8, and that is what SELECT shows."""
    if canonical(charset) == "binary":
        try:
            return data.decode()
        except UnicodeDecodeError:
            pass
    return decode_text(data, charset)
