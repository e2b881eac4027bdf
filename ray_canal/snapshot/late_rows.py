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
from ray_canal.snapshot.tables import SnapshotTable

_LIMIT_S = 60.0
_WAIT_S = 1.0
"""An answer that comes sooner is of no lock that was waited for."""


def wait_until_unlocked(ask: Ask, table: SnapshotTable) -> None:
    """Return when all that is executed of a table by now shows. Raises SourceError kinds: its
    writers leave no moment for that."""
    if not table.shows_late:
        return
    sql = f"CHECK TABLE {quoted(table.meta.schema, table.meta.table)} FOR UPGRADE FAST QUICK"
    began_s = time.monotonic()
    while True:
        asked_s = time.monotonic()
        wrong = [_text(row["Msg_text"]) for row in ask(sql) if _text(row["Msg_type"]) == "Error"]
        if not wrong:
            return
        now_s = time.monotonic()
        if now_s - asked_s < _WAIT_S or now_s - began_s > _LIMIT_S:
            raise SourceError(
                f"{table.meta.full_name}: its engine shows rows after they are in the log, and the "
                f"server cannot say when: {wrong[0]}"
            )


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
