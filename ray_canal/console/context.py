"""Context of each request of the console: its parts, the visitor, and calls of the cluster.

A call that changes something runs in a thread with a time limit: a destination that does not answer
costs its caller that long, and nobody else anything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import anyio
import anyio.to_thread
from fastapi import Depends, Request

from ray_canal.config import CanalConfig, ConsoleConfig
from ray_canal.console.access import ConsoleLogins, Visitor
from ray_canal.console.audit import Audit
from ray_canal.console.cluster import Cluster
from ray_canal.console.collector import Collector, KnownDestination
from ray_canal.console.first_source import SourceFiles
from ray_canal.errors import AccessDenied, InstanceNotRunning

T = TypeVar("T")

# What a request depends on is async: a thread for it might have to wait for one that is stuck.

COOKIE = "ray_canal_console"
CSRF_HEADER = "x-csrf-token"
FAILED_LOGIN_S = 1.0
_CALL_LIMIT_S = 60.0


class LoginNeeded(Exception):
    """The visitor has to say who they are."""


@dataclass(frozen=True, kw_only=True)
class ConsoleContext:
    """The parts of one console. `files`: where the form of a source writes."""

    config: ConsoleConfig
    cluster: Cluster
    collector: Collector
    logins: ConsoleLogins
    audit: Audit
    files: SourceFiles
    deployment: CanalConfig | None = None

    def visible(self, visitor: Visitor) -> list[KnownDestination]:
        """Return what is known of the destinations that the visitor may see."""
        return [known for known in self.collector.all() if visitor.sees(known.name)]

    def one(self, visitor: Visitor, destination: str) -> KnownDestination:
        """Return what is known of one. Raises AccessDenied, InstanceNotFound."""
        visitor.refuse_without("read", destination)
        return self.collector.one(destination)

    async def call(
        self, call: Callable[..., T], *arguments: Any, limit_s: float = _CALL_LIMIT_S
    ) -> T:
        """Return what a blocking call returns. Raises InstanceNotRunning: no answer in time."""
        try:
            with anyio.fail_after(limit_s):
                return await anyio.to_thread.run_sync(
                    lambda: call(*arguments), abandon_on_cancel=True
                )
        except TimeoutError:
            raise InstanceNotRunning(
                f"no answer within {limit_s:.0f} s (what is changed may still be carried out)"
            ) from None

    async def change(
        self,
        visitor: Visitor,
        action: str,
        destination: str,
        call: Callable[..., T],
        *args: Any,
        limit_s: float = _CALL_LIMIT_S,
    ) -> T:
        """Carry out what somebody changes, tell the audit log (the arguments, too: no secrets in
        them), and look at the result."""
        shown = {"arguments": [str(each) for each in args]} if args else {}
        try:
            result = await self.call(call, *args, limit_s=limit_s)
        except Exception as error:
            self.audit.tell(visitor.name, action, destination, failed=str(error), **shown)
            raise
        self.audit.tell(visitor.name, action, destination, **shown)
        await anyio.to_thread.run_sync(self.collector.refresh, destination)
        return result


async def context_of(request: Request) -> ConsoleContext:
    """Return the console that a request is for."""
    context: ConsoleContext = request.app.state.context
    return context


def known_visitor(request: Request) -> Visitor | None:
    """Return who asks; None: somebody who has to log in. Raises AccessDenied."""
    context: ConsoleContext = request.app.state.context
    peer = request.client.host if request.client else ""
    return context.logins.visitor(peer, request.headers, request.cookies.get(COOKIE, ""))


async def visitor_of(request: Request) -> Visitor:
    """Return who asks. Raises LoginNeeded; after a while, where a name and password were tried."""
    visitor = known_visitor(request)
    if visitor is None:
        if request.headers.get("authorization"):
            await anyio.sleep(FAILED_LOGIN_S)
        raise LoginNeeded
    return visitor


async def changer_of(request: Request) -> Visitor:
    """Return who asks for a change by REST. Raises LoginNeeded; AccessDenied: a browser may have
    been made to ask by somebody else's page."""
    context, visitor = await context_of(request), await visitor_of(request)
    if visitor.by_header or visitor.proves(request.headers.get(CSRF_HEADER, "")):
        return visitor
    if not context.logins.asks and request.headers.get("content-type", "").startswith(
        "application/json"
    ):
        return visitor  # a page of another site may send no JSON
    raise AccessDenied(
        "send name and password with the request (authorization: Basic), or the page's token as "
        f"{CSRF_HEADER}; without a password on the console, send application/json"
    )


TheContext = Annotated[ConsoleContext, Depends(context_of)]
Reader = Annotated[Visitor, Depends(visitor_of)]
Changer = Annotated[Visitor, Depends(changer_of)]
