"""The file of the cursors under a running destination: replaced, removed, put back."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ray_canal.errors import ConfigError
from ray_canal.model.subscription import Subscription
from tests.local_destination import ALL, instance, run, running, take, until

SMALL_LOG = {"buffer_size": 64, "memunit_bytes": 1024}


def test_a_copy_that_is_put_back_under_a_running_store_is_used(tmp_path: Path) -> None:
    """D6: nothing is acked into the file that was taken away; what was acked since the copy comes
    again."""

    async def story() -> None:
        path, copy = tmp_path / "meta.db", tmp_path / "copy.db"
        async with running(tmp_path, instance(store=SMALL_LOG)) as store:
            await store.subscribe(1, ALL)
            first = await take(store, 1, seconds=30)
            assert first is not None
            await store.state.records.cursors.run(
                lambda meta: meta._backend._database.execute("vacuum into ?", (str(copy),))
            )
            second = await take(store, 1, seconds=30)
            third = await store.get_without_ack(1, 4, 30.0)
            assert second is not None
            await store.subscribe(2, ALL, wishes=Subscription(start="tail"))
            tail = store.state.subscribers.get(2).cursor
            copy.replace(path)
            for name in ("meta.db-wal", "meta.db-shm"):
                (tmp_path / name).unlink()
            with pytest.raises(ConfigError, match="was replaced while it was in use"):
                await store.ack(1, third.id, third.epoch)
            await until(lambda: store.generations == 2)
            again = await take(store, 1, seconds=30)
            assert again is not None
            assert again.start == second.start
            assert again.epoch > third.epoch
            found = await store.state.records.cursors.load()
            assert found[2].cursor == tail, "who is not in the copy keeps its place"

    run(story())


def test_a_file_that_is_gone_stops_the_destination_until_it_is_back(tmp_path: Path) -> None:
    """D6: no new, empty file takes its place in silence."""

    async def story() -> None:
        path, away = tmp_path / "meta.db", tmp_path / "away"
        async with running(tmp_path, instance(store=SMALL_LOG)) as store:
            await store.subscribe(1, ALL)
            first = await take(store, 1, seconds=30)
            second = await store.get_without_ack(1, 4, 30.0)
            assert first is not None
            away.mkdir()
            for name in ("meta.db", "meta.db-wal", "meta.db-shm"):
                shutil.move(tmp_path / name, away / name)
            with pytest.raises(ConfigError, match=r"was removed while.*put back its newest copy"):
                await store.ack(1, second.id, second.epoch)
            await until(lambda: store.state.supervisor.state == "failed")
            assert "removed while it was in use" in (await store.status())["error"]
            assert not path.exists()
            for name in ("meta.db", "meta.db-wal", "meta.db-shm"):
                shutil.move(away / name, tmp_path / name)
            await until(lambda: store.state.supervisor.state == "running")
            again = await take(store, 1, seconds=30)
            assert again is not None
            assert again.start == second.start

    run(story())
