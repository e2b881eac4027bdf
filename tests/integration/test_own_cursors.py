"""Cursors on the server that is the source, under another name: acks are no changes. C7."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path

from ray_canal.config import MetaConfig
from ray_canal.model.message import EMPTY_BATCH
from tests.local_destination import destination_of
from tests.servers import Server

ALL = r".*\..*"
QUIET_S = 12.0
ACKS_MAX = 6
"""In that time: an empty transaction passes at most every five seconds, and is acked."""


def test_a_destination_comes_to_rest_beside_its_own_cursors(
    mysql97: Server, tmp_path: Path
) -> None:
    """C7: the guard compared addresses as texts; "localhost" and a replica were not known to it."""
    name = f"meta_{uuid.uuid4().hex[:12]}"
    mysql97.execute(
        "create database if not exists own_rest", "create table if not exists own_rest.t (id int)"
    )
    file, position = mysql97.position()
    mysql97.execute("insert into own_rest.t values (1), (2)")
    meta = MetaConfig(
        backend="mysql",
        address=mysql97.address.replace("127.0.0.1", "localhost"),
        username="root",
        database=name,
        timeout_s=20,
    )
    source = {
        "address": mysql97.address, "username": "root", "start": "position", "journal_name": file,
        "position": position, "heartbeat_s": 0.5,
    }  # fmt: skip

    async def go() -> tuple[int, int]:
        rows = acks = 0
        async with destination_of(tmp_path, meta=meta, source=source) as store:
            await store.subscribe(1, ALL)
            until = asyncio.get_running_loop().time() + QUIET_S
            while asyncio.get_running_loop().time() < until:
                head = await store.poll(1, 1000, 0.5)
                if head.id != EMPTY_BATCH:
                    rows, acks = rows + head.row_count, acks + 1
                    await store.ack(1, head.id, head.epoch)
        return rows, acks

    rows, acks = asyncio.run(go())
    assert rows == 2
    assert acks <= ACKS_MAX
    mysql97.execute(f"drop database {name}")
