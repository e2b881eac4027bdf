"""Passwords in clear text in a configuration: what Ray keeps of them. C7."""

from __future__ import annotations

import contextlib
import signal
import uuid
from pathlib import Path
from typing import Any

import pytest
from ray.experimental.internal_kv import _internal_kv_get, _internal_kv_list

import ray_canal as canal
from tests.fault.test_fencing import deployment, insert, next_ids, started, table
from tests.processes import GCS, STORE, running, send, the_one, wait_for
from tests.servers import Server

pytestmark = pytest.mark.usefixtures("local_ray")


def memory_has(pid: int, text: bytes) -> bool:
    """Whether a text is anywhere in what a process has written in its memory."""
    with open(f"/proc/{pid}/mem", "rb") as memory:
        for line in Path(f"/proc/{pid}/maps").read_text(encoding="ascii").splitlines():
            where, rights, *_ = line.split()
            first, last = (int(part, 16) for part in where.split("-"))
            if "rw" not in rights or "p" not in rights:
                continue
            with contextlib.suppress(OSError, ValueError, OverflowError):
                memory.seek(first)
                if text in memory.read(last - first):
                    return True
    return False


def with_password(server: Server, name: str, password: str) -> dict[str, Any]:
    server.execute(
        f"create user if not exists {name}@'%' identified by '{password}'",
        f"grant all on *.* to {name}@'%'",
    )
    config = deployment(server, name, name)
    for section in (config["instance"][0]["source"], config["meta"]):
        section.update(username=name, password=password)
    config["server"] = {"port": 0, "password": password}
    return config


@pytest.mark.parametrize("per_process", [0, pytest.param(1, marks=pytest.mark.soak)])
def test_a_password_in_clear_text_is_in_nothing_that_ray_keeps(
    mysql97: Server, per_process: int
) -> None:
    """C7: not in the key-value store, not in what actors are made with (both may go to Redis); and
    a store that is restarted has it all the same."""
    name, password = f"secret{per_process}", f"S3cret-{uuid.uuid4().hex}"
    table(mysql97, name)
    config = with_password(mysql97, name, password)
    config["ray"]["destinations_per_process"] = per_process
    others = set(running(STORE))
    with started(config), canal.connect(name, 7, namespace=name) as connector:
        try:
            connector.subscribe()
            insert(mysql97, name, 1)
            assert next_ids(connector, 1) == [1]
            for key in _internal_kv_list(""):
                assert password.encode() not in (_internal_kv_get(key) or b"")
            assert memory_has(the_one(GCS), name.encode())  # it can be looked at
            assert not memory_has(the_one(GCS), password.encode())
            (store,) = set(running(STORE)) - others
            send(store, signal.SIGKILL)
            wait_for(lambda: store not in running(STORE), 60, "the store is gone")
            insert(mysql97, name, 2)
            assert next_ids(connector, 1) == [2]
        finally:
            canal.stop_serving(namespace=name)
    assert not [path for path in _kept() if password in path.read_text()]


def _kept() -> list[Path]:
    return [path for path in Path.home().glob(".ray_canal-secrets-*/*") if path.is_file()]


