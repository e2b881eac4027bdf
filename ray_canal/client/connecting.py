"""connect and connect_async. Apart from api.py, as clients load Arrow, kernels and SQL's grammar:
whoever starts a destination does without them, and starts it sooner."""

from __future__ import annotations

import ssl
from typing import Any

from ray_canal.actors.registry import NAMESPACE
from ray_canal.client.connector import AsyncConnector, Connector
from ray_canal.client.joining import connect_ray
from ray_canal.client.tcp import TcpTransport
from ray_canal.client.tcp_wire import Address
from ray_canal.client.transport import RayTransport, Transport
from ray_canal.errors import ConfigError
from ray_canal.model.subscription import DEFAULT_CLIENT_ID


def connect(
    destination: str,
    client_id: int | None = DEFAULT_CLIENT_ID,
    *,
    namespace: str = NAMESPACE,
    address: str = "",
    username: str = "",
    password: str = "",
    tls: ssl.SSLContext | None = None,
) -> Connector:
    """A blocking client of a destination. Raises InstanceNotFound.

    `client_id` None: an ephemeral subscription, for who looks on. Nobody else has its id, it holds
    up nobody (policy "detach"), and it ends when the connector is closed, or a minute and a half
    after its process is gone.

    With `address` ("host:port", 11111 if there is no port) by Canal's TCP protocol, without Ray:
    then messages have entries and no Arrow batches. Raises ConnectionLost, AuthenticationFailed.
    """
    login = {"username": username, "password": password, "tls": tls}
    _refuse_ephemeral(client_id, address)
    return Connector(_transport(destination, namespace, address, login), client_id)


def connect_async(
    destination: str,
    client_id: int | None = DEFAULT_CLIENT_ID,
    *,
    namespace: str = NAMESPACE,
    address: str = "",
    username: str = "",
    password: str = "",
    tls: ssl.SSLContext | None = None,
) -> AsyncConnector:
    """An asyncio client of a destination; see `connect`."""
    login = {"username": username, "password": password, "tls": tls}
    _refuse_ephemeral(client_id, address)
    return AsyncConnector(_transport(destination, namespace, address, login), client_id)


def _refuse_ephemeral(client_id: int | None, address: str) -> None:
    if client_id is None and address:
        raise ConfigError(
            "Canal's TCP protocol has no ephemeral subscriptions (client_id=None): give a client_id"
        )


def _transport(destination: str, namespace: str, address: str, login: dict[str, Any]) -> Transport:
    if address:
        return TcpTransport(destination, Address.parse(address, **login))
    if any(login.values()):
        raise ConfigError('username, password and tls belong to an address="host:port"')
    connect_ray()
    return RayTransport(destination, namespace)
