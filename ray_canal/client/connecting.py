"""connect and connect_async. Apart from api.py, as clients load Arrow and kernels: whoever starts a
destination does without them, and starts it sooner. Ray and Flight are loaded by who connects over
them: a client by Canal's TCP protocol starts in a fifth of the time."""

from __future__ import annotations

import ssl
from typing import Any

from ray_canal.client.connector import AsyncConnector, Connector
from ray_canal.client.port import Transport
from ray_canal.errors import ConfigError
from ray_canal.model.subscription import DEFAULT_CLIENT_ID

NAMESPACE = "ray_canal"
"""The default of ray.namespace."""
SCHEMES = ("grpc://", "grpc+tls://")
"""Prefixes of an address of Arrow Flight."""


def connect(
    destination: str,
    client_id: int | None = DEFAULT_CLIENT_ID,
    *,
    namespace: str = NAMESPACE,
    address: str = "",
    username: str = "",
    password: str = "",
    tls: ssl.SSLContext | dict[str, str] | None = None,
) -> Connector:
    """A blocking client of a destination. Raises InstanceNotFound.

    `client_id` None: an ephemeral subscription, to watch. Nobody else has its id, it holds
    up nobody (policy "detach"), and it ends when the connector is closed, or half a minute after
    its process is gone.

    With an `address` without Ray. "grpc://host:port" or "grpc+tls://host:port": by Arrow Flight
    ([flight]), with all that this has over Ray; `tls` is then a dict of files, "ca", "cert", "key".
    "host:port" (11111 if there is no port): by Canal's TCP protocol; then messages have entries and
    no Arrow batches, and `tls` is an SSLContext. Raises ConnectionLost, AuthenticationFailed.
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
    tls: ssl.SSLContext | dict[str, str] | None = None,
) -> AsyncConnector:
    """An asyncio client of a destination; see `connect`."""
    login = {"username": username, "password": password, "tls": tls}
    _refuse_ephemeral(client_id, address)
    return AsyncConnector(_transport(destination, namespace, address, login), client_id)


def _refuse_ephemeral(client_id: int | None, address: str) -> None:
    if client_id is None and address and not address.startswith(SCHEMES):
        raise ConfigError(
            "Canal's TCP protocol has no ephemeral subscriptions (client_id=None): give a "
            "client_id, or the address of Arrow Flight, grpc://…"
        )


def _transport(destination: str, namespace: str, address: str, login: dict[str, Any]) -> Transport:
    if address.startswith(SCHEMES):
        from ray_canal.client.flight import FlightAddress, FlightTransport  # 20 MB of libraries

        return FlightTransport(destination, FlightAddress.of(address, **login))
    if isinstance(login["tls"], dict):
        raise ConfigError("tls as a dict of files belongs to an address grpc+tls://…")
    if address:
        from ray_canal.client.tcp import TcpTransport
        from ray_canal.client.tcp_wire import Address

        return TcpTransport(destination, Address.parse(address, **login))
    if any(login.values()):
        raise ConfigError('username, password and tls belong to an address="host:port"')
    from ray_canal.client.joining import connect_ray
    from ray_canal.client.transport import RayTransport

    connect_ray(local=False)
    return RayTransport(destination, namespace)
