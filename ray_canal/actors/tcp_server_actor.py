"""The TCP server actor: serves Canal's protocol for every destination of the cluster.

Hard state: none. Which batches of a connection are outstanding is known to its stores; a client of
a server that dies connects again, to this one's next life or to another replica. The constructor
begins to listen and goes on trying, so a port that is not free yet (a restart, a move) heals.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import ray

from ray_canal.actors.calls import DestinationCalls
from ray_canal.actors.log_settings import take_up_log_settings
from ray_canal.actors.priority import as_ray_itself
from ray_canal.actors.time_slice import shorten_time_slices
from ray_canal.config import ServerConfig
from ray_canal.config.changes import changed_keys
from ray_canal.errors import ConfigError, InstanceNotRunning
from ray_canal.logs import tell
from ray_canal.malloc import keep_freed_memory
from ray_canal.server.listener import TcpServer

logger = logging.getLogger(__name__)

_RETRY_S = 1.0
_FAILURE_WAIT_S = 15.0
"""How long whoever opens a port waits for it to be free: a server that ends frees it sooner."""
_RESTART_WAIT_S = 30.0
"""How long a request waits for a store that restarts: half of the Java client's read timeout."""


class TcpServerActor:
    """One replica."""

    # Ray awaits an async constructor of an async actor.
    async def __init__(self, server_json: str, namespace: str) -> None:  # type: ignore[misc]
        as_ray_itself()
        shorten_time_slices()
        take_up_log_settings(namespace)
        keep_freed_memory()
        self._config = ServerConfig.model_validate_json(server_json)
        self._namespace = namespace
        self._server: TcpServer | None = None
        self._failure: Exception | None = None
        self._life = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        while True:
            try:
                server = TcpServer(self._config, self._open_store)
                await server.start()
                self._server, self._failure = server, None
                tell(logger, "port", "Canal's TCP port is open", port="tcp")
                return
            except ConfigError as error:
                logger.warning("%s", error)
                self._failure = error
            await asyncio.sleep(_RETRY_S)

    async def _open_store(self, destination: str) -> DestinationCalls:
        # The look-up asks Ray's head node and waits for it: not on the event loop.
        return await asyncio.to_thread(
            DestinationCalls, destination, self._namespace, _RESTART_WAIT_S
        )

    async def alive(self) -> None:
        """Answer: this process is not stopped, and its event loop turns."""

    async def address(self, timeout: float) -> str:
        """host:port once it listens. Raises ConfigError: it cannot."""
        begun = time.monotonic()
        while self._server is None:
            limit = timeout if self._failure is None else min(timeout, _FAILURE_WAIT_S)
            if time.monotonic() - begun > limit:
                raise self._failure or InstanceNotRunning("the server is still starting")
            await asyncio.sleep(0.05)
        host = self._config.listens_on
        if host in ("0.0.0.0", "::"):
            host = ray.util.get_node_ip_address()
        return f"[{host}]:{self._server.port}" if ":" in host else f"{host}:{self._server.port}"

    async def compare(self, server_json: str) -> list[str]:
        """The keys in which a configuration differs from what is served here; also one whose value
        is the same, but refers to something that has changed. Raises ConfigError: it cannot be
        served."""
        given = ServerConfig.model_validate_json(server_json)
        if self._server is None:
            return changed_keys(self._config, given)
        return await asyncio.to_thread(self._server.compare, given)

    async def status(self) -> dict[str, Any]:
        """Connections, requests, bytes; plain values."""
        if self._server is None:
            return {"error": str(self._failure) if self._failure else "starting"}
        return self._server.status()

    async def stop(self) -> None:
        """Close every connection and the port."""
        self._life.cancel()
        await asyncio.gather(self._life, return_exceptions=True)
        if self._server is not None:
            await self._server.close()
