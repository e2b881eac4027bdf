"""Generations of a real destination, and its idle time."""

from __future__ import annotations

import asyncio
import traceback
from pathlib import Path

import pytest

from ray_canal.config import InstanceConfig
from ray_canal.demo import binlog_files
from ray_canal.destination.supervisor import IDLE, STOPPED
from ray_canal.errors import (
    CanalError,
    ConfigError,
    InstanceNotRunning,
    InstanceRestarted,
    NotSubscribed,
)
from tests.local_destination import (
    ALL,
    SlowOpening,
    drain,
    instance,
    lose_source,
    new_destination,
    run,
    running,
    take,
    until,
)


def test_who_has_subscribed_to_another_deployment_wakes_one_that_rests(tmp_path: Path) -> None:
    """B3: of two deployments the newer one rested, as nobody had subscribed when it started; who
    had since, with the older one, was told by it to subscribe first."""

    async def story() -> None:
        config = instance(binlog_files()[2:], runs="while_subscribed")
        older, newer = new_destination(tmp_path, config), new_destination(tmp_path, config)
        try:
            await until(lambda: newer.state.supervisor.state == "idle")
            await older.subscribe(1, ALL, holder="me")
            assert await take(newer, 1, holder="me", seconds=30)
            with pytest.raises(NotSubscribed):
                await take(newer, 2)
        finally:
            await newer.stop()
            await older.stop()

    run(story())


def test_a_lost_source_begins_another_generation_with_what_was_not_acked(tmp_path: Path) -> None:
    async def story() -> None:
        async with running(tmp_path, instance(binlog_files()[:1])) as destination:
            state = destination.state
            await destination.subscribe(7, ALL)
            first = await take(destination, 7)
            held = await destination.get_without_ack(7, 4, 5.0)
            assert first is not None
            epoch = state.guard.epoch
            lose_source(destination)
            await until(lambda: destination.generations == 2)
            assert state.guard.epoch > epoch
            assert destination.api.activity.errors == 1
            with pytest.raises(InstanceRestarted, match="void"):
                await destination.ack(7, held.id, held.epoch)
            again = await destination.get_without_ack(7, 4, 5.0)
            assert (again.start, again.end) == (held.start, held.end)

    run(story())


def test_it_is_idle_without_subscribers_where_the_configuration_says_so(tmp_path: Path) -> None:
    async def story() -> None:
        destination = new_destination(tmp_path, instance(runs="while_subscribed"))
        supervisor = destination.state.supervisor
        try:
            await until(lambda: supervisor.state == IDLE)
            assert destination.generations == 0
            await destination.subscribe(7, ALL)
            assert destination.state.log.pipeline is not None
            assert destination.generations == 1
            await destination.unsubscribe(7)
            await until(lambda: supervisor.state == IDLE)
            assert destination.state.log.pipeline is None
            assert destination.state.log.start is None
        finally:
            await destination.stop()

    run(story())


def test_after_a_stop_every_call_says_so(tmp_path: Path) -> None:
    async def story() -> None:
        async with running(tmp_path) as destination:
            await destination.subscribe(7, ALL)
        assert destination.state.supervisor.state == STOPPED
        for call in (
            destination.subscribe(7, ALL),
            destination.get_without_ack(7, 1, None),
            destination.subscribers(),
            destination.change_instance_filter({"tables": "a"}),
        ):
            with pytest.raises(InstanceNotRunning, match="stopped"):
                await call
        assert (await destination.status())["state"] == STOPPED

    run(story())


def test_what_keeps_it_from_its_start_is_told_again_and_again_at_no_cost(tmp_path: Path) -> None:
    async def story() -> None:
        config = instance([tmp_path / "none"])
        destination = new_destination(tmp_path, config)
        with pytest.raises(CanalError):
            await destination.wait_running(60)
        frames = []
        for _ in range(3):
            with pytest.raises(CanalError) as caught:
                await destination.wait_running(60)
            frames.append(len(traceback.extract_tb(caught.tb)))
        await destination.stop()
        assert len(set(frames)) == 1

    run(story())


def test_a_changed_filter_counts_from_every_cursor_on_and_after_a_restart(tmp_path: Path) -> None:
    async def story() -> None:
        config = instance(binlog_files()[:1])
        async with running(tmp_path, config) as destination:
            await destination.subscribe(7, ALL)
            all_rows = sum(head.row_count for head in await drain(destination, 7))
            await destination.operate(7, "seek", "earliest")
            changed = await destination.change_instance_filter({"tables": r"shop\.customers"})
            assert changed["tables"] == r"shop\.customers"
            some = sum(head.row_count for head in await drain(destination, 7))
            assert 0 < some < all_rows
            with pytest.raises(ConfigError):
                await destination.change_instance_filter({"tables": "("})
        async with running(tmp_path, config) as destination:
            assert destination.state.config.now.filter.tables == r"shop\.customers"

    run(story())


def going_on() -> InstanceConfig:
    """A destination that runs for subscribers, over a file that may still grow."""
    config = instance(runs="while_subscribed")
    source = config.source.model_copy(update={"follow": True})
    return config.model_copy(update={"source": source})


def test_the_last_one_leaves_while_the_source_is_opened_again(tmp_path: Path) -> None:
    """Then nobody is there for whom it would read; a stop ends it all the same."""

    async def story() -> None:
        destination = new_destination(tmp_path, going_on())
        try:
            await destination.subscribe(7, ALL)
            assert await take(destination, 7, seconds=10)
            with SlowOpening() as opening:
                lose_source(destination)
                await opening.began.wait()
                await destination.unsubscribe(7)
                opening.go.set()
                await until(lambda: destination.state.supervisor.state == IDLE)
            await destination.subscribe(7, ALL)
            assert await take(destination, 7, seconds=10)
        finally:
            await asyncio.wait_for(destination.stop(), 20)

    run(story())


def test_a_stop_ends_what_ends_for_lack_of_subscribers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two ends of one generation in the same moment: the idle one was waited for indefinitely."""

    async def story() -> None:
        destination = new_destination(tmp_path, going_on())
        await destination.subscribe(7, ALL)
        assert await take(destination, 7, seconds=10)
        lifecycle, supervisor = destination.api._lifecycle, destination.state.supervisor
        end_if_deserted, ends = lifecycle.end_if_deserted, []

        def at_once() -> None:
            end_if_deserted()
            ends.append(asyncio.create_task(supervisor.end()))

        monkeypatch.setattr(lifecycle, "end_if_deserted", at_once)
        await destination.unsubscribe(7)
        await asyncio.wait_for(asyncio.gather(*ends), 20)
        await asyncio.wait_for(destination.stop(), 20)
        assert supervisor.state == STOPPED

    run(story())


def test_a_stop_waits_for_a_filter_that_is_being_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It began a life after the stop, which nobody could end."""

    async def story() -> None:
        destination = new_destination(tmp_path, instance())
        await destination.wait_running(60)
        supervisor = destination.state.supervisor
        ended, go, end = asyncio.Event(), asyncio.Event(), supervisor.end

        async def slow() -> None:
            await end()
            if not ended.is_set():
                ended.set()
                await go.wait()

        monkeypatch.setattr(supervisor, "end", slow)
        changing = asyncio.create_task(destination.change_instance_filter({"tables": "a\\..*"}))
        await ended.wait()
        stopping = asyncio.create_task(destination.stop())
        await asyncio.sleep(0.2)
        go.set()
        await asyncio.gather(changing, stopping)
        assert supervisor.state == STOPPED
        assert supervisor._life is None or supervisor._life.done()

    run(story())
