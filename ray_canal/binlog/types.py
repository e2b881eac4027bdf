"""Numbers of the binlog: MySQL field types, event types, header flags, row metadata fields.

From MySQL's documented enums enum_field_types and Log_event_type, and MariaDB's additions to them.
"""

from __future__ import annotations

from typing import Final

# enum_field_types
DECIMAL: Final = 0
TINY: Final = 1
SHORT: Final = 2
LONG: Final = 3
FLOAT: Final = 4
DOUBLE: Final = 5
NULL: Final = 6
TIMESTAMP: Final = 7
LONGLONG: Final = 8
INT24: Final = 9
DATE: Final = 10
TIME: Final = 11
DATETIME: Final = 12
YEAR: Final = 13
NEWDATE: Final = 14
VARCHAR: Final = 15
BIT: Final = 16
TIMESTAMP2: Final = 17
DATETIME2: Final = 18
TIME2: Final = 19
TYPED_ARRAY: Final = 20
MARIADB_BLOB_COMPRESSED: Final = 140
MARIADB_VARCHAR_COMPRESSED: Final = 141
VECTOR: Final = 242
JSON: Final = 245
NEWDECIMAL: Final = 246
ENUM: Final = 247
SET: Final = 248
TINY_BLOB: Final = 249
MEDIUM_BLOB: Final = 250
LONG_BLOB: Final = 251
BLOB: Final = 252
VAR_STRING: Final = 253
STRING: Final = 254
GEOMETRY: Final = 255

INTEGER_TYPES: Final = frozenset({TINY, SHORT, INT24, LONG, LONGLONG})
BLOB_TYPES: Final = frozenset({TINY_BLOB, BLOB, MEDIUM_BLOB, LONG_BLOB})
CHARACTER_TYPES: Final = frozenset(
    {STRING, VAR_STRING, VARCHAR, MARIADB_BLOB_COMPRESSED, MARIADB_VARCHAR_COMPRESSED} | BLOB_TYPES
)
"""Types that row metadata gives a character set (ENUM and SET have theirs in a field of their
own)."""
NUMERIC_TYPES: Final = INTEGER_TYPES | {FLOAT, DOUBLE, NEWDECIMAL, YEAR}
"""Types that row metadata gives a sign bit."""

# Log_event_type
EVENT_NAMES: Final = {
    0: "UNKNOWN", 1: "START_V3", 2: "QUERY", 3: "STOP", 4: "ROTATE", 5: "INTVAR", 6: "LOAD",
    7: "SLAVE", 8: "CREATE_FILE", 9: "APPEND_BLOCK", 10: "EXEC_LOAD", 11: "DELETE_FILE",
    12: "NEW_LOAD", 13: "RAND", 14: "USER_VAR", 15: "FORMAT_DESCRIPTION", 16: "XID",
    17: "BEGIN_LOAD_QUERY", 18: "EXECUTE_LOAD_QUERY", 19: "TABLE_MAP", 20: "PRE_GA_WRITE_ROWS",
    21: "PRE_GA_UPDATE_ROWS", 22: "PRE_GA_DELETE_ROWS", 23: "WRITE_ROWS_V1", 24: "UPDATE_ROWS_V1",
    25: "DELETE_ROWS_V1", 26: "INCIDENT", 27: "HEARTBEAT", 28: "IGNORABLE", 29: "ROWS_QUERY",
    30: "WRITE_ROWS", 31: "UPDATE_ROWS", 32: "DELETE_ROWS", 33: "GTID", 34: "ANONYMOUS_GTID",
    35: "PREVIOUS_GTIDS", 36: "TRANSACTION_CONTEXT", 37: "VIEW_CHANGE", 38: "XA_PREPARE",
    39: "PARTIAL_UPDATE_ROWS", 40: "TRANSACTION_PAYLOAD", 41: "HEARTBEAT_V2", 42: "GTID_TAGGED",
    160: "MARIADB_ANNOTATE_ROWS", 161: "MARIADB_BINLOG_CHECKPOINT", 162: "MARIADB_GTID",
    163: "MARIADB_GTID_LIST", 164: "MARIADB_START_ENCRYPTION", 165: "MARIADB_QUERY_COMPRESSED",
    166: "MARIADB_WRITE_ROWS_COMPRESSED_V1", 167: "MARIADB_UPDATE_ROWS_COMPRESSED_V1",
    168: "MARIADB_DELETE_ROWS_COMPRESSED_V1", 169: "MARIADB_WRITE_ROWS_COMPRESSED",
    170: "MARIADB_UPDATE_ROWS_COMPRESSED", 171: "MARIADB_DELETE_ROWS_COMPRESSED",
}  # fmt: skip
QUERY_EVENT: Final = 2
ROTATE_EVENT: Final = 4
INTVAR_EVENT: Final = 5
RAND_EVENT: Final = 13
USER_VAR_EVENT: Final = 14
FORMAT_DESCRIPTION_EVENT: Final = 15
TABLE_MAP_EVENT: Final = 19
WRITE_ROWS_V1_EVENT: Final = 23
WRITE_ROWS_EVENT: Final = 30
IGNORABLE_EVENT: Final = 28
ROWS_QUERY_EVENT: Final = 29
EXECUTE_LOAD_QUERY_EVENT: Final = 18
PARTIAL_UPDATE_ROWS_EVENT: Final = 39
TRANSACTION_PAYLOAD_EVENT: Final = 40
MARIADB_QUERY_COMPRESSED_EVENT: Final = 165
MARIADB_ROWS_COMPRESSED_V1: Final = range(166, 169)
MARIADB_ROWS_COMPRESSED: Final = range(169, 172)

HEADER_BYTES: Final = 19
CHECKSUM_BYTES: Final = 4
FLAG_ARTIFICIAL: Final = 0x20
FLAG_IGNORABLE: Final = 0x80

OLD_EVENTS: Final = frozenset({1, 6, 7, 8, 10, 12})
"""What servers before MySQL 5.0.3 wrote, of which Canal makes nothing: START_V3, LOAD, SLAVE,
CREATE_FILE, EXEC_LOAD, NEW_LOAD."""
_STRUCTURE: Final = frozenset({2, 4, 15, 16, 33, 34, 35, 38, 40, 42, 162, 163, 165})
"""Events without which what follows would be read wrongly: boundaries of transactions, GTIDs, file
headers, and what holds other events."""



def may_be_skipped(type_code: int) -> bool:
    """Whether what follows an event of this type can be read without it."""
    return type_code not in _STRUCTURE


def event_name(type_code: int) -> str:
    """`WRITE_ROWS (30)`; an unknown number keeps its number."""
    return f"{EVENT_NAMES.get(type_code, 'unknown')} ({type_code})"


def type_name(type_code: int) -> str:
    """Name of a field type for messages."""
    for name, value in globals().items():
        if name.isupper() and value == type_code and type(value) is int:
            return f"{name} ({type_code})"
    return f"unknown ({type_code})"
