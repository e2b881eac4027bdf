"""Cursors in a Redis server outside of Ray (extra `redis`).

Keys: `NAME:{DESTINATION}:epoch`, a number, `…:owner`, who made it, `…:cursors`, a hash by client
id. Writes are scripts, which Redis runs one at
a time, so no takeover fits between the look at the epoch and the write. As durable as the server's
append-only file is (appendonly yes, appendfsync always).
"""

from __future__ import annotations

import logging

from ray_canal.config import MetaConfig
from ray_canal.errors import MetaUnavailable
from ray_canal.meta.backend import clock_epoch, fenced, refused
from ray_canal.meta.redis_server import RedisServer

log = logging.getLogger(__name__)

_ACQUIRE = """
local newest = tonumber(redis.call('get', KEYS[1]) or '0')
local mine = ARGV[1] ~= '' and redis.call('get', KEYS[2]) == ARGV[1]
if ARGV[2] ~= '' and newest > tonumber(ARGV[2]) and not mine then return '' end
local epoch = string.format('%.0f', math.max(newest + 1, tonumber(ARGV[3])))
redis.call('set', KEYS[2], ARGV[1])
redis.call('set', KEYS[1], epoch)
return epoch
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


class RedisBackend:
    """A MetaBackend in Redis; RedisServer says what it raises."""

    def __init__(self, config: MetaConfig) -> None:
        self._server = RedisServer(config, "meta keys")
        self.where = self._server.where
        self._warn_if_not_durable()

    def _warn_if_not_durable(self) -> None:
        def setting(key: str) -> str:
            return str(self._server.call("config_get", key).get(key, ""))

        try:
            found = {key: setting(key) for key in _DURABLE}
            policy = setting("maxmemory-policy")
        except MetaUnavailable:
            return  # CONFIG is forbidden in many hosted servers
        if policy.startswith("allkeys"):
            log.warning(
                "%s: a Redis that runs full forgets cursors (maxmemory-policy %s), and subscribers "
                "with them; set maxmemory-policy noeviction",
                self.where,
                policy,
            )
        if found != _DURABLE:
            log.warning(
                "%s: acks are lost if Redis crashes (%s); set appendonly yes and appendfsync "
                "always. What is lost is delivered again",
                self.where,
                ", ".join(f"{key} {value}" for key, value in found.items()),
            )

    def _keys(self, destination: str) -> tuple[str, str]:
        return self._server.key(destination, "epoch"), self._server.key(destination, "cursors")

    def acquire(self, destination: str, owner: str = "", after: int | None = None) -> int:
        epoch_key, _ = self._keys(destination)
        keys = (epoch_key, epoch_key.removesuffix("epoch") + "owner")
        expected = "" if after is None else after
        epoch = self._server.call("eval", _ACQUIRE, 2, *keys, owner, expected, clock_epoch())
        if not epoch:
            raise fenced(destination, after or 0, self.epoch(destination))
        return int(epoch)

    def epoch(self, destination: str) -> int:
        return int(self._server.call("get", self._keys(destination)[0]) or 0)

    def epoch_at_once(self, destination: str) -> int | None:
        return None  # its server answers in its own time

    def load(self, destination: str) -> dict[int, str]:
        found = self._server.call("hgetall", self._keys(destination)[1])
        return {int(client_id): str(record) for client_id, record in found.items()}

    def save(self, destination: str, epoch: int, client_id: int, record: str) -> None:
        self._write(_SAVE, destination, epoch, client_id, record)

    def remove(self, destination: str, epoch: int, client_id: int) -> None:
        self._write(_REMOVE, destination, epoch, client_id)

    def _write(self, script: str, destination: str, epoch: int, *values: object) -> None:
        keys = self._keys(destination)
        newest = int(self._server.call("eval", script, 2, *keys, epoch, *values))
        if newest != -1:
            raise refused(destination, epoch, newest)

    def close(self) -> None:
        self._server.close()
