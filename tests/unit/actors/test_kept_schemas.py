"""What is kept of schemas: quarantine up to its limit."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from ray_canal.actors.kept_schemas import KeptSchemas
from ray_canal.binlog.chunk import ENTRY, GTID, ChunkHead, ChunkInfo
from ray_canal.config import InstanceConfig, MetaConfig
from ray_canal.errors import DecodeError, QuarantineFull
from ray_canal.meta.schema_store import open_schema_store
from ray_canal.protocol.schema_record import Quarantined


def info(*held: Quarantined) -> ChunkInfo:
    head = ChunkHead(0, "bin.000001", 4, 5)
    return ChunkInfo(head, 1, 1, np.zeros(0, ENTRY), np.zeros(0, GTID), (), quarantined=held)


def held(position: int, size: int) -> Quarantined:
    data = bytes(size)
    return Quarantined("s", "bin.000001", position, (("db", "t"),), 1.0, "it was altered", data)


def test_quarantine_ends_at_its_limit(tmp_path: Path) -> None:
    asyncio.run(fill_up(tmp_path))


async def fill_up(tmp_path: Path) -> None:
    meta = MetaConfig(path=str(tmp_path / "meta.db"))
    config = InstanceConfig.model_validate(
        {
            "destination": "d",
            "source": {"address": "h:1"},
            "tsdb": {"on_ddl_error": "quarantine", "quarantine_bytes_max": 100},
        }
    )

    async def opened() -> KeptSchemas:
        kept = KeptSchemas(meta, config)
        await kept.open()
        return kept

    kept = await opened()
    for chunk in (held(4, 60), held(9, 40), held(9, 40)):  # the same again counts once
        await kept.keep(info(chunk))
    assert (kept.quarantine_bytes, kept.quarantined()) == (100, ["db.t"])
    for one in (kept, await opened()):
        with pytest.raises(QuarantineFull, match=r"db\.t .*101 bytes.* is 100\. .*redrive") as full:
            await one.keep(info(held(20, 1)))
        assert (full.value.journal_name, full.value.position) == ("bin.000001", 20)
        assert isinstance(full.value, DecodeError)  # so the destination stops
    store = open_schema_store(meta, "")
    assert len(store.quarantined("d")) == 2, "nothing of it was kept, nothing dropped"
    store.release("d", held(4, 60))  # by redrive, meanwhile
    await kept.keep(info(held(20, 1)))
    assert kept.quarantine_bytes == 41
    store.close()
    await kept.close()
