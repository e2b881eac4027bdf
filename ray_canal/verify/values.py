"""Which values of the two decoders can be compared, and when they are equal.

mysql-replication has other forms for some types: BIT is text of digits, a SET has no order, BINARY
is not padded, YEAR 0 is 1900, TIMESTAMP has no zone. Those are brought to our form and compared.
Not compared, and counted by column type and reason, is what it cannot decode or decodes by other
conventions:

- text in character sets that Python lacks or maps otherwise (pure ASCII is compared),
- JSON with values of no JSON type (dates, decimals, bytes) and partial JSON updates,
- vectors, and MariaDB's UUID and INET types, which it shows as bytes,
- dates that no calendar has, the zero TIMESTAMP, TIMESTAMP after 2038, and negative TIME with a
  fraction, from which it subtracts where it should add,
- unlabelled ENUM and SET values (row metadata that is not FULL),
- whole rows of what it does not know: compressed events, and tables with such a column's type.
"""

from __future__ import annotations

import datetime as dt
import json
import math
from typing import Any

from ray_canal.model.table_meta import ColumnMeta
from ray_canal.types import mysql
from ray_canal.types.numeric import INTEGERS
from ray_canal.types.registry import field_type
from ray_canal.verify.rows import ABSENT, TheirColumn

_UTF8 = frozenset({"utf8", "utf8mb3", "utf8mb4"})
_SAME_IN_PYTHON = _UTF8 | {
    "ascii", "latin1", "latin2", "cp1250", "cp1257", "latin5", "gbk",
}  # fmt: skip
_NO_ASCII = frozenset({"ucs2", "utf16", "utf16le", "utf32", "swe7"})
_EPOCH = dt.datetime(1970, 1, 1)
_AFTER_2038 = dt.datetime(2038, 1, 19, 3, 14, 8)
_DATES = frozenset(
    {mysql.DATE, mysql.DATETIME, mysql.DATETIME2, mysql.TIMESTAMP, mysql.TIMESTAMP2}
)
_NO_LABELS = "no labels in the row metadata"
IRREGULAR = "a date that no calendar has"


def type_family(column: ColumnMeta) -> str:
    """Return the first word of a column's type: `varchar` of `varchar(50)`."""
    return column.mysql_type.split("(")[0].split(" ")[0].lower() or str(column.type_code)


def not_compared(
    column: ColumnMeta, their_column: TheirColumn, ours: Any, theirs: Any, irregular: bool
) -> str:
    """Return why two values cannot be compared, or "". `irregular`: theirs is None for a date."""
    if ours is ABSENT or theirs is ABSENT:
        return ""
    code = column.type_code
    if code in (mysql.ENUM, mysql.SET) and not their_column.has_labels:
        return _NO_LABELS
    if ours is None:
        if irregular and theirs is None:
            return IRREGULAR
        if theirs is None and code in _DATES and their_column.name is None:
            return "NULL or " + IRREGULAR
        zero = isinstance(theirs, dt.datetime) and theirs <= _EPOCH
        return "the zero TIMESTAMP" if zero else ""
    if code == mysql.JSON:
        return _json_reason(theirs)
    if code in (mysql.ENUM, mysql.SET):
        known = column.charset in _UTF8 or all(label.isascii() for label in column.labels)
        return "" if known else f"labels in {column.charset}"
    if isinstance(ours, str):
        return _text_reason(column, their_column, ours, theirs)
    if isinstance(ours, list):
        return "a vector, bytes to mysql-replication"
    if isinstance(ours, dt.timedelta) and ours < dt.timedelta(0):
        if ours.microseconds or code == mysql.TIME:
            return "negative TIME, read wrongly by mysql-replication"
        return ""
    if isinstance(ours, dt.datetime) and code in (mysql.TIMESTAMP, mysql.TIMESTAMP2):
        late = ours.replace(tzinfo=None) >= _AFTER_2038
        return "TIMESTAMP after 2038" if late else ""
    return ""


def _text_reason(column: ColumnMeta, their_column: TheirColumn, ours: str, theirs: Any) -> str:
    """Return why two texts may differ without an error; "" if there is no reason."""
    if column.charset in ("", "binary") and column.mysql_type.startswith(("uuid", "inet")):
        return "text here, bytes to mysql-replication"
    if isinstance(theirs, bytes):
        return f"character set {column.charset}: Python has no such codec"
    if their_column.charset is None and column.charset not in _UTF8:
        is_ascii = ours.isascii() and column.charset not in _NO_ASCII
        return "" if is_ascii else "no character sets in the row metadata"
    if column.charset in _SAME_IN_PYTHON or theirs is None:
        return ""
    if column.charset not in _NO_ASCII and (ours.isascii() or theirs.isascii()):
        return ""
    return f"character set {column.charset}: Python maps it otherwise"


def _json_reason(theirs: Any) -> str:
    """mysql-replication gives bytes for JSON strings, and other types for what is no JSON."""
    if type(theirs).__name__ == "JsonDiff":
        return "a partial JSON update"
    waiting = [theirs]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
        elif not isinstance(value, bytes | bool | int | float | None):
            return "a JSON value that is of no JSON type"
    return ""


def plain(column: ColumnMeta, ours: Any) -> Any:
    """Return our value in the form of the comparison."""
    if ours is None or ours is ABSENT:
        return ours
    if column.type_code == mysql.JSON:
        return json.loads(ours)
    if column.type_code == mysql.SET:
        return frozenset(ours)
    if isinstance(ours, dt.datetime):
        return ours.replace(tzinfo=None)
    return ours


def opinion(column: ColumnMeta, their_column: TheirColumn, theirs: Any, ours: Any) -> Any:
    """Return mysql-replication's value in that form; `ours` is our value."""
    code = column.type_code
    if theirs is ABSENT:
        return theirs
    if code == mysql.JSON:
        return _decoded(theirs)
    if code == mysql.SET:
        if theirs is None:  # the empty set, too
            return None if ours is None else frozenset()
        return frozenset(theirs)
    if theirs is None:
        return None
    if code == mysql.BIT:
        return int(theirs, 2)
    if code == mysql.YEAR:
        return 0 if theirs == 1900 else theirs
    if code in INTEGERS and their_column.name is None and column.unsigned:
        return theirs % (1 << 8 * field_type(code).size_bytes)  # no sign without row metadata
    if isinstance(ours, bytes) and isinstance(theirs, str):
        theirs = theirs.encode("utf-8" if their_column.charset is None else "latin-1")
    if isinstance(ours, bytes) and code == mysql.STRING:
        return theirs.ljust(column.length, b"\0")
    return theirs


def _decoded(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, dict):
        return {_decoded(key): _decoded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_decoded(item) for item in value]
    return value


def equal(ours: Any, theirs: Any) -> bool:
    """Compare two values of one form. True and 1 differ; a NaN equals a NaN."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(equal(v, theirs[k]) for k, v in ours.items())
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(equal, ours, theirs))
    if isinstance(ours, bool) is not isinstance(theirs, bool):
        return False
    if isinstance(ours, float) and isinstance(theirs, float) and math.isnan(ours):
        return math.isnan(theirs)
    return bool(ours == theirs)
