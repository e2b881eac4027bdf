"""Events that were left out are told and counted."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from ray_canal.binlog.chunk import SkippedEvent
from ray_canal.demo import binlog_files
from ray_canal.destination.skipped import SkippedEvents
from ray_canal.model.position import EntryPosition
from ray_canal.model.subscription import Subscription
from tests.local_destination import ALL, drain, instance, run, running, until
from tests.unit.binlog.test_skip_events import ROWS, UNKNOWN, event, places_of, written
from tests.unit.destination.records.test_schema_records import info


def test_they_are_told_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    """a8: in the program's log, in status, in metrics."""
    caplog.set_level(logging.WARNING)
    skipped = SkippedEvents("orders")
    skipped.note(info())
    assert (skipped.count, skipped.last, caplog.text) == (0, "", "")
    event = SkippedEvent(4711, "unknown (200)", 35, "source.skip_events")
    skipped.note(replace(info(), skipped=(event, event)))
    assert skipped.count == 2
    assert skipped.last == "unknown (200) at bin.000001:4711, 35 bytes (source.skip_events)"
    assert caplog.text.count("destination orders: an event was left out: unknown (200) at") == 2


def test_a_destination_stops_at_an_unknown_event_until_it_is_named(tmp_path: Path) -> None:
    """a8: it stops there, with what lets the event pass; then status counts it and rows go on."""
    data = binlog_files()[0].read_bytes()
    places = places_of(data, ROWS)
    at = places[len(places) // 2]
    path = written(tmp_path, data[:at] + event(UNKNOWN) + data[at:])

    async def story() -> None:
        config = instance([path])
        async with running(tmp_path / "stops", config) as store:
            await until(lambda: store.state.supervisor.state == "failed")
            error = (await store.status())["error"]
            assert f'source.skip_events = ["{path.name}:{at}"]' in error
        source = config.source.model_copy(update={"skip_events": (f"{path.name}:{at}",)})
        config = config.model_copy(update={"source": source})
        async with running(tmp_path / "passes", config) as store:
            await until(lambda: store.state.supervisor.state == "finished")
            status = await store.status()
            assert status["skipped_events"] == 1
            assert status["last_skipped_event"].startswith(f"unknown (200) at {path.name}:{at}")

    run(story())


def test_what_a_subscriber_of_its_own_stream_misses_is_counted_too(tmp_path: Path) -> None:
    """The destination begins behind the event, and one subscriber before it."""
    data = binlog_files()[0].read_bytes()
    places = places_of(data, ROWS)
    at = places[len(places) // 2]
    path = written(tmp_path, data[:at] + event(UNKNOWN) + data[at:])
    config = instance([path])
    begin = {"start": "position", "journal_name": path.name, "position": path.stat().st_size}
    source = config.source.model_copy(update={"on_undecodable": "skip", **begin})

    async def story() -> None:
        there = config.model_copy(update={"source": source})
        async with running(tmp_path / "store", there) as store:
            await until(lambda: store.state.supervisor.state == "finished")
            assert (await store.status())["skipped_events"] == 0
            wishes = Subscription(start=EntryPosition(path.name, 4))
            await store.subscribe(7, ALL, wishes=wishes)
            assert len(await drain(store, 7)) > 10
            assert (await store.status())["skipped_events"] == 1

    run(story())
