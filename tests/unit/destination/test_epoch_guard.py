"""The epoch under which a destination writes, over a real meta file."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ray_canal.config import MetaConfig
from ray_canal.destination.current_log import CurrentLog
from ray_canal.destination.epoch_guard import EpochGuard
from ray_canal.destination.log_pipeline import LogPipeline
from ray_canal.destination.ownership import Claim, Ownership
from ray_canal.destination.supervisor import FAILED, STARTING, Supervisor
from ray_canal.destination.wakeup import Wakeup
from ray_canal.errors import EpochLost, Fenced, MetaUnavailable
from ray_canal.meta.manager import SubscriberMeta
from tests.local_destination import NAME, instance, run
from tests.local_runtime import LocalRuntime


class Owner:
    """One owner of the destination, with a log that could be ended."""

    def __init__(self, folder: Path) -> None:
        self.cursors = Ownership(NAME, MetaConfig(path=str(folder / "meta.db")), Claim())
        changed, self.log = Wakeup(), CurrentLog()
        self.log.pipeline = LogPipeline(
            instance(), str(folder / "log"), changed, None, LocalRuntime()
        )
        self.supervisor = Supervisor(changed, 1.0)
        self.guard = EpochGuard(self.cursors, self.supervisor, self.log)


async def opened(folder: Path) -> Owner:
    owner = Owner(folder)
    await owner.cursors.open()
    return owner


def test_an_epoch_is_taken_once_for_writing_and_anew_for_a_generation(tmp_path: Path) -> None:
    async def story() -> None:
        owner = await opened(tmp_path)
        assert owner.guard.epoch == 0
        first = await owner.guard.for_writing()
        assert await owner.guard.for_writing() == first > 0
        second = await owner.guard.take_new()
        assert owner.guard.epoch == second > first
        await owner.cursors.close()

    run(story())


def test_those_who_take_an_epoch_at_once_take_one(tmp_path: Path) -> None:
    """Three unsubscribes beside a start took three, and the start gave up: fenced by its own."""

    async def story() -> None:
        owner = await opened(tmp_path)
        guard = owner.guard
        first, *others = await asyncio.gather(
            guard.take_new(), guard.for_writing(), guard.for_writing(), guard.for_writing()
        )
        assert set(others) == {first} == {guard.epoch}
        await guard.run(owner.cursors.save(first, SubscriberMeta(7, "", None)))
        await guard.confirm()
        await owner.cursors.close()

    run(story())


def test_an_owner_that_was_replaced_gives_up(tmp_path: Path) -> None:
    async def story() -> None:
        old, new = await opened(tmp_path), await opened(tmp_path)
        epoch = await old.guard.take_new()
        await new.guard.take_new()
        with pytest.raises(Fenced):
            await old.guard.run(old.cursors.save(epoch, SubscriberMeta(7, "", None)))
        assert old.supervisor.state == FAILED
        assert isinstance(old.supervisor.failure, Fenced)
        assert new.supervisor.state == STARTING
        assert await new.cursors.load() == {}
        for owner in (old, new):
            await owner.cursors.close()

    run(story())


def test_a_forgotten_epoch_ends_the_generation_alone(tmp_path: Path) -> None:
    async def story() -> None:
        owner = await opened(tmp_path)

        async def lost() -> None:
            raise EpochLost("the server was put back from a copy")

        async def away() -> None:
            raise MetaUnavailable("the server is away")

        assert owner.log.pipeline is not None
        with pytest.raises(MetaUnavailable):
            await owner.guard.run(away())
        assert not owner.log.pipeline.failed
        with pytest.raises(EpochLost):
            await owner.guard.run(lost())
        assert owner.log.pipeline.failed
        assert owner.supervisor.state == STARTING
        await owner.log.pipeline.close()
        await owner.cursors.close()

    run(story())
