"""A client of a cluster that has gone asks nothing of Ray while nobody listens at its address."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest

import ray_canal as canal
from ray_canal.client import api, joining
from ray_canal.errors import ConfigError, InstanceNotRunning
from tests.unit.actors.small_cluster import SmallCluster

_PLAIN = bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
_JOINS = """
import sys
from ray_canal.client import joining
from ray_canal.errors import InstanceNotRunning

if sys.argv[1] == "again":
    joining._ours.address, joining._ours.head = "", "198.51.100.7:6379"
joining.keep_joined.__defaults__ = (0.5,)
joining._FIRST_JOIN_LIMIT_S = 0.5
try:
    joining.connect_ray()
except InstanceNotRunning as error:
    print(error)
"""


def joined_at_a_dead_address(which: str) -> str:
    """What is said in a process of its own: one that other tests have made a member of a cluster
    has joined already."""
    done = subprocess.run(
        [sys.executable, "-c", _JOINS, which],
        env={**os.environ, "RAY_ADDRESS": "127.0.0.1:1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout, done.stderr
    return done.stdout


def test_a_first_join_at_a_dead_address_says_soon_what_is_wrong() -> None:
    """Ray's own `init` waits for more than five minutes."""
    said = joined_at_a_dead_address("first")
    assert said.startswith("no Ray cluster stood at '127.0.0.1:1' within 0 s (no head listens")
    assert "RAY_ADDRESS" in said


@pytest.mark.parametrize("local", [False, True])
def test_a_head_that_was_killed_is_not_waited_for(
    local: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its address is still in Ray's file of the current cluster."""
    asked: list[object] = []
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    monkeypatch.setattr("ray.init", lambda **how: asked.append(how["address"]))
    monkeypatch.setattr(joining, "address_of_auto", lambda: "127.0.0.1:1")
    monkeypatch.setattr(joining, "_ours", joining._Membership())
    if local:
        joining.connect_ray()
    else:
        with pytest.raises(ConfigError, match=r"no Ray .* here \(no head listens at 127.0.0.1:1,"):
            joining.connect_ray(local=False)
    assert asked == ["local"] * local  # a plain `init` reads that file, too


def test_who_gave_up_waiting_for_the_head_waits_again() -> None:
    said = joined_at_a_dead_address("again")
    assert said.startswith("Ray's cluster at 198.51.100.7:6379 is gone; no Ray cluster stood at")


def test_a_cluster_that_asks_for_a_token_is_told_from_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As Ray 2.60 refuses: the reason is in the text of the cause alone."""

    def refused(**_: object) -> None:
        try:
            raise RuntimeError("Failed to connect to GCS: InvalidAuthToken: token is missing")
        except RuntimeError as cause:
            raise ConnectionError("Failed to connect to Ray cluster at 192.0.2.7:1") from cause

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    monkeypatch.setattr("ray.init", refused)
    monkeypatch.setattr(joining, "address_of_auto", lambda: "")
    for local in (True, False):
        with pytest.raises(ConfigError, match=r"192\.0\.2\.7:1: it takes nobody without its token"):
            joining.connect_ray(local=local)


def test_who_asks_of_a_deployment_starts_no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(**how: object) -> None:
        assert how["address"] == "auto", "a Ray of its own would be started"
        raise ConnectionError("Could not find any running Ray instance")

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    monkeypatch.setattr("ray.init", nobody)
    monkeypatch.setattr(joining, "address_of_auto", lambda: "")
    asking: tuple[Callable[[], object], ...] = (
        canal.status,
        canal.subscribers,
        lambda: canal.explain("orders"),
        lambda: canal.subscriber("orders", 7).pause(),
        lambda: canal.unsubscribe("orders", 7),
        lambda: api.table_meta("orders", "shop.t"),
        lambda: api.schema_history("orders"),
    )
    for ask in asking:
        with pytest.raises(ConfigError, match="no Ray cluster is running here; start one with"):
            ask()


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            PermissionError(errno.EACCES, "Permission denied", "/tmp/theirs/ray"),
            r"files are in /tmp/theirs/ray: Permission denied: /tmp/theirs/ray; set RAY_TMPDIR",
        ),
        (OSError("AF_UNIX path length cannot exceed 107 bytes"), "107 bytes; set RAY_TMPDIR"),
        (OSError(errno.EMFILE, "Too many open files"), "`ulimit -n`"),
        (RuntimeError("Timed out\nwaiting"), r"Timed out waiting; why .*theirs/ray/session_latest"),
        (ConfigError("Ray joins a cluster only with"), "^Ray joins a cluster only with$"),
    ],
)
def test_a_ray_that_cannot_start_here_is_told_with_its_folder(
    error: Exception, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def init(**_: object) -> None:
        raise error if os.environ["RAY_TMPDIR"] == "/tmp/theirs" else AssertionError

    monkeypatch.chdir("/tmp")
    monkeypatch.setenv("RAY_TMPDIR", "theirs")  # Ray itself waited for a minute, in vain
    monkeypatch.setattr("ray.init", init)
    monkeypatch.setattr(joining, "_ours", joining._Membership())
    with pytest.raises(ConfigError, match=told):
        joining._begin_here()
    assert not joining._ours.is_local


@pytest.mark.parametrize("own", [True, False])
def test_ray_takes_sigterm_from_nobody_who_listens_to_it(
    own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray's handler prints the report of a crash; and an event that a command waits for was set by
    no SIGTERM once its client had joined again."""

    def init(**_: object) -> None:
        signal.signal(signal.SIGTERM, of_ray)

    def of_ray(*_: object) -> None: ...

    def of_caller(*_: object) -> None: ...

    monkeypatch.setattr("ray.init", init)
    before = signal.signal(signal.SIGTERM, of_caller if own else signal.SIG_DFL)
    try:
        joining._init(address="local")
        assert signal.getsignal(signal.SIGTERM) is (of_caller if own else of_ray)
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("is_local", [True, False])
def test_the_end_of_the_head_is_told_while_a_call_waits(
    is_local: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A local Ray ends with the group of processes that a supervisor ends: `start` then waited a
    minute for it."""
    told, called = [], threading.Event()

    def ended(local: bool) -> None:
        told.append(local)
        called.set()

    head = socket.create_server(("127.0.0.1", 0))
    address = f"127.0.0.1:{head.getsockname()[1]}"
    context = SimpleNamespace(gcs_address=address)
    monkeypatch.setattr("ray.get_runtime_context", lambda: context)
    monkeypatch.setattr(joining, "_ours", joining._Membership(is_local=is_local))
    monkeypatch.setattr(joining, "_HEAD_AWAY_S", 0.1)
    monkeypatch.setattr(joining, "_PROBE_S", 0.1)
    with joining.watching_head(ended):
        assert not called.wait(0.5)
        head.close()
        assert called.wait(30)
    assert told[0] is is_local


def test_a_head_that_was_never_reached_is_not_taken_for_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A Ray Client knows the address of a head that it cannot reach."""
    told: list[bool] = []
    context = SimpleNamespace(gcs_address="127.0.0.1:1")
    monkeypatch.setattr("ray.get_runtime_context", lambda: context)
    monkeypatch.setattr(joining, "_ours", joining._Membership())
    monkeypatch.setattr(joining, "_HEAD_AWAY_S", 0.1)
    with joining.watching_head(told.append):
        time.sleep(0.6)
    assert told == []


def test_who_has_joined_is_told_of_a_head_that_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = SmallCluster(monkeypatch)
    monkeypatch.setattr("ray.is_initialized", lambda: True)
    monkeypatch.setattr(joining, "_ours", joining._Membership())
    joining.connect_ray()
    cluster.head_sleeps = True
    with pytest.raises(InstanceNotRunning, match="head does not answer"):
        joining.connect_ray()


@pytest.mark.parametrize("how", ["noted", "named"])
def test_a_head_that_sleeps_is_not_joined(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel takes its connections. Ray itself waited for more than two minutes."""
    asked: list[object] = []
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    monkeypatch.setattr("ray.init", lambda **how: asked.append(how["address"]))
    monkeypatch.setattr(joining, "_FIRST_JOIN_LIMIT_S", 0.2)
    monkeypatch.setattr(joining, "_ours", joining._Membership())
    with socket.create_server(("127.0.0.1", 0)) as head:
        address = f"127.0.0.1:{head.getsockname()[1]}"
        monkeypatch.setattr(joining, "address_of_auto", lambda: address)
        monkeypatch.delenv("RAY_ADDRESS", raising=False)
        if how == "named":
            monkeypatch.setenv("RAY_ADDRESS", address)
        with pytest.raises(InstanceNotRunning, match=rf"not answer \(no word from {address} in"):
            joining.connect_ray()
    assert asked == []


@pytest.mark.parametrize(
    ("has_tls", "answer", "advice"),
    [
        (False, _PLAIN, None),
        (True, b"", None),  # it waits for a handshake
        (False, b"", "RAY_USE_TLS=1, give that here, too"),
        (False, b"\x15\x03\x01\0\x02\x02\x46", "RAY_USE_TLS=1, give that here, too"),
        (True, _PLAIN, "unset RAY_USE_TLS"),
    ],
)
@pytest.mark.parametrize("how", ["noted", "named"])
def test_a_head_with_other_tls_is_not_joined(
    how: str, has_tls: bool, answer: bytes, advice: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray itself tried again for minutes, and did not tell why."""
    joined: list[object] = []
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    monkeypatch.setattr("ray.init", lambda **how: joined.append(how["address"]))
    monkeypatch.setattr("ray.get_runtime_context", lambda: SimpleNamespace(gcs_address="here"))
    monkeypatch.setattr(joining, "_FIRST_JOIN_LIMIT_S", 0.2)
    monkeypatch.setattr(joining, "_ours", joining._Membership())
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_USE_TLS", "1" if has_tls else "0")
    with socket.create_server(("127.0.0.1", 0)) as head:
        address = f"127.0.0.1:{head.getsockname()[1]}"
        monkeypatch.setattr(joining, "address_of_auto", lambda: address)
        if how == "named":
            monkeypatch.setenv("RAY_ADDRESS", address)
        threading.Thread(target=_answering, args=(head, answer), daemon=True).start()
        if advice is None:
            joining.connect_ray()
        else:
            with pytest.raises(InstanceNotRunning, match=advice):
                joining.connect_ray()
    assert len(joined) == (advice is None)


def _answering(head: socket.socket, answer: bytes) -> None:
    with contextlib.suppress(OSError):  # the test has ended
        while True:
            with head.accept()[0] as connection:
                connection.sendall(answer)


def test_nobody_answers_where_nobody_listens() -> None:
    assert joining._answer("127.0.0.1:1") is None
