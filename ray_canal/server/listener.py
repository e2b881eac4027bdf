"""The server itself: listens, accepts, and knows its connections."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ray_canal.config import ServerConfig
from ray_canal.config.changes import changed_keys
from ray_canal.errors import ConfigError
from ray_canal.server.access import Access
from ray_canal.server.connection import Connection
from ray_canal.server.limits import MemoryBudget, Places
from ray_canal.server.ports import OpenStore
from ray_canal.server.shared import Shared
from ray_canal.views.entries import load_kernels

logger = logging.getLogger(__name__)

_RENDER_THREADS = 4
_CLOSE_WAIT_S = 5.0


class TcpServer:
    """Canal's TCP protocol for every destination that `open_store` knows."""

    def __init__(self, config: ServerConfig, open_store: OpenStore) -> None:
        self._config = config
        self._shared = Shared(
            config,
            Access(config),
            open_store,
            ThreadPoolExecutor(_RENDER_THREADS, thread_name_prefix="render"),
            MemoryBudget(config.buffer_bytes_max),
            Places(config.connections_max, config.logins_max),
        )
        self._tls = _tls(config)
        self._tls_digest = _digest(config)
        self._server: asyncio.base_events.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listen. Raises ConfigError: the port is taken, the host is not ours."""
        config = self._config
        try:
            self._server = await asyncio.start_server(
                self._accept,
                config.listens_on,
                config.port,
                backlog=1024,
                reuse_port=True if config.replicas > 1 else None,
            )
        except OSError as error:
            raise ConfigError(
                f"server: cannot listen on {config.listens_on}:{config.port}: {error.strerror}; "
                "give another server.port, or stop what has it"
            ) from error
        if config.warning:
            logger.warning("Canal's TCP protocol: %s", config.warning)
        # The first get need not wait for them.
        self._shared.loading = self._shared.executor.submit(load_kernels)

    @property
    def port(self) -> int:
        """Return where it listens: the configured port, or the one that was found for 0."""
        if self._server is None or not self._server.sockets:
            return 0
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, which counts from here on: also while it negotiates TLS."""
        task = asyncio.current_task()
        if task is None:
            return
        self._tasks.add(task)
        self._shared.places.enter(task, task.cancel)
        transport = writer.transport
        raw = writer.get_extra_info("socket")
        try:
            if raw is not None:
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            secured = reader, writer  # the plain ones stay: without them, their transport would go
            if self._tls is not None:
                secured = await _secured(writer, self._tls, self._config.login_timeout_s)
            await Connection(self._shared, task, *secured).serve()
        except asyncio.CancelledError:
            transport.abort()  # displaced, or the server closes
        except OSError as error:  # ssl.SSLError is one
            logger.info("%s: no TLS: %s", writer.get_extra_info("peername"), error)
            transport.abort()
        finally:
            self._shared.places.leave(task)
            self._tasks.discard(task)

    def compare(self, config: ServerConfig) -> list[str]:
        """The keys in which a configuration differs from this server's, or what they refer to has
        changed since it started. Raises ConfigError: it cannot be served."""
        found, access, _ = changed_keys(self._config, config), Access(config), _tls(config)
        if not access.same_as(self._shared.access) and not found:
            found.append("what a password refers to")
        if config.tls == self._config.tls and _digest(config) != self._tls_digest:
            found.append("files of tls")
        return found

    def status(self) -> dict[str, Any]:
        """Plain values, no secrets."""
        shared = self._shared
        return {
            "address": f"{self._config.listens_on}:{self.port}",
            "connections": shared.places.admitted,
            "logging_in": shared.places.pending,
            "requests": shared.requests,
            "sent_bytes": shared.sent_bytes,
            "buffered_bytes": shared.budget.used_bytes,
            "warning": self._config.warning,
        }

    async def close(self) -> None:
        """End every connection and give the port back."""
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=_CLOSE_WAIT_S)
        if self._server is not None:
            await self._server.wait_closed()
        self._shared.executor.shutdown(wait=False)


async def _secured(
    plain: asyncio.StreamWriter, context: ssl.SSLContext, timeout_s: float
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """TLS over a connection of which nothing was read yet. Raises OSError."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    transport = await loop.start_tls(
        plain.transport,
        protocol,
        context,
        server_side=True,
        ssl_handshake_timeout=timeout_s,
    )
    if transport is None:
        raise ConnectionAbortedError("the connection ended during the handshake")
    protocol.connection_made(transport)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


def _digest(config: ServerConfig) -> bytes:
    """Return a digest of what the files of TLS hold."""
    tls, found = config.tls, hashlib.sha256()
    for name in filter(None, (tls.cert, tls.key, tls.ca)):
        with contextlib.suppress(OSError):
            found.update(hashlib.sha256(Path(name).read_bytes()).digest())
    return found.digest()


def _tls(config: ServerConfig) -> ssl.SSLContext | None:
    if not config.tls.cert:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(config.tls.cert, config.tls.key or None)
        if config.tls.ca:
            context.load_verify_locations(config.tls.ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except OSError as error:  # ssl.SSLError is one
        raise ConfigError(
            f"server.tls: cert {config.tls.cert!r}, key {config.tls.key!r}, ca {config.tls.ca!r}: "
            f"{error.strerror or error}"
        ) from error
    return context
