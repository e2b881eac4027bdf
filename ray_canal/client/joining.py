"""This process's place in a Ray cluster: to join one, and to join again when its head has died.

A driver of Ray's does not outlive its cluster: calls fail, any call to another head under the same
address may end the process, and so does Ray after a minute without a head. So where `connect_ray`
has joined, `keep_joined` leaves and joins the cluster that stands at the address now. Who called
`ray.init` before has to do so itself.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import ray

from ray_canal.actors.ray_internals import (
    address_for_others,
    address_of_auto,
    head_silent,
    joined_node,
    kv_get,
    raylet_socket,
)
from ray_canal.actors.ray_settings import use_ray_settings
from ray_canal.actors.registry import HEAD_S
from ray_canal.config import CanalConfig
from ray_canal.errors import ConfigError, InstanceNotRunning, NoClusterHere, os_error_text

_HEAD_AWAY_S = 3.0
"""A head that keeps its state in Redis may come back to the nodes that wait for it."""
_JOIN_LIMIT_S = 60.0
_FIRST_JOIN_LIMIT_S = 10.0
_PROBE_S = 1.0
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""Begins a connection of HTTP/2, which gRPC speaks (RFC 9113, 3.4); a server answers it."""
_SETTINGS, _ALERT = b"\x04", b"\x15"
_PAUSE_S = 0.2
_ANY_KEY = "ray_canal:head"
"""Read to see whether the head answers, as any other would be."""
_QUIET: dict[str, Any] = {"log_to_driver": False, "configure_logging": False}


class _NotListening(ConnectionError):
    """A cluster was here, and has gone; Ray itself would wait for it for minutes."""


class _HeadSilent(ConnectionError):
    """Connections of a head are taken, and nobody answers; Ray itself would wait for it."""


class _OtherTls(ConnectionError):
    """A head has TLS and this process has not, or the other way round; Ray itself would try again
    for minutes, and not tell why."""


@dataclass
class _Membership:
    """State of the cluster that `connect_ray` has joined; none while `address` is None."""

    address: str | None = None  # "": RAY_ADDRESS, else the one that runs here
    head: str = ""
    node: Any = None
    times: int = 0
    is_local: bool = False  # begun by this process, and ends with it


_ours = _Membership()
_lock = threading.Lock()


def connect_ray(config: CanalConfig | None = None, *, local: bool = True) -> None:
    """Join Ray if this process has not: the given address, a running cluster, or a new local one.
    Again, if the cluster that was joined here has died.

    Raises NoClusterHere when there is no cluster to join and `local` does not allow to start one;
    ConfigError when Ray cannot start here, or asks for a token that this process does not have;
    InstanceNotRunning when none stands at the given address within ten seconds; at one that was
    joined before, within a minute; or when its head is there and does not answer (HEAD_S; ten
    seconds for who has not joined).
    """
    if ray.is_initialized():
        keep_joined()
        kv_get(_ANY_KEY, HEAD_S)  # what is asked of Ray next would wait without limit, or a minute
        return
    address = config.ray.address if config else ""
    if address or os.environ.get("RAY_ADDRESS"):
        if _ours.address == address:  # not for the first time: who gave up waiting tries again
            keep_joined()
        else:
            _join_soon(address, _FIRST_JOIN_LIMIT_S, ConnectionError)
        return
    try:
        _join("")
    except _HeadSilent as error:
        raise head_silent(error) from None
    except _OtherTls as error:
        raise InstanceNotRunning(
            f"{error}; or name another cluster by ray.address or RAY_ADDRESS (RAY_ADDRESS=local "
            "begins one)"
        ) from None
    except ConnectionError as error:
        _refuse_without_token(error)
        if not local:
            gone = f" ({error})" if isinstance(error, _NotListening) else ""
            raise NoClusterHere(
                f"no Ray cluster is running here{gone}; start one with `ray start --head`, or name "
                "one by ray.address in the configuration or by RAY_ADDRESS"
            ) from None
        _begin_here()


def _begin_here() -> None:
    """Begin a cluster that ends with this process. Raises ConfigError: its processes cannot start,
    or their files cannot be written, with Ray's folder and what to do."""
    use_ray_settings()
    folder = os.path.join(os.environ.get("RAY_TMPDIR") or "/tmp", "ray")
    try:
        _init(address="local", include_dashboard=False)
    except ConfigError:
        raise
    except OSError as error:
        raise ConfigError(
            f"Ray cannot start here, its files are in {folder}: {os_error_text(error)}; set "
            "RAY_TMPDIR to a folder with a short path on a local disk, which this user may write"
        ) from error
    except Exception as error:  # Ray raises Exception itself, too
        raise ConfigError(
            f"Ray cannot start here: {' '.join(str(error).split())}; why is in the logs in "
            f"{folder}/session_latest/logs; are there free memory, space in {folder} and /dev/shm, "
            f"and open files (`ulimit -n` is {resource.getrlimit(resource.RLIMIT_NOFILE)[0]})?"
        ) from error
    _ours.is_local = True


def _refuse_without_token(error: ConnectionError) -> None:
    """Raises ConfigError: the cluster is there, and takes nobody without its token."""
    if "InvalidAuthToken" in str(error.__cause__):
        raise ConfigError(
            f"{error}: it takes nobody without its token; give that by RAY_AUTH_TOKEN or "
            "RAY_AUTH_TOKEN_PATH, with RAY_AUTH_MODE=token; or name another cluster by ray.address "
            "or RAY_ADDRESS (RAY_ADDRESS=local begins one)"
        ) from None


def times_joined() -> int:
    """References to objects count as long as this does not change."""
    return _ours.times


def keep_joined(timeout: float = _JOIN_LIMIT_S) -> None:
    """Return when the cluster stands that `connect_ray` has joined. To be called when a call has
    failed, before anything else is asked of Ray.

    If it has gone (this node's raylet is dead, or at the head's address nobody listens, for three
    seconds), leave it and join the one at its address as soon as that stands; all of this process's
    handles and references end with it. Raises InstanceNotRunning after `timeout` seconds.
    """
    other = ray.is_initialized() and joined_node() is not _ours.node
    if _ours.address is None or other:
        return
    with _lock:
        if not _stands():
            ray.shutdown()
            _join_soon(
                _ours.address, timeout, ConnectionError, RuntimeError, ValueError, OSError
            )


def _join_soon(address: str, timeout: float, *passing: type[Exception]) -> None:
    """Join as soon as a cluster stands there; what is `passing` may be over at the next try. Raises
    InstanceNotRunning."""
    deadline = time.monotonic() + timeout
    while True:
        where = _effective(address)
        reason, is_silent = "no head listens there", False
        if ":" not in where or _listens(where):  # Ray itself would wait for minutes
            try:
                _join(address)
                return
            except passing as error:
                if isinstance(error, ConnectionError):
                    _refuse_without_token(error)
                reason, is_silent = str(error), isinstance(error, _HeadSilent)
        if time.monotonic() > deadline:
            if is_silent:
                raise head_silent(reason)
            was = f"Ray's cluster at {_ours.head} is gone; " if address == _ours.address else ""
            raise InstanceNotRunning(
                f"{was}no Ray cluster stood at {where!r} within {timeout:.0f} s ({reason}); start "
                "its head, or name another one by ray.address or RAY_ADDRESS"
            )
        time.sleep(_PAUSE_S)


def _stands() -> bool:
    """Return whether the cluster that was joined is there, or back within three seconds."""
    deadline = time.monotonic() + _HEAD_AWAY_S
    while ray.is_initialized() and _raylet_lives():
        if _listens(_ours.head):
            return True
        if time.monotonic() > deadline:
            break
        time.sleep(_PAUSE_S)
    return False


def _join(address: str) -> None:
    """Raises ConnectionError: no cluster is there, or its head does not answer."""
    where = _effective(address)
    head = address_of_auto() if where == "auto" else where
    if where == "auto" and head and not _listens(head):
        # Ray notes a head's address in a file, which outlives a head that was killed.
        raise _NotListening(f"no head listens at {head}, where one was started")
    if ":" in head:
        answer = _answer(head)
        if answer is None:
            raise _HeadSilent(f"no word from {head} in {_FIRST_JOIN_LIMIT_S:.0f} s")
        _refuse_other_tls(head, answer)
    _init(address=where)
    _ours.address = address
    _ours.head = ray.get_runtime_context().gcs_address
    _ours.node = joined_node()
    _ours.times += 1


def _init(**given: Any) -> None:
    """Join, or begin, a cluster. Ray takes SIGTERM over, and prints a report of a crash then:
    whoever had a handler keeps it. Raises ConfigError: the cluster has another Python or Ray."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(**given, **_QUIET)
    except RuntimeError as error:
        if "Version mismatch" not in str(error):
            raise
        ray.shutdown()
        raise ConfigError(
            f"Ray joins a cluster only with its own versions. {' '.join(str(error).split())} "
            "Install the same ones here, or name another cluster by ray.address or RAY_ADDRESS "
            "(RAY_ADDRESS=local begins one that ends with this process)"
        ) from None
    if callable(before) and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def watching_head(ended: Callable[[bool], None]) -> Iterator[None]:
    """Call `ended`, in a thread, if meanwhile nobody listens at the head's address any more; it is
    told whether this process had begun that head. Ray's own calls would wait for a minute, and then
    end the process."""
    address, is_local = ray.get_runtime_context().gcs_address, _ours.is_local
    if not is_local and not _listens(address):  # a Ray Client may not reach it at all
        yield
        return
    done = threading.Event()

    def watch() -> None:
        heard = time.monotonic()
        while not done.wait(_PAUSE_S):
            if _listens(address):
                heard = time.monotonic()
            elif time.monotonic() - heard > (_PROBE_S if is_local else _HEAD_AWAY_S):
                ended(is_local)
                return

    threading.Thread(target=watch, name="watch the head", daemon=True).start()
    try:
        yield
    finally:
        done.set()
    if is_local and not _listens(address):
        ended(is_local)


def _effective(address: str) -> str:
    return address or os.environ.get("RAY_ADDRESS") or "auto"


def _raylet_lives() -> bool:
    path = raylet_socket(_ours.node)
    if not path:  # Ray Client has none here
        return True
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PROBE_S)
        return probe.connect_ex(path) == 0


def _listens(address: str) -> bool:
    return any(_accepts(host, port) for host, port in _places(address))


def _answer(address: str) -> bytes | None:
    """Return the first bytes of who answers there; None: nobody does."""
    for host, port in _places(address):
        found = _first_bytes(host, port)
        if found is not None:
            return found
    return None


def _refuse_other_tls(head: str, answer: bytes) -> None:
    """Raises _OtherTls. A server without TLS begins with HTTP/2's settings (RFC 9113, 3.4); one
    with TLS ends what does not begin with a handshake, maybe with an alert (RFC 8446, 5.1)."""
    ours = os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true")  # as Ray reads it
    if ours and answer[3:4] == _SETTINGS:
        raise _OtherTls(f"the head at {head} has no TLS: unset RAY_USE_TLS")
    if not ours and answer[:1] in (b"", _ALERT):
        raise _OtherTls(
            f"the head at {head} ended a connection without TLS: where it has RAY_USE_TLS=1, give "
            "that here, too, with RAY_TLS_CA_CERT, RAY_TLS_SERVER_CERT and RAY_TLS_SERVER_KEY"
        )


def _places(address: str) -> Iterator[tuple[str, int]]:
    host, _, port = address.rpartition("://")[2].rpartition(":")
    # Of this machine Ray takes the address by which others know it.
    hosts = {host.strip("[]"), address_for_others(host or "localhost")}
    if port.isdecimal():
        yield from ((each, int(port)) for each in hosts)


def _accepts(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), _PROBE_S).close()
    except OSError:
        return False
    return True


def _first_bytes(host: str, port: int) -> bytes | None:
    """Return how the process behind a port answers, empty where it ends the connection; None if it
    does not: connections of a stopped one are taken by its kernel."""
    try:
        connection = socket.create_connection((host, port), _PROBE_S)
    except OSError:
        return None
    with connection:
        connection.settimeout(_FIRST_JOIN_LIMIT_S)
        try:
            connection.sendall(_GREETING)
            return connection.recv(len(_GREETING))
        except TimeoutError:
            return None
        except OSError:
            return b""
