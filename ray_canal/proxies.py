"""Connections to this machine's own addresses that leave out the proxy of `http_proxy`.

That is there for the web, and knows another machine by the name 127.0.0.1. Browsers leave it out
for these addresses; urllib and gRPC do so only where `no_proxy` lists them.
"""

from __future__ import annotations

import ipaddress
import os
import urllib.parse
import urllib.request
from http.client import HTTPResponse

_NO_GRPC_PROXY = "no_grpc_proxy"
"""gRPC's own name, in small letters alone; it comes before `no_proxy`."""
_HERE = "localhost,127.0.0.1,::1"


class _DirectHere(urllib.request.ProxyHandler):
    def proxy_open(self, req: urllib.request.Request, proxy: str, type: str) -> HTTPResponse | None:
        if is_here(urllib.parse.urlsplit(f"//{req.host}").hostname or ""):
            return None
        return super().proxy_open(req, proxy, type)


def http_opener(*handlers: urllib.request.BaseHandler) -> urllib.request.OpenerDirector:
    """Return what opens URLs as `urllib.request.urlopen` does, those of this machine directly."""
    return urllib.request.build_opener(_DirectHere(), *handlers)


def is_here(host: str) -> bool:
    """Return whether a name or address is this machine's own, whatever its network is."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def grpc_direct_here() -> None:
    """Let gRPC's channels that this process opens from now on reach this machine directly."""
    listed = os.environ.get(_NO_GRPC_PROXY) or os.environ.get("no_proxy", "")
    if _HERE not in listed:
        os.environ[_NO_GRPC_PROXY] = f"{listed},{_HERE}" if listed else _HERE
