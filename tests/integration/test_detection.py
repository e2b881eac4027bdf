"""source.detect_sql without a standby: a heartbeat in an idle log, and counted failures."""

from __future__ import annotations

import time

import pytest

from ray_canal.source.checks import check_source
from tests.dumps import instance, kinds_of
from tests.integration.test_log_identity import reading
from tests.servers import Server

BEAT = "INSERT INTO beat.b VALUES (1, NOW(6)) ON DUPLICATE KEY UPDATE at = NOW(6)"
SETTINGS = {"detect": True, "detect_sql": BEAT, "detect_interval_s": 0.2, "detect_failures": 2}


def test_a_heartbeat_without_a_standby(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """a7: the statement is run at its interval; failures are counted, and no server is left."""
    columns = "id INT PRIMARY KEY, at DATETIME(6)"
    server.execute("CREATE DATABASE beat", f"CREATE TABLE beat.b ({columns})")
    try:
        with reading(server, **SETTINGS) as source:
            source.resume(())
            beats, deadline = 0, time.monotonic() + 60
            while beats < 3 and time.monotonic() < deadline:
                chunk = source.read(0.0, 0.2)
                if chunk is not None:
                    beats += sum(kind in (23, 24, 30, 31) for kind in kinds_of(chunk))
            assert beats >= 3
            assert source.status().failed_checks == 0
            server.execute("RENAME TABLE beat.b TO beat.away")
            while source.status().failed_checks < 4 and time.monotonic() < deadline:
                source.read(0.0, 0.2)
            failed = source.status().failed_checks
            assert failed >= 4
            assert source.status().connected
            assert "health check 2 of 2 failed" in caplog.text
            assert "health check 3" not in caplog.text
            server.execute("RENAME TABLE beat.away TO beat.b")
            while "is well after" not in caplog.text and time.monotonic() < deadline:
                source.read(0.0, 0.2)
            assert "is well after" in caplog.text
        with reading(server, **{**SETTINGS, "detect": False}) as source:
            source.resume(())
            while (chunk := source.read(0.0, 1.0)) is not None:
                assert time.monotonic() < deadline
        for sql, ok in ((BEAT, True), ("SELECT nonsense", False)):
            results = check_source(instance(server, **{**SETTINGS, "detect_sql": sql}))
            assert [each.ok for each in results if each.name == "detect_sql"] == [ok]
    finally:
        server.execute("DROP DATABASE beat")
