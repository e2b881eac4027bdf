"""Which backend holds a deployment's cursors, and which its schema histories: the one place that
knows all of them. A client library is imported when its backend is the one."""

from __future__ import annotations

from pathlib import Path

from ray_canal.config import MetaConfig
from ray_canal.errors import ConfigError
from ray_canal.meta.backend import MetaBackend
from ray_canal.meta.memory import MemoryBackend
from ray_canal.meta.schema_sqlite import SqliteSchemaStore
from ray_canal.meta.schema_store import MemorySchemaStore, SchemaStore
from ray_canal.meta.sqlite import SqliteBackend


def open_backend(config: MetaConfig, *, must_exist: bool = False) -> MetaBackend:
    """The backend of cursors. `must_exist`: a file is not made. Raises ConfigError."""
    if config.backend == "memory":
        return MemoryBackend()
    if config.backend == "mysql":
        from ray_canal.meta.mysql import MysqlBackend

        return MysqlBackend(config)
    if config.backend == "redis":
        from ray_canal.meta.redis import RedisBackend

        return RedisBackend(config)
    if config.backend != "sqlite":
        raise ConfigError(f"meta.backend = {config.backend!r} has no backend for cursors")
    return SqliteBackend(config.path, must_exist=must_exist)


def open_schema_store(meta: MetaConfig, path: str, *, must_exist: bool = False) -> SchemaStore:
    """Open the schema store at `path`; by default next to the cursors: in their MySQL or Redis, or
    in a file next to theirs. `must_exist`: a file is not made.

    Raises ConfigError, MetaUnavailable.
    """
    if meta.backend == "memory" and not path:
        return MemorySchemaStore()
    if meta.backend == "mysql" and not path:
        from ray_canal.meta.schema_mysql import MysqlSchemaStore

        return MysqlSchemaStore(meta)
    if meta.backend == "redis" and not path:
        from ray_canal.meta.schema_redis import RedisSchemaStore

        return RedisSchemaStore(meta)
    if meta.is_server and not path:
        raise ConfigError(f"meta.backend = {meta.backend!r} has no store for schemas")
    sibling = str(Path(meta.path).with_suffix(".tsdb.db"))
    return SqliteSchemaStore(path or sibling, must_exist=must_exist)
