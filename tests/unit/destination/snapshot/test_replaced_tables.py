"""Statements that replace a table's rows are noted in the record of a snapshot that is not done."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ray_canal.binlog.chunk import ENTRY
from ray_canal.destination.snapshot.replaced_tables import ReplacedTables
from ray_canal.model.canal_types import ROWDATA
from ray_canal.model.position import EntryPosition, LogPosition, SourceIdentity
from ray_canal.model.snapshot_ledger import (
    CANCELLED,
    DONE,
    FAILED,
    PAUSED,
    RUNNING,
    Ledger,
    TableLedger,
)
from ray_canal.model.snapshot_wish import CONSISTENT
from ray_canal.model.table_event import (
    ANY_TABLE,
    ERASE,
    RENAME,
    STATEMENT,
    TRUNCATE,
    TableEffect,
    TableEvent,
)

BEGUN = TableLedger("shop", "orders").begun(("id",), ("9",), 9)
ACKED = TableLedger("shop", "items").begun(("id",), None, 0)
HALFWAY = Ledger("s", (), (BEGUN, ACKED), PAUSED)
HERE = SourceIdentity("db:3306", "uuid")
END = 900


class World:
    """A destination with subscriber 7, whose snapshot is this one."""

    def __init__(self, ledger: Ledger, cursor: LogPosition | None = None) -> None:
        self.restarted: list[Any] = []
        self._log: Any = SimpleNamespace(identity=HERE)
        self._loaded: Any = None
        known = SimpleNamespace(snapshot=ledger.to_json(), cursor=cursor)
        state: Any = SimpleNamespace(
            subscribers=SimpleNamespace(known={7: known}),
            runtime=SimpleNamespace(load=self._load),
        )
        self._tables = ReplacedTables(state, self._restart)

    async def _load(self, payload: Any) -> Any:
        return payload

    async def _restart(self, client_id: int, names: set[Any], log: Any) -> None:
        assert (client_id, log) == (7, self._log)
        self.restarted.append(names)

    def note(self, *effects: TableEffect) -> list[Any]:
        entries = np.zeros(1, ENTRY)
        entries["kind"] = ROWDATA
        info = SimpleNamespace(
            entries=entries,
            tables=tuple(effect[1:3] for effect in effects),
            head=SimpleNamespace(journal_name="bin.000001", end_position=END),
        )
        events = [TableEvent(0, 0, effect) for effect in effects]
        payload: Any = SimpleNamespace(layout=SimpleNamespace(table_events=events))
        chunk: Any = SimpleNamespace(info=info)
        asyncio.run(self._tables.note(self._log, (7, 8), chunk, payload))
        return self.restarted


SWAPPED = TableEffect(RENAME, "shop", "orders", ("shop", "_orders_gho"))


@pytest.mark.parametrize(
    ("effect", "names"),
    [
        (SWAPPED, {("shop", "orders")}),
        (TableEffect(STATEMENT, "shop", "orders"), {("shop", "orders")}),
        (TableEffect(STATEMENT, *ANY_TABLE), {("shop", "orders")}),
        (TableEffect(ERASE, "shop", "orders"), {("shop", "orders")}),
        (TableEffect(TRUNCATE, "shop", "orders"), None),
        (TableEffect(STATEMENT, "shop", "items"), None),
    ],
)
def test_tables_that_are_still_to_be_read_begin_anew(effect: TableEffect, names: Any) -> None:
    assert World(HALFWAY).note(effect) == ([] if names is None else [names])


@pytest.mark.parametrize(
    ("change", "count"),
    [
        ({"state": RUNNING}, 1), ({"state": FAILED}, 1), ({"state": DONE}, 0),
        ({"state": CANCELLED}, 0), ({"mode": CONSISTENT}, 0),
    ],
)  # fmt: skip
def test_a_snapshot_that_can_go_on_is_told(change: Any, count: int) -> None:
    assert len(World(replace(HALFWAY, **change)).note(SWAPPED)) == count


@pytest.mark.parametrize(
    ("uuid", "position", "count"), [("uuid", END - 1, 1), ("uuid", END, 0), ("other", END, 1)]
)
def test_what_lies_before_the_cursor_was_noted(uuid: str, position: int, count: int) -> None:
    """The log is read again after a restart, from the cursor of another subscriber."""
    identity = SourceIdentity("db:3306", uuid)
    cursor = LogPosition(identity, EntryPosition("bin.000001", position))
    assert len(World(HALFWAY, cursor).note(SWAPPED)) == count
