"""A run whose rows are all of one moment, over a real log, with a pretended server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from ray_canal.destination.log_pipeline import LogPipeline
from ray_canal.destination.snapshot import snapshot_moment
from ray_canal.destination.snapshot.snapshot_home import new_ledger
from ray_canal.destination.snapshot.snapshot_moment import MomentRun
from ray_canal.errors import ConnectionLost
from ray_canal.model import canal_types
from ray_canal.model.position import EntryPosition
from ray_canal.model.snapshot_ledger import DONE, FAILED, Ledger
from ray_canal.model.snapshot_wish import CONSISTENT, SnapshotWish
from ray_canal.snapshot.governor import LoadReading
from ray_canal.snapshot.moment_reader import Read
from ray_canal.snapshot.tables import SnapshotTable, WantedTable
from tests.local_destination import run as run_async
from tests.local_runtime import LocalRuntime
from tests.unit.destination.snapshot.test_snapshot_run import CLIENT, Home, at_log
from tests.unit.snapshot.test_log_chunks import framed
from tests.unit.snapshot.test_result import META

ROWS, CHUNKS = 7, 6
TABLE = SnapshotTable(META, (), "", ROWS * CHUNKS, 100, True)


class Moment:
    """One table without a key. Each of `broken` is after how many chunks an attempt breaks off."""

    broken: list[int]
    others: list[str]

    def __init__(self, *_: Any, **__: Any) -> None:
        self.wanted = (WantedTable(TABLE, SnapshotWish()),)
        self.tables = (TABLE,)
        self.server, self.position = "here", EntryPosition("mysql-bin.000001", 4)

    def log_place(self) -> EntryPosition:
        return replace(self.position, created_s=3)

    def not_wanted(self) -> list[str]:
        return self.others

    def chunks(self) -> Iterator[Read]:
        last = self.broken.pop(0) if self.broken else CHUNKS
        for _ in range(last):
            yield Read(TABLE, framed(ROWS), ROWS)
        if last < CHUNKS:
            raise ConnectionLost("the server was restarted")

    def stop(self) -> None:
        return None

    close = stop


class Load:
    history = 5

    def __init__(self, source: Any) -> None:
        return None

    def read(self) -> LoadReading:
        return LoadReading(history_list=self.history)

    def close(self) -> None:
        return None


class MomentHome(Home):
    held = 0

    def begin_rows_log(self, client_id: int) -> None:
        self.held += 1

    async def begin_rows(
        self, client_id: int, ledger: Ledger, server: str, place: EntryPosition
    ) -> LogPipeline:
        assert (server, self.held) == ("here", ledger.attempt)
        self.log.store.begin_attempt(CLIENT, "")
        return self.log


@pytest.fixture(autouse=True)
def pretended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_moment, "ConsistentSnapshot", Moment)
    monkeypatch.setattr(snapshot_moment, "SourceLoad", Load)
    monkeypatch.setattr(Moment, "broken", [], raising=False)
    monkeypatch.setattr(Moment, "others", [], raising=False)


async def taken(settings: dict[str, Any]) -> tuple[MomentRun, list[tuple[int, int]]]:
    """The run when it has ended; (event type, rows) of all entries that came."""
    async with at_log() as (home, log):
        moment_home = MomentHome(log, home.changed)
        moment_home.settings = settings
        run = MomentRun(moment_home, CLIENT, new_ledger((), "s", "", CONSISTENT), LocalRuntime())
        task = asyncio.create_task(run.run())
        found: list[tuple[int, int]] = []
        while not run.ledger.is_over:
            batch = log.store.get(CLIENT, 8)
            if batch is None:
                await asyncio.sleep(0.005)
                continue
            tags = log.store.read_chunks(CLIENT, batch.id)
            for part in batch.parts:
                entries = part.payload.events[part.first : part.last]
                found += [(int(e["event_type"]), int(e["rows"])) for e in entries]
            log.store.ack(CLIENT, batch.id)
            if tags and tags[-1].attempt_name == run.attempt_name:
                run.acked(tags)
        await task
        return run, [one for one in found if one[0]]


def test_rows_replace_what_was_there() -> None:
    async def case() -> None:
        run, found = await taken({})
        assert (run.ledger.state, run.ledger.attempt) == (DONE, 1)
        assert run.ledger.rows == ROWS * CHUNKS
        mark = (canal_types.QUERY, 0)
        rows = [(canal_types.INSERT, ROWS)] * CHUNKS
        assert found[-len(rows) - 3 :] == [mark, (canal_types.TRUNCATE, 0), *rows, mark]

    run_async(case())


def test_a_lost_connection_makes_all_of_it_void(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Moment, "broken", [2, 0])

    async def case() -> None:
        run, found = await taken({})
        assert (run.ledger.state, run.ledger.attempt) == (DONE, 3)
        assert run.ledger.rows == ROWS * CHUNKS
        emptied = [number for number, (kind, _) in enumerate(found) if kind == canal_types.TRUNCATE]
        assert len(emptied) == 3
        assert sum(rows for _, rows in found[emptied[-1] :]) == ROWS * CHUNKS

    run_async(case())


def test_it_waits_for_acks_and_the_rate() -> None:
    async def case() -> None:
        run, _ = await taken({"bytes": 1 << 20, "rows_per_s": ROWS * CHUNKS * 4})
        assert run.ledger.state == DONE

    run_async(case())


@pytest.mark.parametrize(
    ("settings", "others", "why"),
    [
        ({"history_max": 4}, [], "the server keeps 5 old row versions"),
        ({"address": "127.0.0.1:2"}, [], "snapshot.address"),
        ({}, ["d.other"], "d.other: the subscriber sees it"),
    ],
)
def test_what_it_refuses(
    settings: dict[str, Any], others: list[str], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Moment, "others", others)

    async def case() -> None:
        run, _ = await taken(settings)
        assert run.ledger.state == FAILED
        assert why in run.ledger.error

    run_async(case())
