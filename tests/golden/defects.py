"""Canal's defects as checks: whether a difference is what a defect makes, and nothing else.

Each key is the name that differences.tsv and docs/reference/canal-compat.md use. `explains` looks
at one aspect of one pair of entries; where an aspect is of a column, at every row in which it
differs.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import lru_cache
from typing import Any

import numpy as np

from ray_canal.canal.generated import EntryProtocol_pb2 as pb
from ray_canal.model.gtid import GtidSet
from tests.golden import GOLDEN
from tests.golden.compare import CANAL_ONLY, OURS_ONLY, Case, Pair, change, rows

ALTER, CREATE, ERASE, QUERY, RENAME = 5, 4, 6, 7, 9
BLOB, CLOB = 2004, 2005

Check = Callable[[Case, Pair, str], bool]


def explain(case: Case, pair: Pair, aspect: str) -> str | None:
    """The defect that explains this aspect of this pair; None: none does."""
    return next((name for name, check in CHECKS.items() if check(case, pair, aspect)), None)


# --- entries that only we have --------------------------------------------------------------------


@lru_cache
def _event_results(case: Case) -> dict[int, str]:
    """Each event's type and what Canal made of it, by its offset."""
    name = case.expected.removesuffix(".pb") + ".events.tsv"
    path = GOLDEN / case.server / name
    if not path.exists():  # those of other time zones
        return {}
    lines = path.read_text("utf-8").splitlines()[1:]
    return {int(f[1]): f"{f[4]}: {''.join(f[5:])}" for f in (line.split("\t") for line in lines)}


def _ours_alone(pair: Pair, aspect: str) -> Any:
    return pair.ours if aspect == OURS_ONLY else None


def _exception(pattern: str) -> Check:
    """Rows whose event ended in such an exception."""

    def check(case: Case, pair: Pair, aspect: str) -> bool:
        entry = _ours_alone(pair, aspect)
        result = _event_results(case).get(pair.position, "")
        return entry is not None and bool(rows(entry)) and bool(re.search(pattern, result))

    return check


def _sequence(case: Case, pair: Pair, aspect: str) -> bool:
    """A statement of which Canal makes nothing, though it changes a sequence's table."""
    entry = _ours_alone(pair, aspect)
    sequence = _is_ddl(entry) and " sequence " in change(entry).sql.lower()
    return sequence and _event_results(case).get(pair.position) == "QUERY_EVENT: null"


def _compressed_query(case: Case, pair: Pair, aspect: str) -> bool:
    """A statement in an event type that Canal skips."""
    entry = _ours_alone(pair, aspect)
    result = _event_results(case).get(pair.position)
    return _is_ddl(entry) and result == "QUERY_COMPRESSED_EVENT: null"


def _is_ddl(entry: Any) -> bool:
    return entry is not None and entry.entryType == pb.ROWDATA and bool(change(entry).isDdl)


def _several_tables(case: Case, pair: Pair, aspect: str) -> bool:
    entry = _ours_alone(pair, aspect)
    return _is_ddl(entry) and pair.number > 0 and entry.header.eventType in (ERASE, RENAME)


def _mariadb_begin(case: Case, pair: Pair, aspect: str) -> bool:
    entry = _ours_alone(pair, aspect)
    is_begin = entry is not None and entry.entryType == pb.TRANSACTIONBEGIN
    return is_begin and _event_results(case).get(pair.position) == "GTID_EVENT: GTIDLOG"


# --- statements -----------------------------------------------------------------------------------


def _unread(case: Case, pair: Pair, aspect: str) -> bool:
    if aspect in (OURS_ONLY, CANAL_ONLY) or not aspect.startswith(("header.", "change.")):
        return False
    ours, canal = change(pair.ours), change(pair.canal)
    return (
        _is_ddl(pair.canal)
        and canal.eventType == QUERY
        and not pair.canal.header.tableName
        and ours.eventType in (CREATE, ALTER)
        and ours.sql == canal.sql
    )


def _tagged(case: Case, pair: Pair, aspect: str) -> bool:
    """Tagged GTIDs are missing; a tagged transaction carries the GTID of the one before it."""
    if aspect not in ("header.props", "header.gtid"):
        return False
    ours, canal = pair.ours.header, pair.canal.header
    mine, theirs = GtidSet.parse(ours.gtid), GtidSet.parse(canal.gtid)
    current = {p.key: p.value for p in ours.props}
    is_tagged = current["curtGtid"].count(":") == 2
    others = [(p.key, p.value) for p in ours.props if not p.key.startswith("curtGtid")]
    return (
        theirs.issubset(mine)
        and re.sub(r":[a-z_][a-z_0-9]*:[-:0-9]+", "", str(mine)) == str(theirs)
        and (aspect == "header.gtid" or is_tagged)
        and others == [(p.key, p.value) for p in canal.props if not p.key.startswith("curtGtid")]
    )


# --- values ---------------------------------------------------------------------------------------


def _columns(pair: Pair, aspect: str) -> Iterator[tuple[Any, Any]]:
    """Each row's column that the aspect names, where it differs."""
    if pair.ours is None or pair.canal is None or "." not in aspect:
        return
    name, _, field = aspect.rpartition(".")
    for left, right in zip(rows(pair.ours), rows(pair.canal), strict=True):
        for a, b in zip(left, right, strict=True):
            if a.name == name and getattr(a, field) != getattr(b, field):
                yield a, b


def _value(test: Callable[[Any, Any], bool]) -> Check:
    """A check of a column's text: the same sqlType, and `test` in every row."""

    def check(case: Case, pair: Pair, aspect: str) -> bool:
        if not aspect.endswith(".value"):
            return False
        found = list(_columns(pair, aspect))
        return bool(found) and all(test(a, b) for a, b in found)

    return check


def _decimal(ours: Any, canal: Any) -> bool:
    """Zeros are missing at the end."""
    if not ours.mysqlType.startswith(("decimal", "numeric", "dec", "fixed")):
        return False
    scale = len(ours.value.partition(".")[2])
    return (
        Decimal(ours.value) == Decimal(canal.value) and len(canal.value) < len(ours.value) > scale
    )


def _float(ours: Any, canal: Any) -> bool:
    """The same number in more digits than needed."""
    if ours.sqlType not in (6, 7, 8) or len(ours.value) >= len(canal.value):
        return False
    kind = np.float32 if ours.sqlType == 7 else np.float64
    return bool(kind(ours.value) == kind(canal.value))


def _binary(ours: Any, canal: Any) -> bool:
    length = re.match(r"binary\((\d+)\)|binary$", ours.mysqlType)
    if length is None or len(ours.value) != int(length[1] or 1):
        return False
    return bool(ours.value.rstrip("\0") == canal.value)


def _charset(ours: Any, canal: Any) -> bool:
    """The column's bytes read as UTF-8: what is no UTF-8 became U+FFFD."""
    if not re.match(r"(var)?char|(tiny|medium|long)?text|n", ours.mysqlType):
        return False
    return any(_as_utf8(ours.value, codec) == canal.value.replace("�", "") for codec in _CODECS)


_CODECS = (
    "cp1252", "latin-1", "gbk", "gb18030", "big5", "shift_jis", "euc-kr", "utf-16-be", "utf-16-le",
    "utf-32-be", "koi8-r", "cp1251", "cp932", "euc-jp",
)  # fmt: skip


def _as_utf8(text: str, codec: str) -> str | None:
    if codec == "cp1252":  # as MySQL has it: five bytes that cp1252 leaves open are C1 controls
        data = b"".join(
            bytes((ord(c),)) if 0x80 <= ord(c) < 0xA0 else c.encode("cp1252", "replace")
            for c in text
        )
    else:
        try:
            data = text.encode(codec)
        except UnicodeEncodeError:
            return None
    return data.decode("utf-8", "replace").replace("�", "")


def _json(ours: Any, canal: Any) -> bool:
    if ours.mysqlType != "json":
        return False
    try:
        return _same_json(json.loads(ours.value), json.loads(canal.value, strict=False))
    except json.JSONDecodeError:
        return False


def _same_json(ours: Any, canal: Any) -> bool:
    """The same document, but for texts of dates and times, and of binary values."""
    if isinstance(ours, dict) and isinstance(canal, dict):
        return list(ours) == list(canal) and all(_same_json(ours[k], canal[k]) for k in ours)
    if isinstance(ours, list) and isinstance(canal, list):
        same = (_same_json(a, b) for a, b in zip(ours, canal, strict=False))
        return len(ours) == len(canal) and all(same)
    if isinstance(ours, float) and isinstance(canal, float):
        return math.isclose(ours, canal, rel_tol=0, abs_tol=0)
    if isinstance(ours, str) and isinstance(canal, str) and ours != canal:
        date = canal == f"{ours} 00:00:00.000000" and len(ours) == 10
        time = ours == f"{canal}.000000" and len(canal) == 8
        return date or time or ours.startswith("base64:type")
    return bool(ours == canal)


def _partial_json(case: Case, pair: Pair, aspect: str) -> bool:
    """PARTIAL_UPDATE_ROWS: an expression for a value, and an empty text for one left alone."""
    if not aspect.endswith((".value", ".updated")) or not pair.ours:
        return False
    found = list(_columns(pair, aspect))
    return bool(found) and all(
        a.mysqlType == b.mysqlType == "json"
        and b.updated
        and (re.match(r"JSON_(REPLACE|INSERT|REMOVE|SET|ARRAY_INSERT)\(", b.value) or not b.value)
        for a, b in found
    )


def _text_as_blob(case: Case, pair: Pair, aspect: str) -> bool:
    """TEXT(20), and MariaDB's JSON, which is LONGTEXT: Canal makes a BLOB of it."""
    if not aspect.endswith((".value", ".sqlType")):
        return False
    found = list(_columns(pair, aspect))
    return bool(found) and all(
        a.sqlType == CLOB
        and b.sqlType == BLOB
        and re.fullmatch(r"(tiny|medium|long)?text\(\d+\).*|json", b.mysqlType)
        and (a.value == b.value or b.value.encode("latin-1").decode("utf-8") == a.value)
        for a, b in found
    )


def _binary_charset(case: Case, pair: Pair, aspect: str) -> bool:
    """VARCHAR CHARACTER SET binary, which is VARBINARY: Canal reads it as UTF-8."""
    if not aspect.endswith((".value", ".sqlType")):
        return False
    found = list(_columns(pair, aspect))
    return bool(found) and all(
        a.sqlType == BLOB
        and b.sqlType in (1, 12)
        and a.value.encode("latin-1").decode("utf-8", "replace") == b.value
        for a, b in found
    )


def _past_schema(case: Case, pair: Pair, aspect: str) -> bool:
    """Without the log's DDL, rows of a table that was altered or dropped since: they get today's
    names, or stop the instance."""
    if case.schema == "-":
        return False
    if aspect == OURS_ONLY:
        return _exception("fetch table meta failed")(case, pair, aspect)
    if aspect != "column names" and not aspect.endswith((".isKey", ".mysqlType")):
        return False
    values = [
        [[column.value for column in row] for row in rows(entry)]
        for entry in (pair.ours, pair.canal)
    ]
    return "column names" in pair.aspects and values[0] == values[1]


def _back_ticks(case: Case, pair: Pair, aspect: str) -> bool:
    """A doubled back-tick in a name is one."""
    if aspect != "column names":
        return False
    ours = [[(column.name, column.value) for column in row] for row in rows(pair.ours)]
    canal = [
        [(column.name.replace("``", "`"), column.value) for column in row]
        for row in rows(pair.canal)
    ]
    return ours == canal


def _labels(case: Case, pair: Pair, aspect: str) -> bool:
    """Labels of ENUM and SET that Canal's connection could not carry."""
    if not aspect.endswith(".mysqlType"):
        return False
    found = list(_columns(pair, aspect))
    return bool(found) and all(
        a.mysqlType.startswith(("enum", "set"))
        and "".join(c if ord(c) < 128 else "?" for c in a.mysqlType) == b.mysqlType
        for a, b in found
    )


CHECKS: dict[str, Check] = {
    "several-tables": _several_tables,
    "mariadb-begin": _mariadb_begin,
    "sequence": _sequence,
    "compressed-query": _compressed_query,
    "if-not-exists": _exception(r"column size is not match"),
    "unread-table": _exception(r"fetch failed by table meta|\"tableMeta\" is null"),
    "misread-column": _exception(r"unmatch column metadata"),
    "unknown-type": _exception(r"DECODE-EXC TableIdNotFoundException"),
    "past-schema": _past_schema,
    "unread-ddl": _unread,
    "tagged-gtid": _tagged,
    "partial-json": _partial_json,
    "back-ticks": _back_ticks,
    "decimal-zeros": _value(_decimal),
    "float-digits": _value(_float),
    "binary-padding": _value(_binary),
    "text-as-blob": _text_as_blob,
    "binary-charset": _binary_charset,
    "charset": _value(_charset),
    "json-text": _value(_json),
    "catalog-charset": _labels,
}
