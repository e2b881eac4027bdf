"""Takeover behind Canal's TCP port: stores and servers die while clients are connected.

Two servers share one port. canal-python runs as it is, within the loop that its users write: an
exception means connect again.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray

import ray_canal as canal
from ray_canal.actors import registry
from ray_canal.canal.generated import CanalProtocol_pb2 as pb
from ray_canal.canal.generated import EntryProtocol_pb2 as entry_pb
from ray_canal.demo import binlog_files
from ray_canal.errors import InstanceNotRunning
from ray_canal.offline import decode_entries
from tests.canal_client import RawClient
from tests.golden import split_delimited
from tests.integration.test_tcp import deployment, until
from tests.servers.run import free_port

NAME = "tcp-shop"

CANAL_PYTHON = """
import json, sys, time
from canal.client import Client

def session(seen):
    client = Client()
    client.connect(host="127.0.0.1", port=int(sys.argv[1]))
    client.check_valid()
    client.subscribe(client_id=b"1001", destination=b"tcp-shop", filter=b"")
    silent = 0
    while silent < 4:
        message = client.get_without_ack(40, timeout=1000, unit=2)
        silent = 0 if message["id"] else silent + 1
        for entry in message["entries"]:
            seen.append([entry.header.logfileName, entry.header.logfileOffset, entry.entryType])
        client.ack(message["id"])
        time.sleep(0.05)
        print("at", len(seen), file=sys.stderr, flush=True)
    client.disconnect()

seen, broken, deadline = [], 0, time.time() + 120
while time.time() < deadline:
    try:
        session(seen)
        break
    except Exception as error:  # as its users do it
        broken += 1
        time.sleep(0.2)
print(json.dumps({"seen": seen, "broken": broken}))
"""


@pytest.fixture(scope="module")
def replicated(local_ray: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of two servers."""
    port = free_port()
    canal.start(deployment(tmp_path_factory.mktemp("replicated"), port, replicas=2))
    yield port
    canal.stop_serving()
    canal.stop(NAME)


def served() -> list[str]:
    try:
        return [status.get("address", "") for status in canal.server_status()]
    except InstanceNotRunning:
        return []


def test_canal_python_resumes_when_store_and_servers_die(
    replicated: int, canal_python: Path
) -> None:
    """A takeover of each kind while it reads: it sees everything, in order within a session."""
    assert len(served()) == 2
    command = [str(canal_python), "-c", CANAL_PYTHON, str(replicated)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as client:
        assert client.stderr is not None
        assert client.stdout is not None
        for victim in ("store", "first server", "second server", "store"):
            for _ in range(2):  # it receives something between the blows
                client.stderr.readline()
            servers = registry.find_servers()
            chosen = {"first server": servers[0], "second server": servers[1]}
            ray.kill(chosen.get(victim) or registry.find_store(NAME).actor, no_restart=False)
            until(lambda: len(served()) == 2 and all(served()))
        output, errors = client.communicate(timeout=150)
    assert client.returncode == 0, errors[-2000:]
    found = json.loads(output.splitlines()[-1])
    assert found["broken"] >= 1
    everything = entries_of_files()
    received = Counter(tuple(entry) for entry in found["seen"])
    assert set(received) == set(everything)
    for entry, count in everything.items():
        assert received[entry] >= count


def entries_of_files() -> Counter[tuple[Any, ...]]:
    """(file, offset, type) of each entry, and how often: events of a compressed transaction share
    their place."""
    found: Counter[tuple[Any, ...]] = Counter()
    for data in split_delimited(b"".join(decode_entries(binlog_files()))):
        entry = entry_pb.Entry.FromString(data)
        header, kind = entry.header, entry.entryType
        found[header.logfileName, header.logfileOffset, kind] += 1
    return found


def test_a_waiting_get_outlives_its_store(replicated: int) -> None:
    """With nothing outstanding, a takeover is not noticed: the get goes on waiting, and acks of
    after it move the cursor."""

    async def test() -> None:
        client = await RawClient.logged_in(replicated)
        client.patience_s = 90
        await client.subscribe(NAME, "51")
        message = await client.get(NAME, "51", fetch_size=1 << 20, timeout=5000)
        client.confirm(NAME, message.batch_id, "51")
        client.send(pb.HEARTBEATS)
        assert (await client.ack()).error_code == 0
        while (message := await client.get(NAME, "51", timeout=-1)).batch_id != -1:
            client.confirm(NAME, message.batch_id, "51")
        client.ask(NAME, "51", timeout=8000)
        await asyncio.sleep(0.5)
        await asyncio.to_thread(ray.kill, registry.find_store(NAME).actor, no_restart=False)
        message = await client.messages()  # the open end of the files may come again
        if message.batch_id != -1:
            client.confirm(NAME, message.batch_id, "51")
            client.send(pb.HEARTBEATS)
            assert (await client.ack()).error_code == 0
        await client.close()

    asyncio.run(test())
