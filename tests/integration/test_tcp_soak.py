"""`make soak-tcp`: 1,000 clients of Canal's protocol over 20 destinations of one cluster.

All connect at once, each as a subscriber of its own; they read, ack, now and then roll back, and
some leave in the middle and come again. Every client must have seen every entry, the server must
hold nothing when they are gone. The figures are printed.
"""

from __future__ import annotations

import asyncio
import os
import random
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ray_canal as canal
from ray_canal.canal.generated import CanalProtocol_pb2 as pb
from ray_canal.demo import binlog_files
from tests.canal_client import RawClient
from tests.integration.test_tcp import until
from tests.servers.run import free_port

CLIENTS, DESTINATIONS = 1000, 20
BUDGET_BYTES = 64 << 20


def deployment(folder: Path, port: int) -> dict[str, Any]:
    files = [str(path) for path in binlog_files()]
    return {
        "meta": {"path": str(folder / "meta.db")},
        "server": {"host": "127.0.0.1", "port": port, "buffer_bytes_max": BUDGET_BYTES},
        "instance": [
            {"destination": f"soak{number}", "source": {"files": files, "start": "earliest"}}
            for number in range(DESTINATIONS)
        ],
    }


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    import ray

    ray.init(num_cpus=4, include_dashboard=False, object_store_memory=1 << 30)
    number = free_port()
    try:
        canal.start(deployment(tmp_path, number), timeout=600)
        yield number
    finally:
        ray.shutdown()


class Crowd:
    """What all clients together have seen."""

    def __init__(self, port: int, clients: int) -> None:
        self.port = port
        self.missing = clients
        self.complete = asyncio.Event()
        self.entries: list[int] = []
        self.bytes = self.gets = self.again = self.reconnects = 0
        self.slowest_get_s = 0.0
        self.connect_s: list[float] = []

    async def connected(self, destination: str, client_id: str) -> RawClient:
        """As Canal's clients do it: again until it works."""
        began = time.monotonic()
        while True:
            client = None
            try:
                client = await RawClient.open(self.port)
                client.patience_s = 300
                await client.log_in()
                await client.subscribe(destination, client_id)
            except (OSError, EOFError, asyncio.TimeoutError):
                if client is not None:
                    await client.close()
                self.reconnects += 1
                await asyncio.sleep(0.2)
                continue
            self.connect_s.append(time.monotonic() - began)
            return client

    async def read_all(self, number: int) -> None:
        destination, client_id = f"soak{number % DESTINATIONS}", str(1000 + number)
        choice, seen = random.Random(number), 0
        client = await self.connected(destination, client_id)
        # A log begins where its slowest subscriber is: nobody acks before all are known to it.
        self.missing -= 1
        if not self.missing:
            self.complete.set()
        await self.complete.wait()
        while True:
            began = time.monotonic()
            size = choice.choice([50, 200, 1000])
            message = await client.get(destination, client_id, fetch_size=size, timeout=1)
            self.slowest_get_s = max(self.slowest_get_s, time.monotonic() - began)
            self.gets += 1
            if message.batch_id == -1:
                break
            what = choice.random()
            if what < 0.05:
                client.send(
                    pb.CLIENTROLLBACK,
                    pb.ClientRollback(destination=destination, client_id=client_id),
                )
            elif what < 0.1:
                self.again += 1
                await client.close()
                client = await self.connected(destination, client_id)
            else:
                seen += len(message.messages)
                self.bytes += sum(map(len, message.messages))
                client.confirm(destination, message.batch_id, client_id)
        client.send(pb.HEARTBEATS)
        assert (await client.ack()).error_code == 0
        await client.close()
        self.entries.append(seen)


async def crowd_of(port: int, clients: int) -> tuple[Crowd, int]:
    crowd, most = Crowd(port, clients), 0
    everybody = asyncio.gather(*(crowd.read_all(number) for number in range(clients)))
    while not everybody.done():
        status = (await asyncio.to_thread(canal.server_status))[0]
        most = max(most, status["buffered_bytes"])
        await asyncio.wait({everybody}, timeout=1)
    await everybody
    return crowd, most


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_thousand_clients_over_twenty_destinations(port: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    began = time.monotonic()
    crowd, most = asyncio.run(crowd_of(port, CLIENTS))
    took_s = time.monotonic() - began
    until(lambda: canal.server_status()[0]["connections"] == 0)
    status = canal.server_status()[0]
    assert len(crowd.entries) == CLIENTS
    assert len(set(crowd.entries)) == 1
    assert status["buffered_bytes"] == 0
    assert most <= 2 * BUDGET_BYTES
    connect_s = sorted(crowd.connect_s)
    print(
        f"\n{CLIENTS} clients, {DESTINATIONS} destinations, load {os.getloadavg()[0]:.0f}:"
        f" {took_s:.0f} s, {sum(crowd.entries):,} entries, {crowd.bytes / 1e6:,.0f} MB"
        f" ({crowd.bytes / 1e6 / took_s:,.0f} MB/s), {crowd.gets:,} gets,"
        f" slowest get {crowd.slowest_get_s:.1f} s;"
        f" connects: median {connect_s[len(connect_s) // 2]:.1f} s, slowest {connect_s[-1]:.1f} s,"
        f" {crowd.again} left and came again, {crowd.reconnects} attempts more;"
        f" answers held {most / 1e6:.0f} MB at most of {BUDGET_BYTES / 1e6:.0f}"
    )
