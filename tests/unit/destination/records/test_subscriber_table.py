"""Subscribers in memory: what is there was written first, over a real meta file."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path

import pytest

from ray_canal.config import MetaConfig
from ray_canal.destination.state import DestinationState, new_state
from ray_canal.errors import InstanceRestarted, MetaUnavailable, NotSubscribed, SubscriberReplaced
from ray_canal.meta.manager import SubscriberMeta
from ray_canal.model.position import EntryPosition, LogPosition, SourceIdentity
from ray_canal.model.snapshot_ledger import Ledger, TableLedger
from tests.local_destination import instance, meta_away, run, until
from tests.local_runtime import LocalRuntime

HERE = SourceIdentity("db:3306", "uuid-a")
THERE = SourceIdentity("db:3307", "uuid-b")


def place(position: int, where: SourceIdentity = HERE) -> LogPosition:
    return LogPosition(where, EntryPosition("bin.000001", position))


def one(client_id: int = 7, **more: object) -> SubscriberMeta:
    return dataclasses.replace(SubscriberMeta(client_id, "", place(4)), **more)  # type: ignore[arg-type]


async def opened(folder: Path, **config: object) -> DestinationState:
    meta = MetaConfig(path=str(folder / "meta.db"))
    state = new_state(instance(**config), meta, LocalRuntime())
    await state.records.open()
    await state.guard.take_new()
    return state


def test_what_is_saved_is_known_and_durable(tmp_path: Path) -> None:
    async def story() -> None:
        state = await opened(tmp_path)
        table = state.subscribers
        with pytest.raises(NotSubscribed):
            table.get(7)
        await table.save(one())
        assert table.get(7) == one() == (await state.records.cursors.load())[7]
        with meta_away("save"), pytest.raises(MetaUnavailable):
            await table.save(one(filter="shop\\..*"))
        assert table.get(7).filter == ""
        await table.remove(7, state.guard.epoch)
        assert 7 not in table.known
        assert await state.records.cursors.load() == {}
        await state.records.close()

    run(story())


def test_a_write_under_an_earlier_epoch_changes_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        state = await opened(tmp_path)
        old = state.guard.epoch
        await state.subscribers.save(one())
        await state.guard.take_new()
        with pytest.raises(InstanceRestarted):
            await state.subscribers.save(one(filter="old"), old)
        with pytest.raises(InstanceRestarted):
            await state.subscribers.remove(7, old)
        assert state.subscribers.get(7) == one()
        await state.subscribers.load()
        assert state.subscribers.get(7) == one()
        await state.records.close()

    run(story())


def test_a_cancelled_caller_leaves_record_and_memory_alike(tmp_path: Path) -> None:
    async def story() -> None:
        state = await opened(tmp_path)
        saving = asyncio.ensure_future(state.subscribers.save(one()))
        await asyncio.sleep(0)
        saving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await saving
        await until(lambda: 7 in state.subscribers.known)
        assert 7 in await state.records.cursors.load()
        await state.records.close()

    run(story())


def test_terms_are_the_subscribers_or_the_destinations(tmp_path: Path) -> None:
    async def story() -> None:
        state = await opened(tmp_path, store={"policy": "spill", "spill_path": str(tmp_path)})
        table = state.subscribers
        assert table.terms(one()).policy == "spill"
        assert table.terms(one(policy="detach")).policy == "detach"
        assert table.terms(one(policy="block", paused=1)).policy == "detach"
        assert not table.terms(one()).transactions
        assert table.terms(one(transactions=True)).transactions
        await state.records.close()

    run(story())


def test_a_cursor_is_moved_only_from_where_it_still_is(tmp_path: Path) -> None:
    async def story() -> None:
        state = await opened(tmp_path)
        table = state.subscribers
        await table.save(one())
        await table.move_cursor(7, place(100), place(200, THERE))
        assert table.get(7).cursor == place(4)
        await table.move_cursor(7, place(4), place(200, THERE))
        assert table.get(7).cursor == place(200, THERE)
        await table.move_cursor(8, place(4), place(200, THERE))
        assert 8 not in table.known
        ledger = Ledger("s", (), tables=(TableLedger("d", "t", part=7),))
        goes_on = dataclasses.replace(one(), cursor=place(200, THERE), snapshot=ledger.to_json())
        for leaves_out, rows in ((False, 7), (True, 0)):  # changes between the two may be missing
            await table.save(goes_on)
            await table.move_cursor(7, place(200, THERE), place(4), leaves_out)
            assert Ledger.from_json(table.get(7).snapshot).tables[0].part == rows
        await state.records.close()

    run(story())


def test_a_replaced_holder_is_refused(tmp_path: Path) -> None:
    async def story() -> None:
        state = await opened(tmp_path)
        table = state.subscribers
        await table.save(one(holder="b", paused=1))
        table.refuse_replaced(7, "b")
        table.refuse_replaced(8, "a")
        with pytest.raises(SubscriberReplaced):
            table.refuse_replaced(7, "a")
        assert (table.is_paused(7), table.is_paused(8)) == (True, False)
        await state.records.close()

    run(story())


@pytest.mark.parametrize("moves_first", [False, True])
def test_a_cursor_that_moves_takes_nothing_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moves_first: bool
) -> None:
    """A catch-up that moves a cursor to another server's log, and an operator's pause: each wrote
    what it knew of the record before the other one."""

    async def story() -> None:
        state = await opened(tmp_path)
        table, cursors, go = state.subscribers, state.records.cursors, asyncio.Event()
        await table.save(one())
        write = cursors.save

        async def slow(epoch: int, subscriber: SubscriberMeta) -> None:
            await go.wait()
            await write(epoch, subscriber)

        monkeypatch.setattr(cursors, "save", slow)
        pause = table.save(dataclasses.replace(table.get(7), paused=5))
        move = table.move_cursor(7, place(4), place(9, THERE))
        tasks = []
        for call in (move, pause) if moves_first else (pause, move):
            tasks.append(asyncio.create_task(call))
            await asyncio.sleep(0)
        await asyncio.sleep(0.01)
        go.set()
        await asyncio.gather(*tasks)
        assert table.get(7) == one(paused=5, cursor=place(9, THERE))
        assert (await cursors.load())[7] == table.get(7)
        await state.records.close()

    run(story())
