"""Numbers of the binlog: event types and header flags.

From MySQL's documented enum Log_event_type, and MariaDB's additions to it.
"""

from __future__ import annotations

from typing import Final

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
