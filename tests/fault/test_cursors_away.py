"""Where cursors live is away for a while, or damaged: acks wait, nothing is lost, errors say so."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Any

import pytest

import ray_canal as canal
from ray_canal.errors import ConfigError
from tests.fault.test_fencing import deployment, insert, next_ids, started, table, unacked
from tests.processes import STORE, running, send, wait_for
from tests.servers import Server
from tests.servers.redis import start_redis

pytestmark = pytest.mark.usefixtures("local_ray")


def test_acks_and_a_new_store_wait_for_the_server_of_the_cursors(
    mysql97: Server, tmp_path: Path
) -> None:
    name = "away"
    table(mysql97, name)
    config = deployment(mysql97, name, name)
    others = set(running(STORE))
    with start_redis(tmp_path / "redis") as redis:
        config["meta"] = {"backend": "redis", "address": redis.address, "timeout_s": 0.5}
        with started(config), canal.connect(name, namespace=name) as connector:
            connector.subscribe()
            insert(mysql97, name, 1)
            message = unacked(connector)
            redis.kill()
            acked: list[Any] = []
            ack = threading.Thread(target=lambda: acked.append(connector.ack(message.id)))
            ack.start()
            ack.join(1.0)
            assert not acked
            redis.start()
            ack.join(120)
            assert acked == [None]
            insert(mysql97, name, 2)
            assert next_ids(connector, 1) == [2]
            # A store that starts meanwhile waits, too.
            redis.kill()
            (store,) = set(running(STORE)) - others
            send(store, signal.SIGKILL)
            insert(mysql97, name, 3)
            wait_for(lambda: bool(set(running(STORE)) - others - {store}), 180, "a new store")
            redis.start()
            assert next_ids(connector, 1) == [3]


def test_a_damaged_file_keeps_a_destination_from_starting_and_is_named(
    mysql97: Server, tmp_path: Path
) -> None:
    name = "damaged"
    config = deployment(mysql97, name, name)
    path = tmp_path / "meta.db"
    path.write_bytes(b"\xff" * 8192)
    config["meta"] = {"path": str(path)}
    with pytest.raises(ConfigError, match=r"meta file .*meta\.db cannot be used.*move it away"):
        canal.start(config)
    assert canal.status(namespace=name) == {}
