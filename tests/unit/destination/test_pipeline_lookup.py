"""Which pipeline serves a subscriber: the log's, or its catch-up's."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ray_canal.destination.pipeline_lookup import PipelineLookup
from ray_canal.errors import ConfigError
from ray_canal.model.subscription import Subscription
from tests.local_destination import ALL, instance, lose_source, run, running, take, until

SMALL_LOG = {"buffer_size": 64, "memunit_bytes": 1024}


def test_subscribers_are_at_the_log_or_at_a_catch_up_of_their_own(tmp_path: Path) -> None:
    async def story() -> None:
        async with running(tmp_path, instance(store=SMALL_LOG)) as destination:
            lookup: PipelineLookup = destination.api.lookup
            main = destination.state.log.pipeline
            await destination.subscribe(8, ALL)
            assert lookup.now(8) is main is await lookup.of(8)
            for _ in range(30):
                assert await take(destination, 8, 4, seconds=30)
            cursor = destination.state.subscribers.known[8].cursor
            assert cursor is not None
            start = destination.state.log.start
            await destination.subscribe(7, ALL, wishes=Subscription(start=start))
            own = await lookup.of(7)
            assert own is lookup.now(7) is not main
            assert lookup.now(8) is main
            with pytest.raises(ConfigError):
                await lookup.of(-1)

    run(story())


def test_a_turn_is_at_the_pipeline_of_that_moment(tmp_path: Path) -> None:
    async def story() -> None:
        async with running(tmp_path, instance(store=SMALL_LOG)) as destination:
            lookup: PipelineLookup = destination.api.lookup
            await destination.subscribe(7, ALL)
            entered = asyncio.Event()

            async def second() -> bool:
                async with lookup.turn(7) as pipeline:
                    entered.set()
                    return pipeline is lookup.now(7) is not before

            before = destination.state.log.pipeline
            async with lookup.turn(7):
                waiting = asyncio.ensure_future(second())
                await asyncio.sleep(0.05)
                assert not entered.is_set()
                lose_source(destination)
                await until(lambda: destination.generations == 2)
                assert not entered.is_set()
            assert await waiting

    run(story())
