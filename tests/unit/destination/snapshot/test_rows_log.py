"""Who is held for a snapshot gets nothing else, and goes on where it was when that has ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_canal.destination.snapshot import snapshots
from ray_canal.destination.snapshot.rows_log import RowsLog
from ray_canal.errors import InstanceRestarted
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


def test_until_the_place_is_known_calls_wait(tmp_path: Path) -> None:
    async def waits() -> None:
        async with destination_of(tmp_path) as destination:
            await destination.subscribe(CLIENT, ALL)
            destination.api._catch_ups.begin_rows_log(CLIENT)
            assert await drain(destination, CLIENT)  # released, as it has no snapshot

    run(waits())
