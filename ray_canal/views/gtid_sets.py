"""The set of GTIDs that was executed with each transaction of a chunk, as text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ray_canal.binlog.chunk import GTID_MARIADB, GTID_MYSQL, DecodedChunk
from ray_canal.model.gtid import GtidSet, MariadbGtid


def executed_sets(chunk: DecodedChunk, before: str) -> Iterator[tuple[int, str]]:
    """Yield (number in `chunk.gtids`, the set with this transaction in it), without those that have
    no GTID. `before`: the set executed before the chunk."""
    executed: Any = None
    for number, gtid in enumerate(chunk.gtids):
        if gtid["flavor"] == GTID_MYSQL:
            executed = GtidSet.parse(before) if executed is None else executed
            tag = gtid["tag"].decode("ascii")
            executed.add(gtid["sid"].tobytes(), int(gtid["gno"]), tag)
        elif gtid["flavor"] == GTID_MARIADB:
            executed = MariadbGtid.parse(before) if executed is None else executed
            executed.add(int(gtid["domain"]), int(gtid["server_id"]), int(gtid["gno"]))
        else:
            continue
        yield number, str(executed)
