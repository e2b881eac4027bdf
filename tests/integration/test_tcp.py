"""Canal's TCP port of a running cluster: our actor, real stores, real clients.

What one connection does is held by tests/unit/server; here the whole stands on Ray, and the public
client canal-python runs as it is.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray

import ray_canal as canal
from ray_canal.actors import registry
from ray_canal.demo import binlog_files, expected
from ray_canal.errors import (
    AuthenticationFailed,
    ConfigError,
    InstanceNotRunning,
    InstanceRestarted,
)
from ray_canal.offline import decode_entries
from tests.canal_client import RawClient
from tests.servers.run import free_port


def deployment(folder: Path, port: int, **server: Any) -> dict[str, Any]:
    return {
        "meta": {"path": str(folder / "meta.db")},
        "server": {"host": "127.0.0.1", "port": port, **server},
        "instance": [
            {
                "destination": "tcp-shop",
                "source": {"files": [str(path) for path in binlog_files()], "start": "earliest"},
            }
        ],
    }


@pytest.fixture
def served(local_ray: None, tmp_path: Path) -> Iterator[str]:
    """host:port of a cluster that serves the demo's files as `tcp-shop` to user u, password p."""
    port = free_port()
    canal.start(deployment(tmp_path, port, username="u", password="p"))
    yield f"127.0.0.1:{port}"
    canal.stop_serving()
    canal.stop("tcp-shop")


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 180
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def restarted(requests: int) -> bool:
    try:
        now: int = canal.server_status()[0].get("requests", requests)
        return now < requests
    except InstanceNotRunning:
        return False


def test_our_client_receives_the_files_and_a_restarted_store_is_told(served: str) -> None:
    login = {"address": served, "username": "u", "password": "p"}
    with pytest.raises(AuthenticationFailed):
        canal.connect("tcp-shop", address=served)
    whole = b"".join(decode_entries(binlog_files()))
    for client_id in (7, 8, 9):  # the log keeps what a subscriber has not acked
        with canal.connect("tcp-shop", client_id, **login) as connector:  # type: ignore[arg-type]
            connector.subscribe()
    with canal.connect("tcp-shop", 7, **login) as connector:  # type: ignore[arg-type]
        connector.subscribe()
        found = b""
        while message := connector.get_without_ack(100, timeout=2.0):
            found += message.entry_bytes
            connector.ack(message.id)
        assert found == whole
    assert canal.server_status()[0]["sent_bytes"] > len(whole)

    with canal.connect("tcp-shop", 8, **login) as connector:  # type: ignore[arg-type]
        connector.subscribe()
        first = connector.get_without_ack(100, timeout=2.0)
        connector.ack(first.id)
        held = connector.get_without_ack(100, timeout=2.0)
        epoch = canal.status("tcp-shop")["tcp-shop"]["epoch"]
        ray.kill(registry.find_store("tcp-shop").actor, no_restart=False)
        until(lambda: canal.status("tcp-shop")["tcp-shop"].get("epoch", epoch) > epoch)
        with pytest.raises(InstanceRestarted):
            connector.ack(held.id)
        again = connector.get_without_ack(100, timeout=5.0)
        assert held.entry_bytes
        # The open transaction's BEGIN comes once more, in front.
        assert held.entry_bytes[:1000] in again.entry_bytes[:2000]
        connector.ack(again.id)

    with canal.connect("tcp-shop", 9, **login) as connector:  # type: ignore[arg-type]
        connector.subscribe()
        connector.get_without_ack(100, timeout=2.0)
        requests = canal.server_status()[0]["requests"]
        ray.kill(registry.find_servers()[0], no_restart=False)
        until(lambda: restarted(requests))
        with pytest.raises(InstanceRestarted):
            connector.get_without_ack(100, timeout=2.0)
        assert connector.get_without_ack(100, timeout=5.0).id > 0


def test_who_goes_away_during_a_get_takes_no_batch_from_a_real_store(
    local_ray: None, tmp_path: Path
) -> None:
    """The waiting call in the store actor is cancelled."""
    first, second, *_ = binlog_files()
    source = tmp_path / "binlogs"
    source.mkdir()
    shutil.copy(first, source)
    port = free_port()
    config = deployment(tmp_path, port)
    config["instance"][0]["source"] = {"files": [str(source)], "follow": True, "start": "earliest"}
    canal.start(config)

    def stats() -> dict[str, Any]:
        found: dict[str, Any] = canal.status("tcp-shop")["tcp-shop"]["store"]
        return found

    async def ask_and_leave() -> None:
        client = await RawClient.logged_in(port)
        await client.subscribe("tcp-shop")
        while (message := await client.get("tcp-shop", timeout=1000)).batch_id != -1:
            client.confirm("tcp-shop", message.batch_id)
        client.ask("tcp-shop", fetch_size=1, timeout=0)
        await asyncio.sleep(0.5)
        await client.close()

    try:
        asyncio.run(ask_and_leave())
        until(lambda: canal.server_status()[0]["connections"] == 0)
        before = stats()["last_position"]
        shutil.copy(second, tmp_path / "second")
        (tmp_path / "second").rename(source / second.name)
        until(lambda: stats()["last_position"] != before)
        time.sleep(0.5)
        assert stats()["subscribers"]["1001"]["unacked_batches"] == 0
    finally:
        canal.stop_serving()
        canal.stop("tcp-shop")


def test_acks_sent_before_the_close_reach_a_real_store(local_ray: None, tmp_path: Path) -> None:
    port = free_port()
    canal.start(deployment(tmp_path, port))

    async def test() -> None:
        one = await RawClient.logged_in(port)
        await one.subscribe("tcp-shop")
        got = [await one.get("tcp-shop", fetch_size=1, timeout=1000) for _ in range(9)]
        for message in got[:8]:
            one.confirm("tcp-shop", message.batch_id)
        await one.close()
        await asyncio.to_thread(until, lambda: canal.server_status()[0]["connections"] == 0)
        other = await RawClient.logged_in(port)
        await other.subscribe("tcp-shop")
        again = await other.get("tcp-shop", fetch_size=1, timeout=1000)
        assert list(again.messages) == list(got[8].messages)
        await other.close()

    try:
        asyncio.run(test())
    finally:
        canal.stop_serving()
        canal.stop("tcp-shop")


CANAL_PYTHON = """
import json, sys
from canal.client import Client
from canal.protocol import EntryProtocol_pb2 as pb

client = Client()
client.connect(host="127.0.0.1", port=int(sys.argv[1]))
client.check_valid(username=sys.argv[2].encode(), password=sys.argv[3].encode())
client.subscribe(client_id=b"1001", destination=b"tcp-shop", filter=b"shop\\\\..*")
counts, silent = {}, 0
while silent < 3:
    message = client.get_without_ack(200, timeout=1000, unit=2)
    silent = 0 if message["id"] else silent + 1
    for entry in message["entries"]:
        if entry.entryType != pb.EntryType.Value("ROWDATA"):
            continue
        change = pb.RowChange()
        change.MergeFromString(entry.storeValue)
        kind = pb.EventType.Name(change.eventType)
        if kind in ("INSERT", "UPDATE", "DELETE"):
            table = counts.setdefault(entry.header.tableName, {})
            table[kind] = table.get(kind, 0) + len(change.rowDatas)
    client.ack(message["id"])
client.disconnect()
print(json.dumps(counts))
"""


def run_canal_python(python: Path, port: int, *login: str) -> subprocess.CompletedProcess[str]:
    command = [str(python), "-c", CANAL_PYTHON, str(port), *login]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_canal_python_as_it_is(local_ray: None, tmp_path: Path, canal_python: Path) -> None:
    """It sends its password as it is, unscrambled: so it can enter a server without one alone."""
    port = free_port()
    canal.start(deployment(tmp_path, port))
    try:
        result = run_canal_python(canal_python, port, "", "")
        assert result.returncode == 0, result.stderr
        counts = json.loads(result.stdout.splitlines()[-1])
        assert counts == {
            name: {kind: count for kind, count in table["changes"].items() if count}
            for name, table in expected()["tables"].items()
        }
    finally:
        canal.stop_serving()
        canal.stop("tcp-shop")


def test_canal_python_with_a_wrong_login_is_refused(served: str, canal_python: Path) -> None:
    result = run_canal_python(canal_python, int(served.rpartition(":")[2]), "u", "wrong")
    assert result.returncode != 0
    assert "error code:400" in result.stderr
    assert "auth failed for user:u" in result.stderr


def test_a_port_that_is_taken_stops_the_server_and_says_so(local_ray: None, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        config = deployment(tmp_path, taken.getsockname()[1])
        with pytest.raises(ConfigError, match="cannot listen"):
            canal.serve(config, timeout=3)
    assert canal.server_status() == []
