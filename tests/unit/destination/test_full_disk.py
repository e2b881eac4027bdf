"""The file of the cursors on a disk that is full, or mounted read-only: real file systems of some
megabytes."""

from __future__ import annotations

import pytest

from ray_canal.config import MetaConfig
from ray_canal.errors import InstanceNotRunning, MetaUnavailable
from ray_canal.meta.checks import check_cursors
from ray_canal.model.message import EMPTY_BATCH, MessageHead
from tests.fixture_disk import SmallDisk
from tests.local_destination import (
    ALL,
    LocalDestination,
    drain,
    follow_each_other,
    instance,
    new_destination,
    run,
    take,
    until,
)


async def taken_of(disk: SmallDisk) -> tuple[LocalDestination, MessageHead]:
    """A destination on a disk, and what its subscriber took and acked."""
    destination = new_destination(disk.folder)
    await destination.wait_running(60)
    await destination.subscribe(1, ALL)
    first = await take(destination, 1, seconds=30)
    assert first is not None
    return destination, first


async def goes_on(destination: LocalDestination, first: MessageHead) -> None:
    """What was acked is durable, and the rest comes once."""
    await destination.wait_running(60)
    assert follow_each_other([first, *await drain(destination, 1)])
    await destination.stop()


async def refused(destination: LocalDestination, disk: SmallDisk) -> None:
    """Nothing is acked, and the error says what to do."""
    head = await destination.get_without_ack(1, 4, 30.0)
    for _ in range(2):
        with pytest.raises(MetaUnavailable, match=r"disk is full.*Free space there"):
            await destination.ack(1, head.id, head.epoch)
    with pytest.raises(MetaUnavailable, match=str(disk.folder)):
        await destination.subscribe(2, ALL)
    assert head.id in await destination.list_batch_ids(1)


def test_acks_wait_for_room_on_the_disk(disk: SmallDisk) -> None:
    """They are refused; gets go on; what is acked again then is durable and comes once."""

    async def story() -> None:
        destination, first = await taken_of(disk)
        disk.fill()
        await refused(destination, disk)
        assert (await destination.get_without_ack(1, 4, 30.0)).id != EMPTY_BATCH
        await destination.stop()  # what was not acked is not durable either
        destination = new_destination(disk.folder)
        with pytest.raises(InstanceNotRunning, match="Free space there"):
            await destination.wait_running(30)
        status = await destination.status()
        assert "Free space there" in status["error"]
        disk.make_room()
        await until(lambda: destination.generations == 1)  # by itself
        await goes_on(destination, first)

    run(story())


def test_a_generation_that_begins_on_a_full_disk_waits_for_room(disk: SmallDisk) -> None:
    async def story() -> None:
        destination, first = await taken_of(disk)
        disk.fill()
        destination.state.log.fail(InstanceNotRunning("the source is away"))
        await until(lambda: "Free space there" in str(destination.state.supervisor.failure))
        disk.make_room()
        await until(lambda: destination.generations == 2)
        await goes_on(destination, first)

    run(story())


def test_a_start_on_a_full_disk_waits_for_room(disk: SmallDisk) -> None:
    """A file that was closed has no -shm and no -wal, and SQLite does not say why it makes none:
    the start was given up, with the advice to put back an older copy."""

    async def story() -> None:
        destination, first = await taken_of(disk)
        await destination.stop()
        disk.fill()
        meta = MetaConfig(path=str(disk.folder / "meta.db"))
        told = check_cursors(meta, "x")
        assert not told.ok
        assert "Free space there" in told.detail
        destination = new_destination(disk.folder)
        with pytest.raises(MetaUnavailable, match="Free space there") as caught:
            await destination.wait_running(30)
        assert "put back" not in str(caught.value)
        disk.make_room()
        await until(lambda: destination.generations == 1)
        await goes_on(destination, first)

    run(story())


def test_a_disk_that_is_mounted_read_only_is_named(disk: SmallDisk) -> None:
    """The advice was to put back an older copy, which loses what was acked since."""

    async def story() -> None:
        destination, first = await taken_of(disk)
        await destination.stop()
        disk.remount("ro")
        meta = MetaConfig(path=str(disk.folder / "meta.db"))
        destination = LocalDestination(instance(), meta)
        with pytest.raises(MetaUnavailable, match="mounted read-only") as caught:
            await destination.wait_running(30)
        assert "put back" not in str(caught.value)
        disk.remount("rw")
        await until(lambda: destination.generations == 1)
        await goes_on(destination, first)

    run(story())
