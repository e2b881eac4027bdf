"""Proxies are for other machines: this one's addresses are reached directly."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from ray_canal.console.rest_client import ConsoleClient
from ray_canal.proxies import grpc_direct_here, http_opener, is_here
from tests.http_receiver import HttpReceiver


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[HttpReceiver]:
    """What `http_proxy` names."""
    for name in ("no_proxy", "NO_PROXY", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    with HttpReceiver() as receiver:
        monkeypatch.setenv("http_proxy", receiver.url.removesuffix("/hook"))
        yield receiver


def test_this_machine_is_reached_without_it(proxy: HttpReceiver) -> None:
    with HttpReceiver() as here:
        http_opener().open(here.url, b"x", timeout=10).close()
        assert [body for _, body in here.requests] == [b"x"]
    assert proxy.requests == []


def test_other_machines_are_reached_by_it(proxy: HttpReceiver) -> None:
    http_opener().open("http://orders.example/hook", b"x", timeout=10).close()
    assert [headers["Host"] for headers, _ in proxy.requests] == ["orders.example"]


def test_a_console_here_is_asked_without_it(proxy: HttpReceiver) -> None:
    with HttpReceiver() as console:
        with pytest.raises(ValueError, match="Expecting value"):  # it answers nothing
            ConsoleClient(console.url).me()
        assert len(console.requests) == 1
    assert proxy.requests == []


@pytest.mark.parametrize("host", ["localhost", "a.localhost", "127.0.0.1", "127.9.9.9", "::1"])
def test_names_of_this_machine(host: str) -> None:
    assert is_here(host)


@pytest.mark.parametrize("host", ["", "10.0.0.1", "localhost.example", "2001:db8::1"])
def test_names_of_others(host: str) -> None:
    assert not is_here(host)


def test_grpc_keeps_the_exceptions_that_are_there(
    proxy: HttpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", ".example")
    monkeypatch.setenv("no_grpc_proxy", "")  # restored after the test
    grpc_direct_here()
    grpc_direct_here()
    assert dict(os.environ)["no_grpc_proxy"] == ".example,localhost,127.0.0.1,::1"
