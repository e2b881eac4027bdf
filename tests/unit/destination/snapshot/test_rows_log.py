"""Who is held for a snapshot gets nothing else, and goes on where it was when that has ended."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ray_canal.destination.snapshot import snapshots
from ray_canal.destination.snapshot.rows_log import RowsLog
from ray_canal.errors import InstanceRestarted
from ray_canal.model.message import EMPTY_BATCH
from tests.local_destination import ALL, destination_of, drain, run, take

CLIENT = 1


def test_nothing_comes_but_rows_until_the_snapshot_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "_TICK_S", 1000.0)  # nobody looks until it is asked to
    run(story(tmp_path))


async def story(folder: Path) -> None:
    async with destination_of(folder) as destination:
        await destination.subscribe(CLIENT, ALL)
        first = await take(destination, CLIENT)
        assert first is not None
        void = await take(destination, CLIENT, ack=False)
        assert void is not None
        catch_ups, table = destination.api._catch_ups, destination.state.subscribers
        held = catch_ups.begin_rows_log(CLIENT)
        assert isinstance(held, RowsLog)
        assert catch_ups.rows_logs() == {CLIENT: held}
        cursor = table.get(CLIENT).cursor
        assert cursor is not None
        log = held.begin(cursor)
        assert log.store.last_position == cursor.position
        assert await take(destination, CLIENT) is None
        assert catch_ups.rows_logs() == {CLIENT: held}  # its call did not take it back into the log
        with pytest.raises(InstanceRestarted):
            await destination.ack(CLIENT, void.id, void.epoch)

        destination.api._snapshots.poke()
        rest = await drain(destination, CLIENT)
        assert catch_ups.rows_logs() == {}
        assert void.id < rest[0].id
        assert rest[0].start == void.start


def test_until_the_place_is_known_no_call_waits_beyond_its_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "_TICK_S", 1000.0)

    async def without_place() -> None:
        async with destination_of(tmp_path) as destination:
            await destination.subscribe(CLIENT, ALL)
            void = await take(destination, CLIENT, ack=False)
            assert void is not None
            catch_ups = destination.api._catch_ups
            held = catch_ups.begin_rows_log(CLIENT)
            for timeout in (None, 0.01):
                got = await destination.get_without_ack(CLIENT, 4, timeout)
                acked = await destination.get(CLIENT, 4, timeout)
                assert got.id == acked.id == EMPTY_BATCH
            looped = await destination.poll(CLIENT, 4, 0.01, (void.id, void.epoch))
            assert looped.id == EMPTY_BATCH
            with pytest.raises(InstanceRestarted):
                await destination.ack(CLIENT, void.id, void.epoch)
            await destination.rollback(CLIENT, None, None)
            await destination.subscribe(CLIENT, ALL)  # its program begins again
            assert catch_ups.places()[str(CLIENT)]["entries_behind"] is None

            waiting = asyncio.create_task(destination.get_without_ack(CLIENT, 4, 0))
            await asyncio.sleep(0.01)
            cursor = destination.state.subscribers.get(CLIENT).cursor
            assert cursor is not None
            rows = held.begin(cursor)
            main = destination.state.log.pipeline
            assert main is not None
            slot = next(iter(main.store._ring.since(0)))
            assert slot.chunk is not None
            rows.store.put(slot.chunk, slot.payload)
            await destination.state.changed.wake()
            head = await waiting
            assert head.id > void.id
            await destination.ack(CLIENT, head.id, head.epoch)

    run(without_place())


def test_who_has_no_snapshot_goes_on(tmp_path: Path) -> None:
    async def goes_on() -> None:
        async with destination_of(tmp_path) as destination:
            await destination.subscribe(CLIENT, ALL)
            destination.api._catch_ups.begin_rows_log(CLIENT)
            while await take(destination, CLIENT) is None:
                continue  # until somebody has looked at it

    run(goes_on())
