"""Subscribers of a real destination with purged or old cursors: nobody else suffers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ray_canal.config import InstanceConfig
from ray_canal.demo import binlog_files
from ray_canal.destination.catch_up import CatchUp
from ray_canal.errors import CanalError, ConnectionLost, PositionPurged
from ray_canal.model.subscription import Subscription
from tests.local_destination import (
    ALL,
    drain,
    follow_each_other,
    instance,
    run,
    running,
    take,
)

SMALL_LOG = {"buffer_size": 64, "memunit_bytes": 1024}


def test_nobody_reads_again_for_one_who_is_far_behind(tmp_path: Path) -> None:
    """b16: a new life begins at the newest cursors; who is more than a log behind catches up by a
    stream of its own, misses nothing, and comes back."""

    async def story() -> None:
        config = instance(binlog_files()[:1], store=SMALL_LOG)
        async with running(tmp_path, config) as store:
            await store.subscribe(8, ALL)
            start = store.state.subscribers.known[8].cursor
            assert start is not None
            heads = [head for _ in range(120) if (head := await take(store, 8, 1)) is not None]
            late = heads[-1].ack
            assert late is not None
            assert late.position - start.position.position > 2 * 64 * 1024
            await store.subscribe(7, ALL, wishes=Subscription(start=start.position))
            first = await take(store, 7)
            assert first is not None
        async with running(tmp_path, config) as store:
            assert store.state.log.start == late
            following = await take(store, 8)
            assert following is not None
            assert follow_each_other([heads[-1], following])
            assert (await store.status())["store"]["subscribers"]["7"]["detached"]
            rest = await drain(store, 7)
            more = rest
            while more:
                more, _ = await asyncio.gather(drain(store, 7), drain(store, 8))
                rest += more
            assert follow_each_other([first, *rest])
            cursors = {each["client_id"]: each["cursor"] for each in await store.subscribers()}
            assert cursors[7] == cursors[8]
            assert "detached" not in (await store.status())["store"]["subscribers"]["7"]

    run(story())


@pytest.mark.parametrize(
    ("standby", "connected", "kind"),
    [
        (["db2:3306"], True, PositionPurged),
        (["db2:3306"], False, ConnectionLost),  # the destination may go there
        (["db2:3306"], None, ConnectionLost),
        ([], False, PositionPurged),
    ],
)
def test_what_is_purged_may_be_at_the_standby(
    standby: list[str], connected: bool | None, kind: type[CanalError]
) -> None:
    """A stream of a subscriber's own was open again before its destination was, found its place
    purged, and told the client so, though the destination then went to a standby that had it."""
    source = {"address": "db1:3306", "username": "canal", "standby": standby}
    config = InstanceConfig.model_validate({"destination": "x", "source": source})

    async def status() -> Any:
        return None if connected is None else SimpleNamespace(connected=connected)

    async def story() -> None:
        main = SimpleNamespace(ended=False, pump=SimpleNamespace(source_status=status))
        state: Any = SimpleNamespace(
            config=SimpleNamespace(now=config),
            log=SimpleNamespace(pipeline=main),
            folders=SimpleNamespace(new=lambda: None),
        )
        told = await CatchUp(state, config, 7, 0)._told(PositionPurged("it has purged the cursor"))
        assert type(told) is kind
        assert "it has purged the cursor" in str(told)

    run(story())
