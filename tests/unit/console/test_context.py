"""Calls that visitors make of the cluster: their limit, their audit, whose page asked for them."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.datastructures import Headers

from ray_canal.console import context as module
from ray_canal.console.context import (
    CSRF_HEADER,
    ConsoleContext,
    LoginNeeded,
    changer_of,
    visitor_of,
)
from ray_canal.errors import AccessDenied, InstanceNotRunning, NotSubscribed
from tests.pace import Pace
from tests.processes import wait_for
from tests.unit.console.played import Played, context_over

USERS = {"user": [{"username": "ada", "password": "all", "rights": ["admin"]},
                  {"username": "one", "password": "o", "rights": ["read"],
                   "destinations": ["d001"]}]}  # fmt: skip


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Callable[..., ConsoleContext]]:
    """Contexts of two played destinations, with an audit file."""
    every: list[ConsoleContext] = []

    def make(**console: Any) -> ConsoleContext:
        every.append(context_over(Played(2), audit_log=str(tmp_path / "audit"), **console))
        wait_for(lambda: len(every[-1].collector.all()) == 2, 30, "destinations")
        return every[-1]

    yield make
    for each in every:
        each.collector.stop()


def request_of(context: ConsoleContext, **headers: str) -> Any:
    named = Headers({name.replace("_", "-"): value for name, value in headers.items()})
    return SimpleNamespace(
        app=SimpleNamespace(state=SimpleNamespace(context=context)),
        client=SimpleNamespace(host="127.0.0.1"), headers=named, cookies={},
    )  # fmt: skip


def with_session(context: ConsoleContext, request: Any) -> Any:
    request.cookies[module.COOKIE] = context.logins.login("ada", "all")
    return request


def audited(tmp_path: Path) -> list[dict[str, Any]]:
    lines = (tmp_path / "audit").read_text(encoding="utf-8").splitlines()
    return [{k: v for k, v in json.loads(line).items() if k != "time"} for line in lines]


@pytest.mark.timed
def test_a_call_that_is_not_answered_ends_for_its_caller_alone(made: Any) -> None:
    context, release = made(), threading.Event()
    with Pace() as pace, pytest.raises(InstanceNotRunning, match="no answer within 0 s"):
        asyncio.run(context.call(release.wait, limit_s=0.1))
    assert pace.seconds < 5
    assert asyncio.run(context.call(lambda *given: given, 1, 2)) == (1, 2)
    release.set()


def test_a_change_is_audited_whether_it_works_or_not(made: Any, tmp_path: Path) -> None:
    context = made()
    ada = asyncio.run(visitor_of(request_of(context)))

    def refuse(destination: str) -> None:
        raise NotSubscribed(f"nobody in {destination}")

    asyncio.run(context.change(ada, "stop", "d000", context.cluster.stop, "d000"))
    assert [known.name for known in context.collector.all()] == ["d001"], "it is looked at at once"
    with pytest.raises(NotSubscribed):
        asyncio.run(context.change(ada, "pause", "d001", refuse, "d001"))
    assert audited(tmp_path) == [
        {"user": "anybody", "action": "stop", "destination": "d000", "arguments": ["d000"]},
        {"user": "anybody", "action": "pause", "destination": "d001", "failed": "nobody in d001",
         "arguments": ["d001"]},
    ]  # fmt: skip


def test_a_visitor_sees_their_destinations(made: Any) -> None:
    context = made(**USERS)
    one = asyncio.run(visitor_of(request_of(context, authorization="Basic b25lOm8=")))
    assert [known.name for known in context.visible(one)] == ["d001"]
    assert context.one(one, "d001").name == "d001"
    with pytest.raises(AccessDenied):
        context.one(one, "d000")


def test_who_did_not_log_in_is_told_so_and_guessing_is_slow(made: Any) -> None:
    context = made(**USERS)
    with pytest.raises(LoginNeeded):
        asyncio.run(visitor_of(request_of(context)))
    began = time.monotonic()
    with pytest.raises(LoginNeeded):
        asyncio.run(visitor_of(request_of(context, authorization="Basic b25lOng=")))  # one:x
    assert time.monotonic() - began >= module.FAILED_LOGIN_S


def test_a_change_comes_from_the_visitors_own_page_or_a_program(made: Any) -> None:
    context = made(**USERS)
    with_cookie = with_session(context, request_of(context))
    with pytest.raises(AccessDenied, match=CSRF_HEADER):
        asyncio.run(changer_of(with_cookie))
    csrf = asyncio.run(visitor_of(with_cookie)).csrf
    proven = with_session(context, request_of(context, **{CSRF_HEADER: csrf}))
    proven.cookies = with_cookie.cookies
    assert asyncio.run(changer_of(proven)).name == "ada"
    program = request_of(context, authorization="Basic YWRhOmFsbA==")
    assert asyncio.run(changer_of(program)).by_header


def test_without_passwords_json_is_proof(made: Any) -> None:
    """A page of another site may send a form, and no JSON."""
    context = made()
    as_form = request_of(context, content_type="application/x-www-form-urlencoded")
    with pytest.raises(AccessDenied):
        asyncio.run(changer_of(as_form))
    as_json = request_of(context, content_type="application/json; charset=utf-8")
    assert asyncio.run(changer_of(as_json)).name == "anybody"
