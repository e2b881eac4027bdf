"""What goes on beside a snapshot: another subscriber's delay, a writer's commits, memory."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.e2e.processes import peak_mb
from benchmarks.snapshot.readers import instance_of, read_log, take_snapshot
from ray_canal.client.message import Message
from ray_canal.config import MetaConfig
from ray_canal.model.subscription import Subscription
from tests.local_destination import LocalDestination
from tests.snapshot_runs import chunks_of

_OTHER, _TAKER = 2, 1
_PER_S = 200.0
_SECONDS = 12
_WARM_S = 2


def beside(address: str, table: str, *, snapshots: bool) -> dict[str, float]:
    """Milliseconds of a writer of 200 transactions a second and of a subscriber of what it writes,
    while another one takes one snapshot after the other at the default governor, or not."""
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_beside(address, table, Path(folder), snapshots))


async def _beside(address: str, table: str, folder: Path, snapshots: bool) -> dict[str, float]:
    meta = MetaConfig(path=str(folder / "meta.db"))
    destination = LocalDestination(instance_of(address), meta)
    await destination.wait_running(60)
    await destination.subscribe(_OTHER, r"bench\.busy", wishes=Subscription(start="tail"))
    rows, first, out = int(_PER_S * _SECONDS), time.time_ns(), folder / "times.npz"
    port = address.split(":")[1]
    command = [sys.executable, "-m", "benchmarks.snapshot.writer", port, str(first), str(rows)]
    writer = subprocess.Popen([*command, str(_PER_S), str(out)])
    arrived: dict[int, int] = {}
    taken = [0]
    taking = asyncio.create_task(_take(destination, table, taken)) if snapshots else None
    while len(arrived) < rows:
        head = await destination.poll(_OTHER, 16 << 10, 10.0)
        now_ns = time.monotonic_ns()
        for batch in Message(head, chunks_of).batches:
            ids = batch.column("after").field("id").to_pylist()
            arrived.update(dict.fromkeys(ids, now_ns))
        await destination.ack(_OTHER, head.id, head.epoch)
    if taking is not None:
        taking.cancel()
        await asyncio.gather(taking, return_exceptions=True)
    await destination.stop()
    writer.wait()
    with np.load(out) as kept:
        ids, began, ended = kept["id"], kept["began"], kept["ended"]
    warm = int(_PER_S * _WARM_S)
    came = np.array([arrived[int(number)] for number in ids])
    delays, commits = (came - ended)[warm:] / 1e6, (ended - began)[warm:] / 1e6
    found: dict[str, float] = {"rows_read": taken[0]}
    for name, values in (("delay", delays), ("commit", commits)):
        for part in (50, 99):
            found[f"{name}_p{part}_ms"] = round(float(np.percentile(values, part)), 2)
    return found


async def _take(destination: LocalDestination, table: str, taken: list[int]) -> None:
    while True:
        taken[0] += await take_snapshot(destination, _TAKER, table)
        await destination.unsubscribe(_TAKER)


def memory(address: str, rows: int, mode: str) -> dict[str, Any]:
    """The most memory of this process, in which a log's subscriber takes the narrow table."""
    began = time.perf_counter()
    found = read_log(address, "narrow", rows, 2, mode)
    seconds = time.perf_counter() - began
    return {
        "mode": mode, "rows": found, "seconds": round(seconds, 2),
        "rows_per_s": round(found / seconds), "peak_mb": round(peak_mb([os.getpid()]), 1),
    }  # fmt: skip
