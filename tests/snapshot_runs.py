"""A destination without Ray whose subscriber takes a snapshot, and the judge of what it gets."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pyarrow as pa

from ray_canal.client.connector import Connector
from ray_canal.client.message import Message
from ray_canal.config import InstanceConfig, MetaConfig
from ray_canal.errors import InstanceRestarted
from ray_canal.model.message import EMPTY_BATCH
from ray_canal.model.snapshot_ledger import ENDED
from ray_canal.model.snapshot_marks import MARK_END, SnapshotMark
from ray_canal.model.table_event import TRUNCATE
from tests.integration.test_snapshot_keyed import Judge
from tests.local_destination import LocalDestination
from tests.local_runtime import OnDisk
from tests.servers import Server

CLIENT = 1
_LIMIT_S = 120.0


def destination_at(server: Server, folder: Path, **more: Any) -> LocalDestination:
    """One that begins to start; to be stopped. Its snapshots are cut into small chunks."""
    tree: dict[str, Any] = {
        "destination": "x",
        "source": {"address": server.address, "username": "root", **more.pop("source", {})},
        "decoders": 0,
    }
    config = InstanceConfig.model_validate({**tree, **more})
    return LocalDestination(config, MetaConfig(path=str(folder / "meta.db")))


def chunks_of(payloads: list[Any]) -> list[Any]:
    return [each.read() if isinstance(each, OnDisk) else each for each in payloads]


def take_from(connector: Connector, judge: Callable[[pa.RecordBatch], None]) -> int:
    """Take a message, have its batches judged, and ack it; return how many snapshots end in it."""
    message = connector.get_without_ack(batch_size=200, timeout=1.0)
    if not message:
        return 0
    for batch in message.batches:
        judge(batch)
    with contextlib.suppress(InstanceRestarted):  # then it comes again
        connector.ack(message.id)
    return sum(mark.kind == MARK_END for mark in message.snapshot_marks)


class Bags:
    """Holds what comes. A change of a row that is not held is an error. `void`: tables of which
    something is known to lack until they are emptied."""

    def __init__(self, tables: Collection[str]) -> None:
        self.rows: dict[str, Counter[Any]] = {name: Counter() for name in tables}
        self.read = 0
        self.emptied = 0
        self.void: set[str] = set()

    def take(self, batch: pa.RecordBatch) -> None:
        name = batch.schema.metadata[b"canal.table"].decode()
        held = self.rows[name]
        for row in batch.to_pylist():
            if row["event_type"] == TRUNCATE:
                held.clear()
                self.emptied += 1
                self.void.discard(name)
            if row["event_type"] == TRUNCATE or name in self.void:
                continue
            self.read += row["event_type"] == "READ"
            if row["before"] is not None:
                image = tuple(row["before"].values())
                assert held[image] > 0, (name, row)
                held[image] -= 1
            if row["after"] is not None:
                held[tuple(row["after"].values())] += 1


class Taker:
    """A subscriber that hands what it gets to a judge, and acks."""

    def __init__(self, destination: LocalDestination, client_id: int = CLIENT) -> None:
        self.destination = destination
        self.client_id = client_id
        self.judge: Judge | Bags = Judge()
        self.marks: list[SnapshotMark] = []
        self.ids: list[tuple[str, int, int]] = []

    async def take(self, seconds: float = 1.0, size: int = 64, *, ack: bool = True) -> bool:
        """Take a batch, and judge it when it is acked; False: nothing came."""
        head = await self.destination.poll(self.client_id, size, seconds)
        if head.id == EMPTY_BATCH:
            return False
        message = Message(head, chunks_of)
        parts = list(message.batches_by_part())  # before the ack, which frees what lies on disk
        if ack:
            try:
                await self.destination.ack(self.client_id, head.id, head.epoch)
            except InstanceRestarted:  # moved into another log: it comes again
                return True
        self.marks += message.snapshot_marks
        for part in parts:
            ids = []
            for batch in part:
                self.judge.take(batch)
                columns = (batch.column(k).to_pylist() for k in ("journal_name", "position", "row"))
                ids += list(zip(*columns, strict=True))
            self.ids += sorted(ids)
        return True

    async def state(self) -> dict[str, Any]:
        """How its snapshot goes."""
        found = (await self.destination.status())["snapshots"]
        [mine] = [one for one in found if one["client_id"] == self.client_id]
        return dict(mine)

    async def until_ended(self) -> dict[str, Any]:
        """Take until the snapshot has ended."""
        deadline = time.monotonic() + _LIMIT_S
        while (now := await self.state())["state"] not in ENDED:
            assert time.monotonic() < deadline, now
            await self.take(0.2)
        return now

    async def drain(self, seconds: float = 2.0) -> None:
        """Take what is left, until nothing comes for so long."""
        while await self.take(seconds):
            pass
