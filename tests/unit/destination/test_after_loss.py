"""on_purged, on_reset = "snapshot": whose place is gone goes on at the log's end, with a snapshot
whose reason names the gap."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ray_canal.destination import after_loss
from ray_canal.errors import CanalError, MetaUnavailable, PositionNotFound, PositionPurged
from ray_canal.model.position import EntryPosition
from ray_canal.source.start.files_log import FilesLog
from tests.local_destination import (
    ALL,
    LocalDestination,
    binlog_files,
    instance,
    run,
    running,
    take,
    until,
)


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(after_loss, "_TICK_S", 0.02)


def tail(store: LocalDestination) -> EntryPosition:
    """Where the log ends."""
    assert store.state.log.pipeline is not None
    return store.state.log.pipeline.store.tail_position


def story_of(
    folder: Path, failure: CanalError, on_purged: str = "snapshot", on_reset: str = "fail"
) -> tuple[Any, Any, Any]:
    """Let one of two subscribers fail; return its place before, its record, and the log's end."""
    found: list[Any] = []

    async def story() -> None:
        policies = {"on_purged": on_purged, "on_reset": on_reset}
        source = {"files": instance().source.files, "follow": True, **policies}
        async with running(folder, instance(source=source)) as store:
            await store.subscribe(7, ALL)
            await store.subscribe(8, ALL)
            assert await take(store, 7, seconds=20.0)
            executed = FilesLog(binlog_files()).executed()
            await until(lambda: tail(store).gtid == executed)  # it has read all
            before = store.state.subscribers.known[7]
            timeline = store.state.records.timeline
            first = timeline.number
            store.api._catch_ups.set_apart({7: failure})
            for _ in range(50):
                await asyncio.sleep(0.02)
                if store.state.subscribers.known[7].snapshot:
                    break
            found.extend((before, store.state.subscribers.known[7], tail(store)))
            others = store.state.subscribers.known[8]
            assert not others.snapshot
            if found[1].snapshot:
                told = await store.api.snapshot(7, "status")
                found[1] = (found[1], told)
            # Another log's end may lie before what was taken; a purged log is the same one.
            is_another = bool(before != found[1]) and not isinstance(failure, PositionPurged)
            assert (timeline.number > first) == is_another

    run(story())
    return tuple(found)  # type: ignore[return-value]


def test_it_goes_on_at_the_end_with_a_snapshot(tmp_path: Path) -> None:
    before, (now, told), end = story_of(tmp_path, PositionPurged("gone"))
    assert now.position == end.boundary > before.position
    assert told["reason"] == f"purged from {before.position}"


def other_log() -> PositionNotFound:
    error = PositionNotFound("it was reset")
    error.other_log = True
    return error


def test_a_server_that_was_reset(tmp_path: Path) -> None:
    before, (now, told), end = story_of(tmp_path, other_log(), "fail", "snapshot")
    assert now.position == end.boundary > before.position
    assert told["reason"] == f"another log than that of {before.position}"


@pytest.mark.parametrize(
    ("failure", "on_purged", "on_reset"),
    [
        (PositionNotFound("nowhere"), "snapshot", "snapshot"),
        (other_log(), "snapshot", "fail"),
        (PositionPurged("gone"), "fail", "snapshot"),
    ],
)
def test_another_failure_is_left_to_people(
    tmp_path: Path, failure: CanalError, on_purged: str, on_reset: str
) -> None:
    before, now, _ = story_of(tmp_path, failure, on_purged, on_reset)
    assert now == before


def test_it_has_to_be_asked_for(tmp_path: Path) -> None:
    before, now, _ = story_of(tmp_path, PositionPurged("gone"), "fail")
    assert now == before


def test_where_cursors_are_away_it_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []

    async def look(_: object) -> None:
        looks.append(1)
        raise MetaUnavailable("the server of the cursors is away")

    monkeypatch.setattr(after_loss.AfterLoss, "_look", look)

    async def story() -> None:
        source = {"files": instance().source.files, "on_purged": "snapshot"}
        async with running(tmp_path, instance(source=source)):
            await until(lambda: len(looks) > 2)

    run(story())
