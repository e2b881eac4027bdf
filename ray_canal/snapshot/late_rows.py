"""Rows of engines without transactions (MyISAM, Aria, MEMORY), which show when their statement
unlocks its table: a moment after it is in the log, and counts as executed.

So who asks what is executed, and reads then, may lack such rows. A lock that excludes inserts, too,
says that all statements of before have unlocked the table. The server takes one for CHECK TABLE,
and needs SELECT alone for that. FOR UPGRADE: it reads no row.
"""

from __future__ import annotations

import time

from ray_canal.errors import SourceError
from ray_canal.snapshot.columns import quoted
from ray_canal.snapshot.planner import Ask
from ray_canal.snapshot.session import LOCK_WAIT_S
from ray_canal.snapshot.tables import SnapshotTable

_LIMIT_S = 60.0
_WAIT_S = 0.5
"""An answer that comes sooner is of no lock that was waited for."""


def wait_until_unlocked(ask: Ask, table: SnapshotTable) -> None:
    """Return when all that is executed of a table by now shows. Raises SourceError kinds: its
    writers leave no moment for that."""
    if not table.shows_late:
        return
    # Next to many writers who waits for the lock starves, and who asks again soon has it.
    ask("SET SESSION lock_wait_timeout = 1")
    _wait(ask, table)
    ask(f"SET SESSION lock_wait_timeout = {LOCK_WAIT_S}")


def _wait(ask: Ask, table: SnapshotTable) -> None:
    sql = f"CHECK TABLE {quoted(table.meta.schema, table.meta.table)} FOR UPGRADE FAST QUICK"
    began_s = time.monotonic()
    while True:
        asked_s = time.monotonic()
        wrong = _refusal(ask, sql)
        if not wrong:
            return
        now_s = time.monotonic()
        if now_s - asked_s < _WAIT_S or now_s - began_s > _LIMIT_S:
            raise SourceError(
                f"{table.meta.full_name}: its engine shows rows after they are in the log, and the "
                f"server cannot say when: {wrong}"
            )


def _refusal(ask: Ask, sql: str) -> str:
    """Return why the server did not have the lock; empty: it had it. A lock that metadata keep it
    from is told by a row, one that writers do by an error."""
    try:
        rows = ask(sql)
    except SourceError as error:
        if type(error) is not SourceError:  # ConnectionLost, PrivilegeMissing
            raise
        return str(error)
    wrong = [_text(row["Msg_text"]) for row in rows if _text(row["Msg_type"]) == "Error"]
    return wrong[0] if wrong else ""


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
