"""A destination without subscribers: where its log begins, in each of its lives."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ray_canal.config import SourceConfig
from ray_canal.demo import binlog_files
from ray_canal.destination.records.start_record import StartRecord
from ray_canal.meta.manager import MetaManager
from ray_canal.meta.memory import MemoryBackend
from ray_canal.model.position import EntryPosition, LogPosition, SourceIdentity
from tests.local_destination import (
    ALL,
    instance,
    lose_source,
    new_destination,
    run,
    running,
    take,
    until,
)

PLACE = LogPosition(SourceIdentity("db", "uuid"), EntryPosition("bin.000001", 4711, gtid="a:1"))


def source(**settings: object) -> SourceConfig:
    return SourceConfig.model_validate({"address": "db:3306", **settings})


def test_the_record_counts_as_long_as_the_configuration_says_the_same() -> None:
    meta = MetaManager(MemoryBackend())
    epoch = meta.acquire("x")
    StartRecord("x", source()).save(meta, epoch, PLACE)
    found = StartRecord("x", source()).load(meta)
    assert found == PLACE
    assert found is not None
    assert found.position.gtid == "a:1"
    assert StartRecord("x", source(start="earliest")).load(meta) is None
    assert meta.load("x") == {}
    other = StartRecord("x", source())
    other.forget(meta, epoch)
    assert other.load(meta) is None
    assert not meta.has_start("x")


def test_a_damaged_record_stops_nobody(caplog: pytest.LogCaptureFixture) -> None:
    backend = MemoryBackend()
    meta = MetaManager(backend)
    backend.save("x", meta.acquire("x"), -4, "damaged")
    assert StartRecord("x", source()).load(meta) is None
    assert "source.start counts" in caplog.text


def test_whoever_subscribes_first_gets_what_the_first_life_began_with(tmp_path: Path) -> None:
    """b15: neither a lost connection nor a process that takes over jumps, in silence or at all."""

    async def story() -> None:
        files = [Path(shutil.copy(path, tmp_path)) for path in binlog_files()]
        config = instance(files[1:])
        first = new_destination(tmp_path, config)
        await first.wait_running(30)
        began = first.state.log.start
        lose_source(first)
        await until(lambda: first.generations == 2)
        assert first.state.log.start == began
        # As if its process had died: nobody stops it. By now the files begin earlier.
        async with running(tmp_path, instance(files)) as second:
            assert second.state.log.start == began
            await second.subscribe(7, ALL)
            head = await take(second, 7, seconds=20.0)
            assert head is not None
            assert head.start is not None
            assert head.start.journal_name == files[1].name
            lose_source(second)
            await until(lambda: second.generations == 2)
            reached = second.state.log.start
            assert reached != began
            await second.unsubscribe(7)
            lose_source(second)
            await until(lambda: second.generations == 3)
            assert second.state.log.start == reached
        await first.stop()
        async with running(tmp_path, instance(files)) as third:  # stopped, and started again
            assert third.state.log.start is not None
            assert third.state.log.start.journal_name == files[0].name

    run(story())


def test_a_destination_that_is_handed_over_goes_on_where_it_began(tmp_path: Path) -> None:
    """Its node drains, say, or it gets another password: nobody has stopped it."""

    async def story() -> None:
        files = [Path(shutil.copy(path, tmp_path)) for path in binlog_files()]
        first = new_destination(tmp_path, instance(files[1:]))
        await first.wait_running(30)
        began = first.state.log.start
        await first.stop(for_good=False)
        async with running(tmp_path, instance(files)) as second:
            assert second.state.log.start == began

    run(story())


def test_nothing_is_refused_for_nobody(tmp_path: Path) -> None:
    """B8: where the log of nobody began is gone, it begins where the configuration says."""

    async def story() -> None:
        files = [Path(shutil.copy(path, tmp_path)) for path in binlog_files()]
        async with running(tmp_path, instance(files, chunk_bytes=4096)) as store:
            files[0].unlink()
            store.state.config.now = store.state.config.now.model_copy(
                update={"source": instance(files[1:]).source}
            )
            lose_source(store)
            await until(lambda: store.generations == 2)
            assert store.state.log.start is not None
            assert store.state.log.start.journal_name == files[1].name
            await store.subscribe(7, ALL)
            assert await take(store, 7)

    run(story())
