"""Schema histories and quarantined events beside the cursors in Redis (redis.py): they move with
the head, too. What is written twice is there once.

Keys: `NAME:{DESTINATION}:schemas` and `…:quarantined`, hashes of JSON by a record's name;
`…:schema_order`, the names of the first in the order in which they came.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any

from ray_canal.config import MetaConfig
from ray_canal.meta.redis_server import RedisServer
from ray_canal.meta.schema_store import (
    ChunkKey,
    chunk_key,
    is_before,
    record_key,
    record_order,
)
from ray_canal.protocol.schema_record import Quarantined, SchemaRecord

_APPEND = """
if redis.call('hsetnx', KEYS[1], ARGV[1], ARGV[2]) == 1 then
    redis.call('rpush', KEYS[2], ARGV[1])
end
"""
_FORGET = """
redis.call('hdel', KEYS[1], ARGV[1])
redis.call('lrem', KEYS[2], 0, ARGV[1])
"""


class RedisSchemaStore:
    """See SchemaStore, and RedisServer for what it raises."""

    def __init__(self, config: MetaConfig) -> None:
        self._server = RedisServer(config, "schema history")

    def _keys(self, destination: str) -> tuple[str, str]:
        key = self._server.key
        return key(destination, "schemas"), key(destination, "schema_order")

    def _quarantine(self, destination: str) -> str:
        return self._server.key(destination, "quarantined")

    def records(self, destination: str) -> list[SchemaRecord]:
        schemas, order = self._keys(destination)
        names = self._server.call("lrange", order, 0, -1)
        found = self._server.call("hmget", schemas, names) if names else []
        # A record that was forgotten between the two calls is none.
        return [SchemaRecord(**_read(text, "body")) for text in found if text is not None]

    def append(self, destination: str, records: Sequence[SchemaRecord]) -> None:
        for record in records:
            name, text = _name(*record_key(record)), _text(record, "body")
            self._server.call("eval", _APPEND, 2, *self._keys(destination), name, text)

    def forget_before(self, destination: str, snapshot: SchemaRecord) -> None:
        self._forget(destination, lambda record: is_before(record, snapshot))

    def forget_log(self, destination: str, server: str) -> None:
        self._forget(destination, lambda record: record.server == server)

    def _forget(self, destination: str, which: Callable[[SchemaRecord], bool]) -> None:
        for record in self.records(destination):
            if which(record):
                name = _name(*record_key(record))
                self._server.call("eval", _FORGET, 2, *self._keys(destination), name)

    def quarantine(self, destination: str, chunks: Sequence[Quarantined]) -> None:
        for chunk in chunks:
            key = self._quarantine(destination)
            self._server.call("hset", key, _name(*chunk_key(chunk)), _text(chunk, "data"))

    def quarantined(self, destination: str) -> list[Quarantined]:
        found = []
        for text in self._server.call("hvals", self._quarantine(destination)):
            fields = _read(text, "data")
            tables = tuple((schema, table) for schema, table in fields.pop("tables"))
            found.append(Quarantined(**fields, tables=tables))
        return sorted(found, key=record_order)

    def quarantine_sizes(self, destination: str) -> dict[ChunkKey, int]:
        return {chunk_key(held): len(held.data) for held in self.quarantined(destination)}

    def release(self, destination: str, chunk: Quarantined) -> None:
        self._server.call("hdel", self._quarantine(destination), _name(*chunk_key(chunk)))

    def close(self) -> None:
        self._server.close()


def _name(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _text(record: SchemaRecord | Quarantined, binary: str) -> str:
    fields = dataclasses.asdict(record)
    fields[binary] = base64.b64encode(fields[binary]).decode()
    return json.dumps(fields)


def _read(text: str, binary: str) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(text)
    fields[binary] = base64.b64decode(fields[binary])
    return fields
