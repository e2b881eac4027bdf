"""The driver when the server itself comes and goes."""

from __future__ import annotations

from pathlib import Path

from ray_canal.errors import ServerSettingRefused
from tests.integration.test_driver import failure, instance, opened, read_until
from tests.servers import start


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
