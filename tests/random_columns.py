"""Random columns of every type: DDL, random SQL literals, how SELECT shows a value, and how ours
compares with it.

A kind's `literal` gives SQL text, so that values which no client library can bind (zero dates, an
ENUM's error value) are written too; `select` is an expression around the column whose result is
exact; `seen` brings an Arrow value to that result's form. Everything is drawn from one seeded
generator.
"""

from __future__ import annotations

import datetime as dt
import decimal
import random
import struct
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

Random = random.Random

CHARSETS = {
    "mysql97": [
        "utf8mb4", "utf8mb3", "latin1", "gbk", "gb18030", "big5", "sjis", "cp932", "ucs2", "utf16",
        "utf16le", "utf32", "ascii", "ujis", "eucjpms", "euckr", "cp1251", "koi8r", "greek",
        "hebrew", "dec8", "swe7", "armscii8", "geostd8", "keybcs2", "hp8", "macce", "macroman",
    ],
    "mysql56": [
        "utf8mb4", "utf8", "latin1", "gbk", "big5", "sjis", "ucs2", "utf16", "utf16le", "utf32",
        "koi8r", "latin2", "cp1250", "armscii8", "geostd8", "tis620", "latin7",
    ],
    "mariadb": [
        "utf8mb4", "utf8mb3", "latin1", "gbk", "big5", "sjis", "ucs2", "utf16", "utf16le", "utf32",
        "cp1256", "cp1257", "latin5", "dec8", "keybcs2", "eucjpms",
    ],
}  # fmt: skip

LETTERS = "aZ09 _'\"\\%\n~éüßñøŁŽżđőаяЖЪβΩשקبتไทاかナ漢字語中文한국ｱ€„”§°±½£\u00a0ԱևაჰŤ"
WIDE_LETTERS = LETTERS + "🚀𠮷🌍\u0001\u007f"


@dataclass(frozen=True, slots=True)
class Kind:
    """One column's type. `regular` says whether a SELECTed value is one that Arrow holds."""

    ddl: str
    literal: Callable[[Random], str]
    select: str = "{}"
    seen: Callable[[Any], Any] = lambda value: value
    received: Callable[[Any], Any] = lambda value: value
    regular: Callable[[Any], bool] = lambda value: True


def _text(r: Random, letters: str, most: int) -> str:
    return "".join(r.choice(letters) for _ in range(r.choice([0, 1, most // 2, most])))


def _hexed(text: str | None) -> str | None:
    return None if text is None else text.encode("utf-8", "surrogatepass").hex().upper()


def _integer(r: Random, bits: int, unsigned: bool) -> str:
    low, high = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return str(r.choice([low, high, 0, 1, r.randint(low, high), r.randint(low, high)]))


def _integers() -> list[Kind]:
    words = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
    found = []
    for word, bits in words.items():
        for unsigned in (False, True):
            ddl = word + " unsigned" * unsigned
            found.append(Kind(ddl, partial(_integer, bits=bits, unsigned=unsigned)))
    found.append(Kind("int(9) unsigned zerofill", lambda r: str(r.randrange(2**32)), "{}+0"))
    found.append(Kind("tinyint(1)", lambda r: str(r.randrange(-128, 128))))
    return found


def _floats() -> list[Kind]:
    def single(r: Random) -> str:
        edge = ["3.4028234e38", "-3.4028234e38", "1.1754944e-38", "1e-45", "0", "-0e0", "1e7"]
        number = f"{r.choice('+-')}{r.uniform(0.01, 1)}e{r.randint(-37, 37)}"
        return r.choice([*edge, number, number, str(r.randrange(-(2**24), 2**24) / 8)])

    def double(r: Random) -> str:
        edge = ["1.7976931348623157e308", "2.2250738585072014e-308", "0", "1e7", "123456789.125"]
        number = f"{r.choice('+-')}{r.uniform(0.01, 1)}e{r.randint(-300, 300)}"
        return r.choice([*edge, number, number, number])

    return [Kind("float", single, "{}+0e0"), Kind("double", double, "{}+0e0")]


def _decimal(r: Random) -> Kind:
    precision = r.choice([1, 5, 9, 10, 18, 19, 28, 38, 39, 65, r.randint(1, 65)])
    scale = r.choice([0, min(precision, 30), min(precision, r.randint(0, 30))])

    def literal(r: Random) -> str:
        digits = r.choice([precision, precision, r.randint(1, precision)])
        number = r.choice([10**digits - 1, r.randrange(10**digits), 10 ** (digits - 1), 0])
        with decimal.localcontext(decimal.Context(prec=70)):
            return format(decimal.Decimal(r.choice([1, -1]) * number).scaleb(-scale), "f")

    return Kind(f"decimal({precision},{scale})", literal)


def _bit(r: Random) -> Kind:
    size = r.choice([1, 7, 8, 9, 17, 33, 63, 64, r.randint(1, 64)])
    return Kind(
        f"bit({size})",
        lambda r: f"b'{r.choice([0, 1, 2**size - 1, r.randrange(2**size)]):b}'",
        "cast({} as unsigned)",
    )


def _fraction(micros: int, digits: int) -> str:
    return f".{micros:06d}"[: digits + 1] if digits else ""


def _moment(value: dt.datetime | None, digits: int) -> str | None:
    if value is None:
        return None
    day = f"{value.year:04d}-{value.month:02d}-{value.day:02d}"
    clock = f"{value.hour:02d}:{value.minute:02d}:{value.second:02d}"
    return f"{day} {clock}" + _fraction(value.microsecond, digits)


def _span(value: dt.timedelta | None, digits: int) -> str | None:
    if value is None:
        return None
    micros = (abs(value).days * 86_400 + abs(value).seconds) * 10**6 + abs(value).microseconds
    seconds, micros = divmod(micros, 10**6)
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return "-" * (value < dt.timedelta(0)) + clock + _fraction(micros, digits)


def _is_day(text: str) -> bool:
    try:
        dt.date.fromisoformat(text[:10])
    except ValueError:
        return False
    return True


_IRREGULAR = ["0000-00-00", "2026-02-00", "2026-00-00", "2025-02-29", "2026-02-31", "0000-01-01"]


def _day(r: Random) -> str:
    real = dt.date(1000, 1, 1) + dt.timedelta(days=r.randrange(3_287_181))
    return r.choice([*_IRREGULAR, "1000-01-01", "9999-12-31", "2024-02-29", *[str(real)] * 12])


def _clock(r: Random, digits: int) -> str:
    seconds = r.choice([0, 86_399, r.randrange(86_400)])
    micros = r.choice([0, 999_999, 100_000, r.randrange(10**6)])
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return text + _fraction(micros, digits)


def _temporal(r: Random) -> Kind:
    digits = r.randint(0, 6)
    suffix = f"({digits})" if digits else ""
    chars = "cast({} as char)"
    choice = r.randrange(5)
    if choice == 0:
        return Kind("date", lambda r: f"'{_day(r)}'", chars, lambda v: v and v.isoformat(),
                    regular=_is_day)  # fmt: skip
    if choice == 1:

        def span(r: Random) -> str:
            edge = ["838:59:59", "-838:59:59", "00:00:00", "-00:00:01", "24:00:00"]
            seconds = r.randrange(838 * 3600)
            clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
            clock = r.choice("- ").strip() + clock + _fraction(r.randrange(10**6), digits)
            return f"'{r.choice([*edge, clock, clock, clock])}'"

        return Kind("time" + suffix, span, chars, lambda v: _span(v, digits))
    if choice == 2:
        return Kind(
            "datetime" + suffix, lambda r: f"'{_day(r)} {_clock(r, digits)}'", chars,
            lambda v: _moment(v, digits), regular=_is_day,
        )  # fmt: skip
    if choice == 3:

        def stamp(r: Random) -> str:
            moment = dt.datetime(1970, 1, 1, 0, 0, 1) + dt.timedelta(seconds=r.randrange(2**31 - 2))
            micros = r.choice([0, r.randrange(10**6)])
            plain = str(moment) + _fraction(micros, digits)
            return f"'{r.choice(['0000-00-00 00:00:00', '2038-01-19 03:14:07', *[plain] * 6])}'"

        return Kind(
            f"timestamp{suffix} null", stamp, chars, lambda v: _moment(v, digits), regular=_is_day
        )
    return Kind("year", lambda r: str(r.choice([0, 1901, 2155, r.randint(1901, 2155)])), "{}+0")


def _literal(text: str) -> str:
    return f"_utf8mb4 0x{_hexed(text)}" if text else "''"


def _words(r: Random, server: str) -> Kind:
    charset = r.choice(CHARSETS[server])
    shape = r.choice(["char(7)", "varchar(9)", "varchar(70)", "varchar(300)", "tinytext", "text",
                      "mediumtext", "longtext"])  # fmt: skip
    most = {"char(7)": 7, "varchar(9)": 9, "varchar(70)": 70, "tinytext": 40}.get(shape, 300)
    # What a set lacks becomes '?', so that SELECT tells what is stored.
    return Kind(
        f"{shape} character set {charset}",
        lambda r: _literal(_text(r, WIDE_LETTERS, most)),
        "hex(convert({} using utf8mb4))",
        _hexed,
    )


def _bytes(r: Random) -> Kind:
    shape = r.choice(["binary(5)", "binary(200)", "varbinary(20)", "varbinary(400)", "tinyblob",
                      "blob", "mediumblob", "longblob", "binary(1)"])  # fmt: skip
    most = {"binary(5)": 5, "varbinary(20)": 20, "binary(1)": 1}.get(shape, 200)

    def literal(r: Random) -> str:
        data = r.choice([r.randbytes(r.randint(0, most)), b"\0" * r.randint(0, most), b"a\0b\0"])
        return f"x'{data[:most].hex()}'"

    return Kind(shape, literal, "hex({})", lambda v: None if v is None else v.hex().upper())


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def _enum(r: Random) -> Kind:
    count = r.choice([1, 3, 255, 256, 300])
    labels = [r.choice(["é{}", "x'{}", "漢{}", "w{}", "a b{}"]).format(i) for i in range(count)]
    ddl = f"enum({','.join(map(_quoted, labels))}) character set utf8mb4"
    return Kind(
        ddl, lambda r: r.choice(["'none of them'", str(r.randint(1, count)), str(count)]),
        "hex(concat({},''))", _hexed,
    )  # fmt: skip


def _set(r: Random) -> Kind:
    count = r.choice([1, 8, 9, 33, 64])
    labels = [r.choice(["é{}", "x'{}", "漢{}", "w{}"]).format(i) for i in range(count)]
    ddl = f"set({','.join(map(_quoted, labels))}) character set utf8mb4"
    return Kind(
        ddl, lambda r: str(r.choice([0, 2**count - 1, r.randrange(2**count)])),
        "hex(concat({},''))", lambda v: None if v is None else _hexed(",".join(v)),
    )  # fmt: skip


def _geometry(r: Random) -> Kind:
    def point(r: Random) -> str:
        return f"{r.uniform(-180, 180)} {r.uniform(-90, 90)}"

    def literal(r: Random) -> str:
        one = ", ".join(point(r) for _ in range(r.randint(2, 5)))
        corner = "(0 0, 0 9, 9 9, 0 0)"
        shape = r.choice(
            [f"POINT({point(r)})", f"LINESTRING({one})", f"POLYGON({corner})",
             f"MULTIPOINT({one})", f"GEOMETRYCOLLECTION(POINT({point(r)}))"]
        )  # fmt: skip
        return f"ST_GeomFromText('{shape}')"

    return Kind("geometry", literal, "hex({})", lambda v: None if v is None else v.hex().upper())


def _json_value(r: Random, depth: int) -> str:
    """An expression for a JSON value: every scalar, opaque ones too, nested at random."""
    shape = r.random()
    count = r.choice([0, 1, 2, 3, 5])
    if depth and shape < 0.25:
        keys = [
            _quoted(_text(r, WIDE_LETTERS, r.choice([1, 3, 30])) + str(i)) for i in range(count)
        ]
        pairs = (f"{key},{_json_value(r, depth - 1)}" for key in keys)
        return f"json_object({','.join(pairs)})"
    if depth and shape < 0.5:
        return f"json_array({','.join(_json_value(r, depth - 1) for _ in range(count))})"
    number = r.randrange(10**20)
    return r.choice(
        [
            "null",
            "cast('true' as json)",
            "cast('false' as json)",
            str(r.randrange(-(2**15) - 3, 2**15 + 3)),
            str(r.randrange(-(2**31) - 3, 2**31 + 3)),
            str(r.randrange(-(2**63), 2**64)),
            f"{r.uniform(-1, 1)}e{r.randint(-290, 290)}",
            r.choice(["1e0", "-0e0", "1e15", "1e16", "123456789012345680e0", "1e-5", "0.1e0"]),
            f"cast({r.choice('+-')}{number}.{number:020d} as decimal(50,{r.randint(0, 30)}))",
            _quoted(_text(r, WIDE_LETTERS + "/\b\f\r\t", r.choice([1, 9, 200, 70_000]))),
            f"cast('{_day(r)}' as date)",
            f"cast('{_day(r)} {_clock(r, 6)}' as datetime({r.randint(0, 6)}))",
            f"cast('-{r.randrange(838)}:59:01.5' as time({r.randint(0, 6)}))",
            f"cast('{_clock(r, 6)}' as time(6))",
            "timestamp'2024-02-29 01:02:03.000004'",
            f"cast(x'{r.randbytes(r.randint(0, 9)).hex()}' as binary)",
            f"b'{r.randrange(2**40):b}'",
            "cast(2024 as year)",
            "st_geomfromtext('POINT(1.5 -2)')",
        ]
    )


def _json(r: Random) -> Kind:
    return Kind(
        "json",
        lambda r: (
            f"json_array({_json_value(r, 3)}, {_json_value(r, 2)})"
            if r.random() < 0.7
            else f"json_extract(json_array({_json_value(r, 0)}), '$[0]')"
        ),
        "hex(cast({} as char))",
        _hexed,
    )


def _vector(r: Random) -> Kind:
    size = r.choice([1, 3, 200, 2048])

    def literal(r: Random) -> str:
        elements = [r.choice([0.0, 1.5, 3.4e38, 1e-37, r.uniform(-1, 1)])] * r.randint(1, size)
        return f"to_vector('[{','.join(f'{e:.9e}' for e in elements)}]')"

    return Kind(
        r.choice([f"vector({size})", "vector"]),
        literal,
        "hex({})",
        lambda v: None if v is None else struct.pack(f"<{len(v)}f", *v).hex().upper(),
    )


def _compressed(r: Random) -> Kind:
    kinds: list[Callable[[Random], Kind]] = [partial(_words, server="mariadb"), _bytes]
    kind = r.choice(kinds)(r)
    while kind.ddl.startswith(("char(", "binary(")):
        kind = r.choice(kinds)(r)
    shape, space, charset = kind.ddl.partition(" ")
    times = 1 if shape.endswith(")") or "tiny" in shape else 40

    def literal(r: Random) -> str:
        plain = kind.literal(r)
        return f"repeat({plain},{r.choice([1, times])})"

    return replace(kind, ddl=f"{shape} compressed{space}{charset}", literal=literal)


def _address(r: Random) -> Kind:
    word, size = r.choice([("uuid", 16), ("inet4", 4), ("inet6", 16)])

    def literal(r: Random) -> str:
        data = bytearray(r.randbytes(size))
        for k in range(0, size, 2):
            if r.random() < 0.6:
                data[k : k + 2] = b"\0\0"
        if r.random() < 0.3:
            data[: size - 4] = bytes(size - 4)
        if r.random() < 0.2:
            data[10:12] = b"\xff\xff"
        data = data[:size]
        if word == "uuid":
            text = str(uuid.UUID(bytes=bytes(data)))
        elif word == "inet4":
            text = ".".join(map(str, data))
        else:
            text = ":".join(data[k : k + 2].hex() for k in range(0, 16, 2))
        return f"'{text}'"

    return Kind(word, literal, "cast({} as char)")


def random_kind(r: Random, server: str) -> Kind:
    """One of all types that this kind of server has."""
    special: list[Callable[[], Kind]] = {
        "mysql97": [lambda: _json(r), lambda: _json(r), lambda: _vector(r)],
        "mariadb": [lambda: _compressed(r), lambda: _address(r)],
    }.get(server, [])
    families: list[tuple[int, Callable[[], Kind]]] = [
        (4, lambda: r.choice(_integers())),
        (2, lambda: r.choice(_floats())),
        (3, lambda: _decimal(r)),
        (1, lambda: _bit(r)),
        (5, lambda: _temporal(r)),
        (6, lambda: _words(r, server)),
        (3, lambda: _bytes(r)),
        (1, lambda: _enum(r)),
        (1, lambda: _set(r)),
        (1, lambda: _geometry(r)),
        *((2, make) for make in special),
    ]
    weights = [weight for weight, _ in families]
    return r.choices([make for _, make in families], weights)[0]()
