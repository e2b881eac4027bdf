"""A destination's records are opened once, and again where their file was damaged."""

from __future__ import annotations

from pathlib import Path

from ray_canal.config import MetaConfig
from ray_canal.destination.ownership import Claim
from ray_canal.destination.records.records import DestinationRecords
from tests.local_destination import instance, run


def test_the_filter_is_read_when_cursors_are_opened_again(tmp_path: Path) -> None:
    async def story() -> None:
        config = instance()
        meta = MetaConfig(path=str(tmp_path / "meta.db"))
        records = DestinationRecords(config, meta, Claim("a"))
        other = DestinationRecords(config, meta, Claim("b"))
        assert await records.open()
        assert not await records.open()
        await other.open()
        epoch = await other.cursors.acquire()
        await other.cursors.run(other.filter.save, epoch, {"tables": r"shop\.a"})
        assert records.filter.now.tables != r"shop\.a"
        records.cursors.damaged = True  # as a call does that finds it so
        assert await records.open()
        assert records.filter.now.tables == r"shop\.a"
        assert not records.cursors.damaged
        await records.close()
        await other.close()

    run(story())
