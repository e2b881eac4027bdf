"""How a column is written in a row image, and the fields of a plan (binlog/plan.py makes plans).

A plan is an int64 array of PLAN_FIELDS numbers per column, tables one after the other.
"""

from __future__ import annotations

from typing import Final

# Fields of a plan.
WIRE: Final = 0  # READ_*
SIZE: Final = 1  # bytes in a row; -1 … -4: that many bytes of length come first
NULL: Final = 2  # NULL_*: what a NULL writes; -n: n zero bytes
CODE: Final = 3  # storage code of kernels/base/codes.py
PRECISION: Final = 4  # decimals; PADDED: width
SCALE: Final = 5  # decimals; temporal types: bytes of the fraction
TABLE: Final = 6  # transcoded text: where its character table begins
GROUPS: Final = 6  # DECIMAL64: digits of its groups, four bits each, the first one lowest
CHARSET: Final = 7  # transcoded text: kind of character set
RUN: Final = 8  # how many columns of a size of their own follow each other from here, this one too
RUN_BYTES: Final = 9  # their sizes together
PLAN_FIELDS: Final = 10
RUN_MAX: Final = 56  # their bits lie in a word, whichever of a byte's bits is the first

# Fields of a destination: int64 per column and side.
VALIDITY: Final = 0
VALUES: Final = 1
DATA: Final = 2
DATA_END: Final = 3
USED: Final = 4  # bytes of the data area that are filled
VALID: Final = 5  # values that are not NULL
DEFERRED: Final = 6  # READ_JSON and above: first line in `deferred` (each value's offset, length)
DEST_FIELDS: Final = 7
COLUMN_DEST: Final = 2 * DEST_FIELDS

NULL_32: Final = 1
NULL_64: Final = 2
NULL_OFFSET: Final = 3

READ_8: Final = 1
READ_16: Final = 2
READ_32: Final = 3
READ_64: Final = 4
READ_S24: Final = 5
READ_U24: Final = 6
READ_YEAR: Final = 7
READ_BIT: Final = 8
READ_SET: Final = 9
READ_ENUM: Final = 10
READ_DECIMAL64: Final = 11
READ_DECIMAL128: Final = 12
READ_DECIMAL256: Final = 13
READ_DATE: Final = 14
READ_DATETIME_OLD: Final = 15
READ_DATETIME: Final = 16
READ_TIMESTAMP_OLD: Final = 17
READ_TIMESTAMP: Final = 18
READ_TIME_OLD: Final = 19
READ_TIME: Final = 20
# MariaDB before MySQL's formats, with a fraction; SCALE is its digits.
READ_DATETIME_HIRES: Final = 21
READ_TIMESTAMP_HIRES: Final = 22
READ_TIME_HIRES: Final = 23
READ_COPY: Final = 24
READ_PADDED: Final = 25
READ_TRANSCODED: Final = 26
READ_VECTOR: Final = 27
READ_UUID: Final = 28
READ_INET4: Final = 29
READ_INET6: Final = 30
READ_JSON: Final = 31  # from here on: noted, and filled by kernels of their own
READ_INFLATED: Final = 32  # MariaDB's compressed columns; CHARSET is 0 where they are copied

# Codes of the row kernels; negative, because offsets are not.
TRUNCATED: Final = -1
BAD_WIDTH: Final = -2  # the event's column count is not its TABLE_MAP's
BAD_DECIMAL: Final = -3
BAD_TEMPORAL: Final = -4
BAD_JSON: Final = -5
JSON_SPACE: Final = -6  # not an error: the text needs more room than was laid out
NO_PROGRESS: Final = -7  # bytes left, but images without columns
BAD_LENGTH: Final = -8  # a string longer than its column
NO_BEFORE: Final = -9  # JSON diffs without the value that they change
BAD_PACKED: Final = -10  # a VECTOR, UUID, INET or compressed value of impossible size or bits

PARTIAL: Final = -2
"""In `deferred`, a length of PARTIAL - n: n bytes of JSON diffs (-1: no value)."""
