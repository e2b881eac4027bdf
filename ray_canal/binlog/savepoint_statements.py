"""SAVEPOINT and ROLLBACK TO in the log: rows of a transaction that was committed without them.

A server leaves such rows out of its log where it can. MariaDB logs them, with both statements, if
the transaction has changed a table without transactions, or made or dropped a temporary table
(binlog_savepoint_rollback in its sql/log.cc); MySQL 5.6 without GTIDs does in the latter case.
"""

from __future__ import annotations

import re
import unicodedata

import numpy as np

from ray_canal.binlog.chunk import EVENT_CLOSES, EVENT_IN_TRANSACTION, EVENT_SILENT, RawChunk
from ray_canal.binlog.parsed import ParsedChunk
from ray_canal.kernels.base import event_types
from ray_canal.kernels.framing.query import text_of_query
from ray_canal.model.arrays import Records
from ray_canal.model.savepoints import SavepointStatement

_STATEMENT = re.compile(
    r"\s*(SAVEPOINT|ROLLBACK\s+(?:WORK\s+)?TO(?:\s+SAVEPOINT)?)\s+(\S.*?)[\s;]*",
    re.IGNORECASE | re.DOTALL,
)
_QUOTES = "`", '"'
_SAVEPOINT_FLAGS = EVENT_SILENT | EVENT_IN_TRANSACTION


def parse_savepoint(sql: str) -> tuple[str, bool] | None:
    """Return (name of the savepoint, whether what came behind it is undone) of a statement; None:
    it is another one. Names that are one to the server are alike (it compares them as
    utf8mb3_general_ci; the quotes are those of the session's sql_mode)."""
    found = _STATEMENT.fullmatch(sql)
    if found is None:
        return None
    word, name = found.groups()
    if name[0] in _QUOTES and name[-1] == name[0] and len(name) > 1:
        name = name[1:-1].replace(2 * name[0], name[0])
    return "".join(map(_weight, name)), word[0] in "Rr"


def _weight(letter: str) -> str:
    """Return what utf8mb3_general_ci compares of a letter: its capital without accents."""
    capital = "S" if letter == "\xdf" else unicodedata.normalize("NFD", letter)[0].upper()
    return capital if len(capital) == 1 else letter


def savepoint_statements(
    raw: RawChunk, parsed: ParsedChunk, entries: Records
) -> tuple[SavepointStatement, ...]:
    """Return the chunk's savepoints that matter: of transactions with a ROLLBACK TO, and of the one
    that is open at the chunk's end. There may be one a row, and mostly nothing is undone."""
    undoes = any(query.is_silent and _undoes(query.sql) for query in parsed.queries)
    if not undoes and not len(parsed.annotations.bounds):
        return ()
    flags = entries["flags"]
    closing = np.flatnonzero(flags & EVENT_CLOSES)
    first = 0 if undoes or not len(closing) else int(closing[-1]) + 1
    events = parsed.events[first : len(entries)]
    is_query = events["type_code"] == event_types.QUERY
    silent = flags[first:] & _SAVEPOINT_FLAGS == _SAVEPOINT_FLAGS
    found = [_statement(raw, parsed, first + k) for k in np.flatnonzero(is_query & silent).tolist()]
    statements = [one for one in found if one is not None]
    if not undoes:
        return tuple(statements)
    of = np.searchsorted(closing, [one.entry for one in statements]).tolist()
    wanted = {number for one, number in zip(statements, of, strict=True) if one.undoes}
    wanted.add(len(closing))
    return tuple(one for one, number in zip(statements, of, strict=True) if number in wanted)


def _undoes(sql: str) -> bool:
    found = parse_savepoint(sql)
    return found is not None and found[1]


def _statement(raw: RawChunk, parsed: ParsedChunk, entry: int) -> SavepointStatement | None:
    start, end = parsed.bodies[entry].tolist()
    text = raw.data[text_of_query(raw.data, start, end) : end].tobytes()
    found = parse_savepoint(text.decode("utf-8", "replace"))  # whatever the session's charset is
    if found is None:
        return None
    event = parsed.events[entry]
    return SavepointStatement(entry, int(event["position"]), int(event["inner"]), *found)
