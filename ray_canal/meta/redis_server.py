"""One connection to a Redis server that keeps what a deployment must not forget (extra `redis`)."""

from __future__ import annotations

from typing import Any

from ray_canal.config import MetaConfig, secret
from ray_canal.errors import ConfigError, MetaUnavailable

_PORT = 6379


class RedisServer:
    """Raises MetaUnavailable; on opening ConfigError, too: refused, no `redis`. `what`: the keys,
    as an error calls them."""

    def __init__(self, config: MetaConfig, what: str) -> None:
        try:
            import redis
            from redis.backoff import NoBackoff
            from redis.retry import Retry
        except ImportError:
            raise ConfigError(
                'meta.backend = "redis" needs the extra: pip install "ray-canal[redis]"'
            ) from None
        self._prefix = config.database
        self.where = f"{what} {config.database}:* in Redis at {config.address}"
        self._errors = (redis.RedisError, OSError)
        self._ended: type[Exception] = redis.ConnectionError
        host, port = config.host_port(_PORT)
        self._client: Any = redis.Redis(
            host=host,
            port=port,
            username=config.username or None,
            password=secret(config.password) or None,
            socket_timeout=config.timeout_s,
            socket_connect_timeout=config.timeout_s,
            # Its own retries wait for seconds, and ask a server that does not answer again.
            retry=Retry(NoBackoff(), 0),
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

    def key(self, destination: str, name: str) -> str:
        """The braces keep a destination's keys in one slot of a Redis Cluster."""
        return f"{self._prefix}:{{{destination}}}:{name}"

    def call(self, command: str, *arguments: object) -> Any:
        """A method of the client; once more on a new connection if the old one has ended, so
        callers call what may be called twice. One that does not answer is not asked again."""
        try:
            try:
                return getattr(self._client, command)(*arguments)
            except self._ended:
                return getattr(self._client, command)(*arguments)
        except self._errors as error:
            self.close()  # its name may lead to another server: this one was made a replica
            raise MetaUnavailable(f"{self.where} cannot be used: {error}") from None

    def close(self) -> None:
        """End the connection; a later call makes a new one."""
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
