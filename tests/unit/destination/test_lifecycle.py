"""Generations of a real destination, and its idle time."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest

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
