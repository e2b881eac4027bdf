"""What a dump counts as waiting for its server."""

from __future__ import annotations

import os
import socket

from ray_canal.binlog.cutter import ChunkCutter
from ray_canal.config.source import SourceConfig
from ray_canal.source.dump import BinlogDump


def test_bytes_that_are_there_are_not_waited_for() -> None:
    """A fetcher that gets no CPU works; else `status` would name the server as the limit."""
    ours, servers = socket.socketpair()
    wake_out, wake_in = os.pipe()
    dump = BinlogDump(SourceConfig(address="db:3306"), ChunkCutter(4096, 1 << 20))
    dump._socket = ours
    try:
        assert not dump._wait(0.01, wake_out)
        waited_s = dump.waited_s
        assert waited_s > 0.009
        servers.sendall(b"bytes")
        assert all(dump._wait(10.0, wake_out) for _ in range(100))
        assert dump.waited_s == waited_s
        ours.recv(5)
        os.write(wake_in, b"x")
        assert not dump._wait(10.0, wake_out)
    finally:
        for each in (ours, servers):
            each.close()
        for fd in (wake_out, wake_in):
            os.close(fd)
