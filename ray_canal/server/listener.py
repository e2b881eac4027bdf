"""The server itself: listens, accepts, and knows its connections."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import logging
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ray_canal.config import ServerConfig
from ray_canal.config.changes import changed_keys
from ray_canal.errors import ConfigError, os_error_text
from ray_canal.server.access import Access
from ray_canal.server.connection import Connection
from ray_canal.server.limits import MemoryBudget, Places
from ray_canal.server.ports import OpenStore
from ray_canal.server.shared import Shared
from ray_canal.views.entries import load_kernels

logger = logging.getLogger(__name__)

_RENDER_THREADS = 4
_CLOSE_WAIT_S = 5.0
_BACKLOG = 1024
_ACCEPT_AGAIN_S = 1.0
_TELL_AGAIN_S = 60.0
_NO_FAMILY = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)
"""Where the machine has no IPv6, or not for this address."""


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
        self._listening: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listen. Raises ConfigError: the port is taken, the host is not ours."""
        config = self._config
        try:
            self._listening = await _listening(config)
        except OSError as error:
            raise ConfigError(
                f"server: cannot listen on {config.listens_on}:{config.port}: {error.strerror}; "
                "give another server.port, or stop what has it"
            ) from error
        if config.warning:
            logger.warning("Canal's TCP protocol: %s", config.warning)
        self._accepting = [asyncio.ensure_future(self._accept(each)) for each in self._listening]
        # The first get need not wait for them.
        self._shared.loading = self._shared.executor.submit(load_kernels)

    @property
    def port(self) -> int:
        """Return where it listens: the configured port, or the one that was found for 0."""
        if not self._listening:
            return 0
        port: int = self._listening[0].getsockname()[1]
        return port

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        told_at = -_TELL_AGAIN_S
        while True:
            try:
                connection, address = await loop.sock_accept(listening)
            except ConnectionError:
                continue  # the client has gone already
            except OSError as error:  # no file descriptors or memory; clients wait in the backlog
                if loop.time() - told_at >= _TELL_AGAIN_S:
                    told_at, text = loop.time(), os_error_text(error)
                    logger.warning("Canal's TCP protocol: no connection is accepted: %s", text)
                await asyncio.sleep(_ACCEPT_AGAIN_S)
                continue
            task = asyncio.ensure_future(self._serve(connection, address))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            await asyncio.sleep(0)  # connections that are there get their turn, however many come

    async def _serve(self, accepted: socket.socket, address: Any) -> None:
        """One connection, which counts from here on: also while it negotiates TLS."""
        task = asyncio.current_task()
        assert task is not None
        self._shared.places.enter(task, task.cancel)
        writer: asyncio.StreamWriter | None = None
        try:
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            reader, writer = await _streams(accepted, self._tls, self._config.login_timeout_s)
            await Connection(self._shared, task, reader, writer).serve()
        except BaseException as error:
            if writer is not None:
                writer.transport.abort()
            if isinstance(error, OSError):  # ssl.SSLError is one
                logger.info("%s: no TLS: %s", address, error)
            elif not isinstance(error, asyncio.CancelledError):  # displaced, or the server closes
                raise
        finally:
            self._shared.places.leave(task)

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
        for accepting in self._accepting:
            accepting.cancel()
        await asyncio.gather(*self._accepting, return_exceptions=True)
        for listening in self._listening:
            listening.close()
        self._listening = []
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=_CLOSE_WAIT_S)
        self._shared.executor.shutdown(wait=False)


async def _listening(config: ServerConfig) -> list[socket.socket]:
    """Return a listening socket for each address of the host; for one of those at least, where it
    has others that are not of this machine (localhost as ::1 without IPv6). Raises OSError."""
    loop = asyncio.get_running_loop()
    addresses = await loop.getaddrinfo(
        config.listens_on, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    found: list[socket.socket] = []
    unfit: OSError | None = None
    with contextlib.ExitStack() as opened:
        for family, *_, address in dict.fromkeys(addresses):
            try:
                listening = socket.create_server(
                    address, family=family, backlog=_BACKLOG, reuse_port=config.replicas > 1
                )
            except OSError as error:
                if error.errno not in _NO_FAMILY:
                    raise
                unfit = error
                continue
            opened.callback(listening.close)
            listening.setblocking(False)
            found.append(listening)
        if unfit is not None and not found:
            raise unfit
        opened.pop_all()
    return found


async def _streams(
    accepted: socket.socket, tls: ssl.SSLContext | None, timeout_s: float
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return both ends of a connection, after its TLS handshake. Raises OSError."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    # No `start_tls` later on: an event loop may have read the client's greeting by then.
    transport, _ = await loop.connect_accepted_socket(
        lambda: protocol, accepted, ssl=tls, ssl_handshake_timeout=timeout_s if tls else None
    )
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
