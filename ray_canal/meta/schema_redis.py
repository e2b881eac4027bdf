"""Schema histories and quarantined events next to the cursors in Redis (redis.py): they move with
the head, too. What is written twice is there once.

Keys: `NAME:{DESTINATION}:schemas` and `…:quarantined`, hashes of JSON by a record's name;
`…:schema_order`, the names of the first in the order in which they came; `…:quarantine_index`, what
the second hold but for their bytes.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ray_canal.config import MetaConfig
from ray_canal.meta.redis_server import RedisServer
from ray_canal.meta.schema_store import (
    ChunkKey,
    chunk_key,
    held_order,
    is_before,
    record_key,
)
from ray_canal.model.schema_record import Quarantined, QuarantinedChunk, SchemaRecord

_APPEND = """
for i = 1, #ARGV, 2 do
    if redis.call('hsetnx', KEYS[1], ARGV[i], ARGV[i + 1]) == 1 then
        redis.call('rpush', KEYS[2], ARGV[i])
    end
end
"""
_APPENDED_AT_ONCE = 500
_FORGET = """
redis.call('hdel', KEYS[1], ARGV[1])
redis.call('lrem', KEYS[2], 0, ARGV[1])
"""
_QUARANTINE = """
redis.call('hset', KEYS[1], ARGV[1], ARGV[2])
redis.call('hset', KEYS[2], ARGV[1], ARGV[3])
"""
_RELEASE = """
redis.call('hdel', KEYS[1], ARGV[1])
redis.call('hdel', KEYS[2], ARGV[1])
"""


class RedisSchemaStore:
    """A SchemaStore in Redis; RedisServer says what it raises."""

    def __init__(self, config: MetaConfig) -> None:
        self._server = RedisServer(config, "schema history")

    def _keys(self, destination: str) -> tuple[str, str]:
        key = self._server.key
        return key(destination, "schemas"), key(destination, "schema_order")

    def _quarantine(self, destination: str) -> tuple[str, str]:
        key = self._server.key
        return key(destination, "quarantined"), key(destination, "quarantine_index")

    def records(self, destination: str) -> list[SchemaRecord]:
        schemas, order = self._keys(destination)
        names = self._server.call("lrange", order, 0, -1)
        found = self._server.call("hmget", schemas, names) if names else []
        # A record that was forgotten between the two calls is none.
        return [SchemaRecord(**_read(text, "body")) for text in found if text is not None]

    def outline(self, destination: str) -> list[SchemaRecord]:
        return [replace(record, body=b"") for record in self.records(destination)]

    def append(self, destination: str, records: Sequence[SchemaRecord]) -> None:
        keys = self._keys(destination)
        for first in range(0, len(records), _APPENDED_AT_ONCE):
            named: list[str] = []
            for record in records[first : first + _APPENDED_AT_ONCE]:
                named += _name(*record_key(record)), _text(record, "body")
            self._server.call("eval", _APPEND, 2, *keys, *named)

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
        keys = self._quarantine(destination)
        for chunk in chunks:
            name, text = _name(*chunk_key(chunk)), _text(chunk, "data")
            self._server.call("eval", _QUARANTINE, 2, *keys, name, text, _index_text(chunk))

    def quarantined(self, destination: str) -> list[QuarantinedChunk]:
        data, index = self._quarantine(destination)
        texts = self._server.call("hgetall", index)
        for name in set(self._server.call("hkeys", data)) - set(texts):
            text = self._server.call("hget", data, name)  # from before there was an index
            if text is not None:
                fields = _read(text, "data")
                texts[name] = _index_text(Quarantined(**fields))
                self._server.call("hset", index, name, texts[name])
        found = []
        for text in texts.values():
            fields = json.loads(text)
            tables = tuple((schema, table) for schema, table in fields.pop("tables"))
            found.append(QuarantinedChunk(**fields, tables=tables))
        return sorted(found, key=held_order)

    def quarantined_data(self, destination: str, chunk: ChunkKey) -> bytes | None:
        text = self._server.call("hget", self._quarantine(destination)[0], _name(*chunk))
        return None if text is None else bytes(_read(text, "data")["data"])

    def release(self, destination: str, chunk: ChunkKey) -> None:
        keys = self._quarantine(destination)
        self._server.call("eval", _RELEASE, 2, *keys, _name(*chunk))

    def close(self) -> None:
        self._server.close()


def _name(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _text(record: SchemaRecord | Quarantined, binary: str) -> str:
    fields = dataclasses.asdict(record)
    fields[binary] = base64.b64encode(fields[binary]).decode()
    return json.dumps(fields)


def _index_text(chunk: Quarantined) -> str:
    server, journal_name, position = chunk_key(chunk)
    return json.dumps(
        {
            "server": server,
            "journal_name": journal_name,
            "position": position,
            "tables": chunk.tables,
            "size_bytes": len(chunk.data),
        }
    )


def _read(text: str, binary: str) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(text)
    fields[binary] = base64.b64decode(fields[binary])
    return fields
