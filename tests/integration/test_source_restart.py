"""The driver when the server itself comes and goes."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from ray_canal.errors import ServerSettingRefused
from ray_canal.source import dump
from tests.dumps import (
    assert_equals_files,
    dump_threads,
    failure,
    instance,
    opened,
    read_until,
)
from tests.servers import Server, start


def test_server_restart_and_another_server(tmp_path: Path) -> None:
    with start("mariadb", tmp_path) as server:
        with opened(instance(server, read_timeout_s=2.0, heartbeat_s=0.5)) as source:
            server.execute("CREATE DATABASE a")
            chunks = read_until(source, *server.position())
            server.kill()
            assert source.read(0.0, 0.5) is None
            assert not source.status().connected
            server.start()
            server.execute("CREATE DATABASE b")
            chunks += read_until(source, *server.position())
        assert [chunk.head.sequence for chunk in chunks] == list(range(len(chunks)))
        server.restart(log_bin=None)
        error = failure(instance(server))
        assert isinstance(error, ServerSettingRefused)
        assert "log-bin" in str(error)


@pytest.mark.parametrize("kind", ["mysql97", "mariadb"])
def test_a_dump_that_nobody_reads_is_ended_and_goes_on(
    request: pytest.FixtureRequest, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B5: under back-pressure the server ends the dump after a while, so that it may purge; what is
    read then has neither gap nor repeat."""
    monkeypatch.setattr(dump, "_WRITE_TIMEOUT_S", 1)
    server: Server = request.getfixturevalue(kind)
    server.execute("CREATE DATABASE slow", "CREATE TABLE slow.t (id INT, v LONGBLOB)")
    try:
        with opened(instance(server, receive_buffer_bytes=64 << 10)) as source:
            for number in range(12):
                server.execute(f"INSERT INTO slow.t VALUES ({number}, REPEAT('x', 4000000))")
            deadline = time.monotonic() + 60
            while dump_threads(server) and time.monotonic() < deadline:
                time.sleep(0.2)
            assert not dump_threads(server)
            chunks = read_until(source, *server.position())
            assert source.status().reconnects >= 1
        assert_equals_files(server, chunks)
    finally:
        server.execute("DROP DATABASE slow")
