"""The console as an ASGI application: routes, errors as answers, and the server that runs it."""

from __future__ import annotations

import contextlib
import logging
import ssl
import threading
import time
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import JSONResponse, RedirectResponse, Response

from ray_canal import console
from ray_canal.config import ConsoleConfig
from ray_canal.console import pages, rest, rest_deployment
from ray_canal.console.access import ConsoleLogins
from ray_canal.console.audit import Audit
from ray_canal.console.cluster import Cluster
from ray_canal.console.collector import Collector
from ray_canal.console.context import ConsoleContext, LoginNeeded, known_visitor
from ray_canal.console.first_source import SourceFiles
from ray_canal.console.guard import LOCAL_HOSTS, Guard
from ray_canal.console.live_tail import Tails
from ray_canal.console.protocol import ImpatientProtocol
from ray_canal.errors import (
    AccessDenied,
    CanalError,
    ConfigError,
    ConsumerError,
    InstanceNotFound,
    InstanceNotRunning,
    NotSubscribed,
    SourceError,
)
from ray_canal.logs import tell

logger = logging.getLogger(__name__)

_START_LIMIT_S = 30.0
_STATUS = (
    (AccessDenied, 403),
    (InstanceNotFound, 404),
    (NotSubscribed, 404),
    (ConfigError, 400),
    (ConsumerError, 429),
    (SourceError, 502),
    (InstanceNotRunning, 503),
)


def application(context: ConsoleContext) -> Guard:
    """Return the application over these parts."""
    app = FastAPI(
        title="ray_canal console",
        version="1",
        description=console.__doc__ or "",
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/v1/openapi.json",
    )
    app.state.context = context
    app.state.tails = Tails(context.config.tails_max)
    app.include_router(rest.router)
    app.include_router(rest_deployment.router)
    app.include_router(pages.router)
    app.add_middleware(GZipMiddleware, minimum_size=2048)
    app.add_exception_handler(CanalError, _failed)
    app.add_exception_handler(LoginNeeded, _login_needed)
    app.add_exception_handler(HTTPException, _http_failed)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(Exception, _unexpected)
    config = context.config
    hosts = () if config.asks_who_comes or config.insecure else LOCAL_HOSTS
    return Guard(app, hosts, config.requests_max)


def _by_program(request: Request) -> bool:
    return request.url.path.startswith(("/api/", "/metrics"))


async def _failed(request: Request, error: Exception) -> Response:
    status = next((code for kind, code in _STATUS if isinstance(error, kind)), 409)
    return _answer(request, status, str(error), type(error).__name__)


async def _http_failed(request: Request, error: Exception) -> Response:
    code = error.status_code if isinstance(error, HTTPException) else 500
    return _answer(request, code, getattr(error, "detail", ""), "HTTPException")


async def _invalid(request: Request, error: Exception) -> Response:
    """Name the fields, and not what was given for them: it may be a password."""
    found = error.errors() if isinstance(error, RequestValidationError) else []
    told = "; ".join(f"{'.'.join(map(str, each['loc'][1:]))}: {each['msg']}" for each in found)
    return _answer(request, 422, told, "ConfigError")


async def _unexpected(request: Request, error: Exception) -> Response:
    """Ray's own errors, say; their text may hold anything. The server logs it."""
    message = f"{type(error).__name__}: the console's log says more"
    return _answer(request, 500, message, "CanalError")


def _answer(request: Request, status: int, message: str, kind: str) -> Response:
    if _by_program(request):
        return JSONResponse({"error": kind, "message": message}, status)
    visitor = None
    with contextlib.suppress(AccessDenied):
        visitor = known_visitor(request)
    of = "" if status == 404 else request.path_params.get("destination", "")
    return pages.page(request, "error.html", visitor, status, message=message, of=of)


async def _login_needed(request: Request, error: Exception) -> Response:
    if _by_program(request) or request.headers.get("x-part"):
        by_page = request.headers.get("sec-fetch-mode", "navigate") != "navigate"
        # A browser would ask for name and password in a window of its own, over the page.
        asks = {} if by_page else {"WWW-Authenticate": 'Basic realm="ray_canal console"'}
        message = "say who you are: authorization: Basic"
        return JSONResponse({"error": "LoginNeeded", "message": message}, 401, headers=asks)
    return RedirectResponse("/login", 303)


class Console:
    """One console: it asks the destinations and serves pages, from threads of its own."""

    def __init__(self, config: ConsoleConfig, cluster: Cluster, files: SourceFiles) -> None:
        """Raises ConfigError: a secret cannot be read."""
        self._config = config
        self._collector = Collector(cluster, config.refresh_s)
        context = ConsoleContext(
            config=config,
            cluster=cluster,
            collector=self._collector,
            logins=ConsoleLogins(config),
            audit=Audit(config.audit_log),
            files=files,
        )
        self._server = uvicorn.Server(_server_config(config, application(context)))
        self._thread = threading.Thread(target=self._server.run, name="console", daemon=True)

    def start(self) -> str:
        """Begin to listen; return the URL. Raises ConfigError: the port cannot be had."""
        self._collector.start()
        self._thread.start()
        deadline = time.monotonic() + _START_LIMIT_S
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                self.stop()
                raise ConfigError(
                    f"the console cannot listen on {self._config.listens_on}:{self._config.port}: "
                    "is the port taken, or the certificate wrong? (console.port, console.tls)"
                )
            time.sleep(0.02)
        port = self._server.servers[0].sockets[0].getsockname()[1]
        host = self._config.listens_on
        host = "127.0.0.1" if host in ("0.0.0.0", "::") else host
        scheme = "https" if self._config.tls.cert else "http"
        tell(logger, "console started", "the console listens at port %d", port)
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

    def stop(self) -> None:
        """Close the port and end asking. The destinations go on."""
        tell(logger, "console stopped", "the console is closed")
        self._server.should_exit = True
        self._server.force_exit = True  # a live tail would keep it
        self._collector.stop()
        if self._thread.is_alive():
            self._thread.join(_START_LIMIT_S)


def _server_config(config: ConsoleConfig, app: Any) -> uvicorn.Config:
    tls: dict[str, Any] = {}
    if config.tls.cert:
        tls = {"ssl_certfile": config.tls.cert, "ssl_keyfile": config.tls.key or None}
    if config.tls.ca:
        tls |= {"ssl_ca_certs": config.tls.ca, "ssl_cert_reqs": ssl.CERT_REQUIRED}
    return uvicorn.Config(
        app,
        host=config.listens_on,
        port=config.port,
        log_config=None,
        log_level="error",  # a line for each connection that is refused would be a flood, too
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="off",
        ws="none",
        http=ImpatientProtocol,
        limit_concurrency=config.connections_max,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=2,
        h11_max_incomplete_event_size=32 << 10,
        **tls,
    )
