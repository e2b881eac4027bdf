"""Event types of the binlog, shared by kernels and Python: numbers, names, groups.

From MySQL's documented enum Log_event_type, and MariaDB's additions to it. A group of types below
64 is a bit for each, for the kernels.
"""

from __future__ import annotations

from typing import Final

UNKNOWN: Final = 0
START_V3: Final = 1
QUERY: Final = 2
STOP: Final = 3
ROTATE: Final = 4
INTVAR: Final = 5
LOAD: Final = 6
SLAVE: Final = 7
CREATE_FILE: Final = 8
APPEND_BLOCK: Final = 9
EXEC_LOAD: Final = 10
DELETE_FILE: Final = 11
NEW_LOAD: Final = 12
RAND: Final = 13
USER_VAR: Final = 14
FORMAT_DESCRIPTION: Final = 15
XID: Final = 16
BEGIN_LOAD_QUERY: Final = 17
EXECUTE_LOAD_QUERY: Final = 18
TABLE_MAP: Final = 19
PRE_GA_WRITE_ROWS: Final = 20
PRE_GA_UPDATE_ROWS: Final = 21
PRE_GA_DELETE_ROWS: Final = 22
WRITE_ROWS_V1: Final = 23
UPDATE_ROWS_V1: Final = 24
DELETE_ROWS_V1: Final = 25
INCIDENT: Final = 26
HEARTBEAT: Final = 27
IGNORABLE: Final = 28
ROWS_QUERY: Final = 29
WRITE_ROWS: Final = 30
UPDATE_ROWS: Final = 31
DELETE_ROWS: Final = 32
GTID: Final = 33
ANONYMOUS_GTID: Final = 34
PREVIOUS_GTIDS: Final = 35
TRANSACTION_CONTEXT: Final = 36
VIEW_CHANGE: Final = 37
XA_PREPARE: Final = 38
PARTIAL_UPDATE_ROWS: Final = 39
TRANSACTION_PAYLOAD: Final = 40
HEARTBEAT_V2: Final = 41
GTID_TAGGED: Final = 42
MARIADB_ANNOTATE_ROWS: Final = 160
MARIADB_BINLOG_CHECKPOINT: Final = 161
MARIADB_GTID: Final = 162
MARIADB_GTID_LIST: Final = 163
MARIADB_START_ENCRYPTION: Final = 164
MARIADB_QUERY_COMPRESSED: Final = 165
MARIADB_WRITE_ROWS_COMPRESSED_V1: Final = 166
MARIADB_UPDATE_ROWS_COMPRESSED_V1: Final = 167
MARIADB_DELETE_ROWS_COMPRESSED_V1: Final = 168
MARIADB_WRITE_ROWS_COMPRESSED: Final = 169
MARIADB_UPDATE_ROWS_COMPRESSED: Final = 170
MARIADB_DELETE_ROWS_COMPRESSED: Final = 171

NAMES: Final = {
    value: name for name, value in list(globals().items()) if name.isupper() and type(value) is int
}

HEADER_BYTES: Final = 19
CHECKSUM_BYTES: Final = 4
FLAG_ARTIFICIAL: Final = 0x20
FLAG_IGNORABLE: Final = 0x80
FLAG_STATEMENT_END: Final = 1
"""In a row event's own flags."""
FLAG_STANDALONE: Final = 1
"""In the flags of MARIADB_GTID: no transaction follows, but one statement."""

FIRST_MARIADB_COMPRESSED: Final = MARIADB_QUERY_COMPRESSED
LAST_MARIADB_COMPRESSED: Final = MARIADB_DELETE_ROWS_COMPRESSED

ROWS: Final = (
    7 << PRE_GA_WRITE_ROWS | 7 << WRITE_ROWS_V1 | 7 << WRITE_ROWS | 1 << PARTIAL_UPDATE_ROWS
)
"""INSERT, UPDATE, DELETE in their versions (a WRITE, an UPDATE, a DELETE follow each other)."""
MYSQL_GTIDS: Final = 1 << GTID | 1 << ANONYMOUS_GTID | 1 << GTID_TAGGED
"""Those of MySQL that begin a transaction and name it."""
BETWEEN_STATEMENTS: Final = 1 << QUERY | 1 << XID | 1 << XA_PREPARE | MYSQL_GTIDS
"""No statement continues after these. Row events have a flag for it."""
WITHOUT_ENTRY: Final = (
    1 << FORMAT_DESCRIPTION | 1 << ROTATE | 1 << STOP | 1 << HEARTBEAT | 1 << HEARTBEAT_V2
    | 1 << PREVIOUS_GTIDS | 1 << TRANSACTION_CONTEXT | 1 << VIEW_CHANGE | 1 << XA_PREPARE
    | 1 << APPEND_BLOCK | 1 << DELETE_FILE | 1 << BEGIN_LOAD_QUERY
)  # fmt: skip
"""Known events without an entry: of files and servers, lists of GTIDs, those of group
replication, XA_PREPARE, and the file of a LOAD DATA statement."""
NEXT_TO_ROWS: Final = (
    1 << ROWS_QUERY | 1 << INTVAR | 1 << RAND | 1 << USER_VAR | 1 << EXECUTE_LOAD_QUERY
)
"""Events next to rows or statements that Python reads."""

GTIDS: Final = frozenset({GTID, ANONYMOUS_GTID, GTID_TAGGED, MARIADB_GTID})
"""Those of both servers that begin a transaction and name it."""
OLD: Final = frozenset({START_V3, LOAD, SLAVE, CREATE_FILE, EXEC_LOAD, NEW_LOAD})
"""Events that servers before MySQL 5.0.3 wrote, without an entry in Canal."""
STRUCTURE: Final = frozenset(
    {
        QUERY, ROTATE, FORMAT_DESCRIPTION, XID, *GTIDS, PREVIOUS_GTIDS, XA_PREPARE,
        TRANSACTION_PAYLOAD, MARIADB_GTID_LIST, MARIADB_QUERY_COMPRESSED,
    }
)  # fmt: skip
"""Events that later ones cannot be read without: boundaries of transactions, GTIDs, file headers,
and containers of other events."""
