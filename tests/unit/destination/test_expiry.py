"""Subscribers that do not call any more: named, expired, removed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ray_canal.demo import binlog_files
from ray_canal.destination import expiry
from ray_canal.errors import NotSubscribed
from ray_canal.model.subscription import Subscription, new_client_id
from tests.local_destination import (
    ALL,
    drain,
    follow_each_other,
    instance,
    run,
    running,
    take,
    until,
)

SMALL_LOG = {"buffer_size": 64, "memunit_bytes": 1024}


def test_who_does_not_call_any_more_is_given_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """B5: subscriber_expire_hours: the log does not wait for who is gone; it is shown, also after a
    restart, and who comes back all the same misses nothing."""

    async def story() -> None:
        config = instance(store={**SMALL_LOG, "subscriber_expire_hours": 2 / 3600})
        async with running(tmp_path, config) as store:
            for client_id in (7, 8):
                await store.subscribe(client_id, ALL)
            first = await take(store, 7)
            assert first is not None
            while not store.state.subscribers.known[7].expired:
                await take(store, 8)
            pipeline = store.state.log.pipeline
            assert pipeline is not None
            await until(lambda: pipeline.store.held_by() in ([], [8]))  # memory follows
            assert "subscriber 7 catches up by a stream of its own: it made no call" in caplog.text
            done = await drain(store, 8)
            assert done[-1].end is not None
        async with running(tmp_path, config) as store:
            found = {each["client_id"]: each for each in await store.subscribers()}
            assert found[7]["expired_at"]
            assert not found[8]["expired_at"]
            assert store.state.log.start == store.state.subscribers.known[8].position
            await store.subscribe(7, ALL)
            assert not store.state.subscribers.known[7].expired
            rest = await drain(store, 7)
            assert follow_each_other([first, *rest])
            assert rest[-1].end == done[-1].end

    run(story())


def test_who_holds_a_full_log_is_named(tmp_path: Path) -> None:
    """B5: status says who keeps the log from going on, for how long, and when it last called."""

    async def story() -> None:
        config = instance(binlog_files()[:1], store=SMALL_LOG)
        async with running(tmp_path, config) as store:
            for client_id in (7, 8):
                await store.subscribe(client_id, ALL)
            await drain(store, 8)
            log = (await store.status())["store"]
            assert log["held_by"] == [7]
            assert log["full_s"] > 0.2
            assert log["subscribers"]["7"]["last_call_s"] > log["subscribers"]["8"]["last_call_s"]
            while any(await asyncio.gather(drain(store, 7), drain(store, 8))):
                continue
            log = (await store.status())["store"]
            assert (log["held_by"], log["full_s"]) == ([], 0.0)

    run(story())


def test_an_ephemeral_subscriber_that_is_silent_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D1: who only looks on holds up nobody, and is removed when its client is gone."""

    async def story() -> None:
        monkeypatch.setattr(expiry, "TICK_S", 0.1)
        monkeypatch.setattr(expiry, "EPHEMERAL_S", 1.0)
        async with running(tmp_path, instance(binlog_files()[:1], store=SMALL_LOG)) as store:
            await store.subscribe(8, ALL)
            guest, wishes = new_client_id(), Subscription(policy="detach", ephemeral=True)
            await store.subscribe(guest, ALL, wishes=wishes, holder="a guest")
            assert await take(store, guest, holder="a guest")
            for _ in range(20):
                await asyncio.sleep(0.1)
                await store.touch(guest, "a guest")
            assert {each["client_id"] for each in await store.subscribers()} == {8, guest}
            await until(lambda: guest not in store.state.subscribers.known)
            assert set(await store.state.records.cursors.load()) == {8}
            with pytest.raises(NotSubscribed, match="should subscribe first"):
                await store.get_without_ack(guest, 1, None, "a guest")
            with pytest.raises(NotSubscribed, match="ephemeral"):
                await store.touch(guest, "a guest")
            assert await take(store, 8)

    run(story())
