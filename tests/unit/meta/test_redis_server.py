"""What a connection to Redis is made with, and what its errors become;
tests/integration/test_meta_servers.py has a real one."""

from __future__ import annotations

import sys
from typing import Any, ClassVar

import pytest
import redis

from ray_canal.config import MetaConfig
from ray_canal.errors import ConfigError, MetaUnavailable
from ray_canal.meta.redis_server import RedisServer, _tls


class Client:
    """Stands for redis.Redis: what it was made with, and answers or errors by turns."""

    def __init__(self, **given: Any) -> None:
        self.given, self.asked, self.closed = given, list[Any](), False
        Client.last = self

    def _next(self, *asked: Any) -> Any:
        self.asked.append(asked)
        answer = Client.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def ping(self) -> Any:
        return self._next("ping")

    def get(self, key: str) -> Any:
        return self._next("get", key)

    def close(self) -> None:
        self.closed = True

    answers: ClassVar[list[Any]] = []
    last: ClassVar[Client]


@pytest.fixture(autouse=True)
def _client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis, "Redis", Client)


def server(*answers: Any, **more: Any) -> RedisServer:
    Client.answers = list(answers)
    return RedisServer(config("r:6380", **more), "meta keys")


def config(address: str, **more: Any) -> MetaConfig:
    return MetaConfig.model_validate(
        {"backend": "redis", "address": address, "database": "mine", "timeout_s": 2.0, **more}
    )


def test_it_connects_as_configured_and_never_tries_again_by_itself() -> None:
    assert server(True, username="u", password="s3cret").key("orders", "epoch") == (
        "mine:{orders}:epoch"  # the braces: one slot of a cluster
    )
    given = Client.last.given
    wanted = {"host": "r", "port": 6380, "username": "u", "password": "s3cret",
              "socket_timeout": 2.0, "socket_connect_timeout": 2.0}  # fmt: skip
    assert {name: given[name] for name in wanted} == wanted
    assert given["retry"]._retries == 0


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (redis.ConnectionError("refused"), MetaUnavailable),
        (redis.TimeoutError("silent"), MetaUnavailable),
        (OSError("no route"), MetaUnavailable),
        (redis.AuthenticationError("wrong"), ConfigError),
        (redis.ResponseError("unknown command"), ConfigError),
    ],
)
def test_whether_waiting_helps(error: Exception, kind: type[Exception]) -> None:
    with pytest.raises(kind, match=rf"meta keys mine:\* in Redis at r:6380 cannot .*{error}"):
        server(error)
    assert Client.last.closed


def test_a_connection_that_has_ended_is_made_again_once() -> None:
    ended = redis.ConnectionError("closed by server")
    assert server(True, ended, "hi").call("get", "k") == "hi"
    with pytest.raises(MetaUnavailable, match="closed by server"):
        server(True, ended, ended, "hi").call("get", "k")
    assert Client.last.asked == [("ping",), ("get", "k"), ("get", "k")]


@pytest.mark.parametrize("error", [redis.TimeoutError("silent"), redis.ResponseError("NOPERM")])
def test_what_is_silent_or_refuses_is_not_asked_again(error: Exception) -> None:
    with pytest.raises(MetaUnavailable, match=str(error)):
        server(True, error, "hi").call("get", "k")
    assert Client.answers == ["hi"]


@pytest.mark.parametrize(
    ("mode", "certificates", "names"),
    [("required", "none", False), ("verify_ca", "required", False),
     ("verify_identity", "required", True)],
)  # fmt: skip
def test_tls(mode: str, certificates: str, names: bool) -> None:
    given = _tls(config("r:1", tls={"mode": mode, "ca": "ca.pem"}))
    assert (given["ssl_cert_reqs"], given["ssl_check_hostname"]) == (certificates, names)
    assert given["ssl_ca_certs"] == "ca.pem"
    assert _tls(config("r:1", tls={"mode": "preferred"})) == {}


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(ConfigError, match=r"ray-canal\[redis\]"):
        RedisServer(config("r:1"), "meta keys")
