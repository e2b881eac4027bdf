"""Two deployments of one destination, each with a real destination over the same meta file."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ray_canal.config import MetaConfig
from ray_canal.destination.ownership import Claim
from ray_canal.errors import BatchNotFound, Fenced, InstanceRestarted, MetaDamaged
from ray_canal.meta.manager import MetaManager
from ray_canal.meta.sqlite import SqliteBackend
from tests.local_destination import (
    ALL,
    LocalDestination,
    follow_each_other,
    instance,
    run,
    take,
    until,
)


@contextlib.asynccontextmanager
async def store_of(folder: Path, claim: Claim) -> AsyncIterator[LocalDestination]:
    meta = MetaConfig(path=str(folder / "meta.db"))
    small = {"buffer_size": 64, "memunit_bytes": 1024}
    store = LocalDestination(instance(store=small), meta, claim)
    try:
        yield store
    finally:
        await store.stop()


async def state_of(store: LocalDestination) -> tuple[Any, bool]:
    status = await store.status()
    return status["state"], "Fenced" in (status["error"] or "")


def test_a_fenced_deployment_stays_fenced_when_its_actor_restarts(tmp_path: Path) -> None:
    """B3: only a start takes a destination; a restart of its actor goes on with what it had."""

    async def story() -> None:
        old_claim, new_claim = Claim("old"), Claim("new")
        async with store_of(tmp_path, old_claim) as old:
            await old.wait_running(60)
            await old.subscribe(1, ALL)
            first = await take(old, 1, seconds=30)
            assert first is not None
        async with store_of(tmp_path, old_claim) as again:  # nobody else came: it goes on
            await again.wait_running(60)
            async with store_of(tmp_path, new_claim) as new:
                await new.wait_running(60)
                with pytest.raises(Fenced):
                    await again.get_without_ack(1, 1, 0.1)
                async with store_of(tmp_path, old_claim) as restarted:
                    with pytest.raises(Fenced, match="stop it here and start it again"):
                        await restarted.wait_running(60)
                    await new.subscribe(2, ALL)
                    second = await take(new, 1, seconds=30)
                    assert second is not None
                    assert follow_each_other([first, second])
                    assert await state_of(restarted) == ("failed", True)
                    assert await state_of(new) == ("running", False)

    run(story())


def test_cursors_that_were_put_back_from_a_copy(tmp_path: Path) -> None:
    """D4: an old batch id is never taken for another batch, and an old epoch never comes again."""

    async def story() -> None:
        path, copy = tmp_path / "meta.db", tmp_path / "copy.db"
        async with store_of(tmp_path, Claim()) as store:
            await store.wait_running(60)
            await store.subscribe(1, ALL)
            assert await take(store, 1, seconds=30)
        shutil.copy(path, copy)
        async with store_of(tmp_path, Claim()) as store:
            await store.wait_running(60)
            await store.subscribe(1, ALL)
            old = [await store.get_without_ack(1, 4, 30.0) for _ in range(3)]
        shutil.copy(copy, path)
        async with store_of(tmp_path, Claim()) as store:
            await store.wait_running(60)
            await store.subscribe(1, ALL)
            new = [await store.get_without_ack(1, 4, 30.0) for _ in range(3)]
            assert new[0].epoch > old[0].epoch
            for head in old:
                with pytest.raises(InstanceRestarted):
                    await store.ack(1, head.id, head.epoch)
            assert await store.list_batch_ids(1) == [head.id for head in new]

    run(story())


def test_ids_begin_at_one_and_an_old_one_is_void_without_its_epoch(tmp_path: Path) -> None:
    """a12: small ids, and yet an ack of before a restart hits nothing (Canal's TCP clients name no
    epoch)."""

    async def story() -> None:
        async with store_of(tmp_path, Claim()) as store:
            await store.wait_running(60)
            await store.subscribe(1, ALL)
            old = [await store.get_without_ack(1, 4, 30.0) for _ in range(3)]
            assert [head.id for head in old] == [1, 2, 3]
        async with store_of(tmp_path, Claim()) as store:
            await store.wait_running(60)
            await store.subscribe(1, ALL)
            new = await store.get_without_ack(1, 4, 30.0)
            assert 3 < new.id < 1 << 31
            for head in old:
                with pytest.raises((InstanceRestarted, BatchNotFound)):
                    await store.ack(1, head.id, None)
            await store.ack(1, new.id, None)

    run(story())


def test_a_server_that_forgot_the_epoch_is_gone_on_with(tmp_path: Path) -> None:
    """D4: Redis after a failover, for example: batches are void, a new epoch is taken, no end."""

    async def story() -> None:
        async with store_of(tmp_path, Claim()) as store:
            await store.wait_running(60)
            await store.subscribe(1, ALL)
            first = await take(store, 1, seconds=30)
            assert first is not None
            head = await store.get_without_ack(1, 4, 30.0)
            backend = SqliteBackend(str(tmp_path / "meta.db"))
            backend._database.execute("update epoch set epoch = epoch - 1000, owner = 'before'")
            backend.close()
            with pytest.raises(InstanceRestarted, match="put back from a copy"):
                await store.ack(1, head.id, head.epoch)
            await until(lambda: store.generations == 2)
            again = await take(store, 1, seconds=30)
            assert again is not None
            assert (again.start, again.epoch > head.epoch) == (head.start, True)

    run(story())


@pytest.mark.parametrize("runs", ["always", "while_subscribed"])
def test_what_a_server_forgot_of_subscribers_is_written_again(tmp_path: Path, runs: str) -> None:
    """A Redis without a file that restarts, a copy from before somebody subscribed: nobody has to
    subscribe again, and to begin elsewhere."""

    async def story() -> None:
        meta = MetaConfig(path=str(tmp_path / "meta.db"))
        small = {"buffer_size": 64, "memunit_bytes": 1024}
        store = LocalDestination(instance(store=small, runs=runs), meta)
        try:
            await store.subscribe(1, ALL)
            first = await take(store, 1, seconds=30)
            assert first is not None
            await store.change_instance_filter({"black_tables": r"nowhere\..*"})
            await until(lambda: store.state.supervisor.state == "running")
            with contextlib.closing(SqliteBackend(meta.path)) as backend:
                for table in ("epoch", "subscriber"):
                    backend._database.execute(f"delete from {table}")
                again = None
                while again is None:  # the get that finds it out has nothing of the next log
                    again = await take(store, 1, ack=False, seconds=30)
                assert follow_each_other([first, again])
                await store.ack(1, again.id, again.epoch)
                manager = MetaManager(backend)
                assert manager.load("x")[1].position == again.ack
                assert "nowhere" in manager.load_filter("x")
        finally:
            await store.stop()

    run(story())


def test_a_process_that_finds_its_cursors_gone_begins_nowhere(tmp_path: Path) -> None:
    """At source.start it would leave out what came meanwhile, without a word."""

    async def story() -> None:
        claim, away = Claim(), tmp_path / "away"
        async with store_of(tmp_path, claim) as store:
            await store.subscribe(1, ALL)
            first = await take(store, 1, seconds=30)
        (tmp_path / "meta.db").rename(away)
        async with store_of(tmp_path, claim) as store:
            with pytest.raises(MetaDamaged, match="nothing of this destination is there any more"):
                await store.subscribe(1, ALL)
            for name in ("meta.db-wal", "meta.db-shm"):
                (tmp_path / name).unlink()
            away.rename(tmp_path / "meta.db")
            await until(lambda: store.state.supervisor.state == "running")
            second = await take(store, 1, seconds=30)
            assert first is not None
            assert second is not None
            assert follow_each_other([first, second])

    run(story())
