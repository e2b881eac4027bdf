"""Sources as tests read them: until a place, byte for byte, or until they fail."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import pytest

from ray_canal.binlog.chunk import RawChunk
from ray_canal.config import InstanceConfig
from ray_canal.errors import (
    CanalError,
)
from ray_canal.model.position import EntryPosition
from ray_canal.source.open_source import open_source
from ray_canal.source.port import Source
from tests.servers import Server

KINDS = ["mysql97", "mysql56", "mariadb"]


def instance(server: Server, chunk_bytes: int = 1 << 20, **source: Any) -> InstanceConfig:
    settings = {"address": server.address, "username": "root", "start": "latest", **source}
    return InstanceConfig.model_validate(
        {"destination": "d", "source": settings, "chunk_bytes": chunk_bytes}
    )


@contextlib.contextmanager
def opened(config: InstanceConfig, position: EntryPosition | None = None) -> Iterator[Source]:
    source = open_source(config)
    try:
        source.open(position)
        yield source
    finally:
        source.close()


def read_until(source: Source, name: str, offset: int, timeout_s: float = 180) -> list[RawChunk]:
    chunks: list[RawChunk] = []
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        chunk = source.read(0.005, 0.2)
        if chunk is not None:
            chunks.append(chunk)
            if chunk.head.journal_name == name and chunk.head.end_position >= offset:
                return chunks
    raise AssertionError(f"{name}:{offset} not reached: {source.status()}")


def closed(position: int, data: bytes) -> bytes:
    """`data` without the flag, in a file's first event, that the file is being written."""
    if position != 4:
        return data
    return data[:17] + bytes([data[17] & ~1]) + data[18:]


def new_bytes(chunk: RawChunk) -> bytes:
    return closed(chunk.head.position, chunk.data[chunk.head.carried_bytes :].tobytes())


def assert_equals_files(server: Server, chunks: list[RawChunk]) -> None:
    """New bytes of the chunks are the binlog files' bytes, with no gap and no repeat."""
    files = {path.name: path.read_bytes() for path in server.binlogs()}
    at: tuple[str, int] | None = None
    for number, chunk in enumerate(chunks):
        head = chunk.head
        assert head.sequence == number
        if at is not None and at[0] == head.journal_name:
            assert head.position == at[1]
        elif at is not None:
            assert at[1] == len(files[at[0]])
            assert head.position == 4
        expected = files[head.journal_name][head.position : head.end_position]
        assert new_bytes(chunk) == closed(head.position, expected)
        at = (head.journal_name, head.end_position)


def _read_all(source: Source, position: EntryPosition | None) -> None:
    source.open(position)
    for _ in range(20):
        source.read(0.0, 0.2)


def failure(config: InstanceConfig, position: EntryPosition | None = None) -> CanalError:
    source = open_source(config)
    try:
        with pytest.raises(CanalError) as caught:
            _read_all(source, position)
        return caught.value
    finally:
        source.close()


def purge_all(server: Server) -> None:
    """Purge all binlogs but a new one; a server keeps those that a dying dump still reads."""
    server.execute("FLUSH LOGS")
    deadline = time.monotonic() + 180
    while len(server.binlogs()) > 1 and time.monotonic() < deadline:
        with contextlib.suppress(Exception):
            server.execute(f"PURGE BINARY LOGS TO '{server.position()[0]}'")
        time.sleep(0.2)
    assert len(server.binlogs()) == 1


def kinds_of(chunk: RawChunk) -> list[int]:
    data, at, found = chunk.data.tobytes(), chunk.head.carried_bytes, []
    while at < len(data):
        found.append(data[at + 4])
        at += int.from_bytes(data[at + 9 : at + 13], "little")
    return found


def write(server: Server, schema: str, table: str, transactions: int) -> None:
    with contextlib.closing(server.connect(autocommit=False)) as connection:
        cursor = connection.cursor()
        cursor.execute(f"CREATE TABLE {schema}.{table} (id INT PRIMARY KEY, v VARCHAR(500))")
        for number in range(transactions):
            rows = [(number * 10 + k, "x" * (number % 400)) for k in range(10)]
            cursor.executemany(f"INSERT INTO {schema}.{table} VALUES (%s, %s)", rows)
            cursor.execute(
                f"UPDATE {schema}.{table} SET v = 'é' WHERE id %% 3 = 0 AND id > %s", [number]
            )
            connection.commit()
    server.execute("FLUSH LOGS")


def dump_threads(server: Server) -> list[int]:
    rows = server.execute("SHOW PROCESSLIST")
    return [int(row[0]) for row in rows if str(row[4]).startswith("Binlog Dump")]
