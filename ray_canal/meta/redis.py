"""Cursors in a Redis server outside of Ray (extra `redis`).

Keys: `NAME:{DESTINATION}:epoch`, a number, `…:owner`, who made it, `…:cursors`, a hash by client
id; the braces keep them in one slot of a Redis Cluster. Writes are scripts, which Redis runs one at
a time, so no takeover fits between the look at the epoch and the write. As durable as the server's
append-only file is (appendonly yes, appendfsync always).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

from ray_canal.config import MetaConfig, secret
from ray_canal.errors import ConfigError, MetaUnavailable
from ray_canal.meta.backend import fenced

log = logging.getLogger(__name__)

_PORT = 6379
_ACQUIRE = """
local newest = tonumber(redis.call('get', KEYS[1]) or '0')
local mine = ARGV[1] ~= '' and redis.call('get', KEYS[2]) == ARGV[1]
if ARGV[2] ~= '' and newest ~= tonumber(ARGV[2]) and not mine then return -1 end
redis.call('set', KEYS[2], ARGV[1])
return redis.call('incr', KEYS[1])
"""
_SAVE = """
local newest = tonumber(redis.call('get', KEYS[1]) or '0')
if newest ~= tonumber(ARGV[1]) then return newest end
redis.call('hset', KEYS[2], ARGV[2], ARGV[3])
return -1
"""
_REMOVE = """
local newest = tonumber(redis.call('get', KEYS[1]) or '0')
if newest ~= tonumber(ARGV[1]) then return newest end
redis.call('hdel', KEYS[2], ARGV[2])
return -1
"""
_DURABLE = {"appendonly": "yes", "appendfsync": "always"}

T = TypeVar("T")


class RedisBackend:
    """See MetaBackend. Raises MetaUnavailable; on opening ConfigError, too: refused, no `redis`."""

    def __init__(self, config: MetaConfig) -> None:
        try:
            import redis
        except ImportError:
            raise ConfigError(
                'meta.backend = "redis" needs the extra: pip install "ray-canal[redis]"'
            ) from None
        self._name = config.database
        self.where = f"meta keys {config.database}:* in Redis at {config.address}"
        self._errors = (redis.RedisError, OSError)
        host, port = config.host_port(_PORT)
        self._client: Any = redis.Redis(
            host=host,
            port=port,
            username=config.username or None,
            password=secret(config.password) or None,
            socket_timeout=config.timeout_s,
            socket_connect_timeout=config.timeout_s,
            decode_responses=True,
            **_tls(config),
        )
        try:
            self._client.ping()
        except self._errors as error:
            self.close()
            away = isinstance(error, redis.ConnectionError | redis.TimeoutError | OSError)
            refused = isinstance(error, redis.AuthenticationError)
            kind = MetaUnavailable if away and not refused else ConfigError
            raise kind(f"{self.where} cannot be used: {error}") from None
        self._warn_if_not_durable()

    def _warn_if_not_durable(self) -> None:
        try:
            found = {key: self._client.config_get(key).get(key) for key in _DURABLE}
        except self._errors:
            return  # CONFIG is forbidden in many hosted servers
        if found != _DURABLE:
            log.warning(
                "%s: acks are lost if Redis crashes (%s); set appendonly yes and appendfsync "
                "always. What is lost is delivered again",
                self.where,
                ", ".join(f"{key} {value}" for key, value in found.items()),
            )

    def _keys(self, destination: str) -> tuple[str, str]:
        prefix = f"{self._name}:{{{destination}}}"
        return f"{prefix}:epoch", f"{prefix}:cursors"

    def _run(self, operation: Callable[[], T]) -> T:
        try:
            return operation()
        except self._errors as error:
            raise MetaUnavailable(f"{self.where} cannot be used: {error}") from None

    def acquire(self, destination: str, owner: str = "", after: int | None = None) -> int:
        epoch_key, _ = self._keys(destination)
        keys = (epoch_key, epoch_key.removesuffix("epoch") + "owner")
        expected = "" if after is None else after
        epoch = int(self._run(lambda: self._client.eval(_ACQUIRE, 2, *keys, owner, expected)))
        if epoch == -1:
            raise fenced(destination, after or 0, self.epoch(destination))
        return epoch

    def epoch(self, destination: str) -> int:
        return int(self._run(lambda: self._client.get(self._keys(destination)[0])) or 0)

    def load(self, destination: str) -> dict[int, str]:
        found = self._run(lambda: self._client.hgetall(self._keys(destination)[1]))
        return {int(client_id): str(record) for client_id, record in found.items()}

    def save(self, destination: str, epoch: int, client_id: int, record: str) -> None:
        self._write(_SAVE, destination, epoch, client_id, record)

    def remove(self, destination: str, epoch: int, client_id: int) -> None:
        self._write(_REMOVE, destination, epoch, client_id)

    def _write(self, script: str, destination: str, epoch: int, *values: object) -> None:
        keys = self._keys(destination)
        newest = int(self._run(lambda: self._client.eval(script, 2, *keys, epoch, *values)))
        if newest != -1:
            raise fenced(destination, epoch, newest)

    def close(self) -> None:
        self._client.close()


def _tls(config: MetaConfig) -> dict[str, Any]:
    """redis-py's arguments. `preferred` is plain: Redis has no negotiation."""
    tls = config.tls
    if tls.mode in ("disabled", "preferred"):
        return {}
    return {
        "ssl": True,
        "ssl_cert_reqs": "none" if tls.mode == "required" else "required",
        "ssl_check_hostname": tls.mode == "verify_identity",
        "ssl_ca_certs": tls.ca or None,
        "ssl_certfile": tls.cert or None,
        "ssl_keyfile": tls.key or None,
    }
