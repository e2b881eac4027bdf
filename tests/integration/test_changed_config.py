"""A configuration that has changed is applied to what runs, or refused: never ignored."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ray_canal as canal
from ray_canal.demo import binlog_files
from ray_canal.errors import AuthenticationFailed, ConfigError, InstanceRestarted
from tests.certificates import make_certificate
from tests.servers.run import free_port

NAME = "changed"


def deployment(folder: Path, server: dict[str, Any] | None = None, **instance: Any) -> Any:
    source = {"files": [str(path) for path in binlog_files()], "start": "earliest"}
    tree: dict[str, Any] = {
        "meta": {"path": str(folder / "meta.db")},
        "instance": [{"destination": NAME, "source": source, "chunk_bytes": 8192, **instance}],
    }
    return tree if server is None else {**tree, "server": server}


@pytest.fixture
def cleanly(local_ray: None) -> Iterator[None]:
    yield
    canal.stop_serving()
    if NAME in canal.status():
        canal.stop(NAME)


def state() -> tuple[int, dict[str, Any]]:
    status = canal.status(NAME)[NAME]
    return status["epoch"], status["filter"]


def test_a_changed_instance_is_started_over_at_its_cursors(
    cleanly: None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """b11: a new filter, policy, standby counts, and nothing is lost by it."""
    caplog.set_level(logging.WARNING)
    canal.start(deployment(tmp_path))
    with canal.connect(NAME, 7) as connector:
        connector.subscribe(transactions=False)
        first = connector.get_without_ack(100, timeout=30)
        connector.ack(first.id)
        held = connector.get_without_ack(100, timeout=30)
        epoch, _ = state()

        canal.start(deployment(tmp_path))  # the same: nothing happens
        assert state()[0] == epoch
        assert connector.list_batch_ids() == [held.id]
        assert "changed" not in caplog.text.replace(NAME, "")

        changed = deployment(
            tmp_path, filter={"black_tables": r"shop\.items"}, store={"policy": "spill"}
        )
        with pytest.raises(ConfigError, match=r"changed \(filter.black_tables, store.policy\)"):
            canal.start(changed, replace=False)
        assert state()[0] == epoch

        canal.start(changed)
        assert "its configuration has changed (filter.black_tables, store.policy)" in caplog.text
        now, found = state()
        assert now > epoch
        assert found["black_tables"] == r"shop\.items"
        with pytest.raises(InstanceRestarted):
            connector.ack(held.id)
        again = connector.get_without_ack(100, timeout=30)
        assert again.start is not None
        assert held.start is not None
        assert again.start.position <= held.start.position
        connector.rollback()


def test_cursors_that_would_be_elsewhere_are_not_left_behind(cleanly: None, tmp_path: Path) -> None:
    """b11: a destination does not begin again because [meta] names another place."""
    canal.start(deployment(tmp_path))
    epoch, _ = state()
    moved = deployment(tmp_path)
    moved["meta"]["path"] = str(tmp_path / "other.db")
    for replace in (True, False):
        with pytest.raises(ConfigError, match=r"meta\.path.*ray-canal stop changed"):
            canal.start(moved, replace=replace)
    assert state()[0] == epoch
    assert not (tmp_path / "other.db").exists()


def enters(address: str, password: str) -> bool:
    try:
        canal.connect(NAME, address=address, username="u", password=password).close()
    except AuthenticationFailed:
        return False
    return True


@pytest.mark.soak
def test_a_changed_server_is_opened_again(
    cleanly: None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """C2: a password that was added or rotated counts, by its value and behind a reference."""
    caplog.set_level(logging.WARNING)
    secret = tmp_path / "secret"
    secret.write_text("one")
    port = free_port()
    server = {"host": "127.0.0.1", "port": port}
    closed = {**server, "username": "u", "password": f"file:{secret}"}
    (address,) = canal.serve(deployment(tmp_path, server))
    assert canal.serve(deployment(tmp_path, server)) == [address]
    assert "opened again" not in caplog.text
    assert enters(address, "anything")

    with pytest.raises(ConfigError, match="password, username"):
        canal.serve(deployment(tmp_path, closed), replace=False)
    assert enters(address, "anything")
    canal.serve(deployment(tmp_path, closed))
    assert "its configuration has changed (password, username)" in caplog.text
    assert enters(address, "one")
    assert not enters(address, "anything")

    secret.write_text("two")
    canal.serve(deployment(tmp_path, closed))
    assert "what a password refers to" in caplog.text
    assert (enters(address, "one"), enters(address, "two")) == (False, True)

    secret.write_text("")
    with pytest.raises(ConfigError, match="is empty"):
        canal.serve(deployment(tmp_path, closed))
    assert enters(address, "two")  # what cannot be served takes nothing away


@pytest.mark.soak
def test_a_renewed_certificate_is_shown(cleanly: None, tmp_path: Path) -> None:
    """C2: TLS, too; what cannot be served takes nothing away."""
    cert, key = make_certificate(tmp_path)
    server = {"host": "127.0.0.1", "port": free_port(), "tls": {"cert": str(cert), "key": str(key)}}
    (address,) = canal.serve(deployment(tmp_path, server))
    before = canal.server_status()[0]["requests"], cert.read_bytes()
    other = tmp_path / "other"
    other.mkdir()
    renewed, its_key = make_certificate(other)
    assert renewed.read_bytes() != before[1]
    cert.write_bytes(b"nothing")
    with pytest.raises(ConfigError, match=str(cert)):
        canal.serve(deployment(tmp_path, server))
    assert len(canal.server_status()) == 1
    cert.write_bytes(renewed.read_bytes())
    key.write_bytes(its_key.read_bytes())
    with pytest.raises(ConfigError, match="files of tls"):
        canal.serve(deployment(tmp_path, server), replace=False)
    assert canal.serve(deployment(tmp_path, server)) == [address]
    with pytest.raises(ConfigError, match="replicas"):
        canal.serve(deployment(tmp_path, {**server, "replicas": 2}), replace=False)
