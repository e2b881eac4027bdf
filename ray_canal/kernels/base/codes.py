"""Small integers that the kernels switch on: storage codes of columns, and bounds of their values.

A storage code says how one column's values lie in a decoded chunk and how its raw bytes are read.
MySQL's own type numbers are in types/mysql.py; here is only what the kernels switch on.

Fixed-width slots hold, per row (little-endian, NULL rows undefined unless said otherwise):

    I8 I16 I24 I32 I64   int8 int16 int32 int32 int64        U8 U16 U24 U32 U64  the unsigned twins
    F32 F64              IEEE 754                              YEAR   uint16 (0 = year 0000)
    BIT                  uint64                                SET    uint64 bit mask
    ENUM                 uint16 index; 0 is MySQL's error value ''
    DEC128 DEC256        two's complement of 16 / 32 bytes, scaled by the column's scale (as Arrow)
    DATE                 int32 days since 1970-01-01
    DATETIME             int64 microseconds since 1970-01-01 00:00:00, no zone
    TIMESTAMP            int64 microseconds since the epoch, UTC
    TIME                 int64 microseconds, signed

Variable-width slots hold int32 offsets (rows + 1 of them) into a data area:

    TEXT                 UTF-8            BYTES  bytes as they are (BINARY padded to its length)
    JSON                 UTF-8 text as MySQL's CAST(j AS CHAR) prints it; with a validity bit of
                         0, diffs as SQL (`JSON_REPLACE(j, '$.a', 5)`): their before image is not
                         in the log
    GEOMETRY             4-byte SRID + WKB
    VECTOR               float32 elements; offsets are in bytes, multiples of 4

A temporal value that no calendar has (zero date, partial date, day 31 of a short month, year 0)
keeps its digits: the slot holds `IRREGULAR + packed` and the row's validity bit is 0; a true NULL
has validity 0 and the slot is exactly `NULL_SLOT`. So Arrow sees null for both, and Canal's text is
exact. Packed: DATE (year << 9 | month << 5 | day); DATETIME/TIMESTAMP ((date << 17 | hour << 12 |
minute << 6 | second) << 20 | microsecond), where date is DATE's packing; a zero TIMESTAMP packs
to 0.
Only values < IRREGULAR_END are irregular; no real date is so far in the past.
"""

from __future__ import annotations

from typing import Final

I8: Final = 1
U8: Final = 2
I16: Final = 3
U16: Final = 4
I24: Final = 5
U24: Final = 6
I32: Final = 7
U32: Final = 8
I64: Final = 9
U64: Final = 10
F32: Final = 11
F64: Final = 12
YEAR: Final = 13
BIT: Final = 14
SET: Final = 15
ENUM: Final = 16
DEC128: Final = 17
DEC256: Final = 18
DATE: Final = 19
DATETIME: Final = 20
TIMESTAMP: Final = 21
TIME: Final = 22
TEXT: Final = 30
BYTES: Final = 31
JSON: Final = 32
GEOMETRY: Final = 33
VECTOR: Final = 34

FIRST_VARIABLE: Final = TEXT
"""Codes from here on are variable-width."""

WIDTH_BYTES: Final = {
    I8: 1, U8: 1, I16: 2, U16: 2, I24: 4, U24: 4, I32: 4, U32: 4, I64: 8, U64: 8,
    F32: 4, F64: 8, YEAR: 2, BIT: 8, SET: 8, ENUM: 2, DEC128: 16, DEC256: 32,
    DATE: 4, DATETIME: 8, TIMESTAMP: 8, TIME: 8, TEXT: 4, BYTES: 4, JSON: 4, GEOMETRY: 4,
    VECTOR: 4,
}  # fmt: skip
"""Bytes of one slot (of one offset for variable-width codes)."""

ALIGNMENT_BYTES: Final = 64
"""Every region of an arena begins at a multiple of it."""

NULL_SLOT64: Final = -(1 << 63)
IRREGULAR64: Final = NULL_SLOT64 + 1
IRREGULAR_END64: Final = NULL_SLOT64 + (1 << 61)
NULL_SLOT32: Final = -(1 << 31)
IRREGULAR32: Final = NULL_SLOT32 + 1
IRREGULAR_END32: Final = NULL_SLOT32 + (1 << 24)
