"""start, stop, status, serve: functions behind `import ray_canal as canal`."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

import ray

from ray_canal.actors import launch, registry
from ray_canal.actors.answers import ANSWER_S
from ray_canal.actors.control.controller import controller as find_controller
from ray_canal.actors.control.homes import cluster_nodes, head_of
from ray_canal.actors.placement_table import home_for, share_here
from ray_canal.actors.upstream.spare_pool import start_one
from ray_canal.client.controller_calls import (
    BEGIN_S,
    BUSY_S,
    answer,
    ask_controller,
    running_controller,
)
from ray_canal.client.joining import connect_ray
from ray_canal.client.succession import take_part
from ray_canal.config import CanalConfig, ServerConfig, load
from ray_canal.config.node import HEAD
from ray_canal.config.notify import NotifyConfig
from ray_canal.destination.api import DestinationApi
from ray_canal.destination.status.status_record import DestinationStatus
from ray_canal.errors import CanalError, ConfigError, InstanceNotFound, InstanceNotRunning
from ray_canal.model.reports import SchemaHistoryReport
from ray_canal.model.subscription import DEFAULT_CLIENT_ID
from ray_canal.model.table_meta import TableMeta

logger = logging.getLogger(__name__)

_START_TIMEOUT_S = 90.0
_COMPARE_S = 20.0
P = ParamSpec("P")
R = TypeVar("R")


def start(
    config: str | os.PathLike[str] | dict[str, Any] | CanalConfig,
    *,
    wait: bool = True,
    timeout: float = _START_TIMEOUT_S,
    replace: bool = True,
) -> list[str]:
    """Start every destination of a configuration as detached actors. Returns their names.

    Joins the Ray that this process is connected to, else the cluster of `ray.address`, else a
    running one, else starts a local one. With `wait`, returns when each destination stands at its
    source, and raises what keeps it from there (AuthenticationFailed, PositionPurged, …); a
    destination that cannot start is stopped again. One that runs already with this configuration is
    left as it is; with another, it is started over, goes on at its cursors, and a warning names the
    keys. `replace` false: that is refused with ConfigError, as a changed place of the cursors
    always is. With a [server] section, Canal's TCP port is opened, too; see `serve`.
    With `ray.standby`, nothing is started and no name returned while another head is active; this
    one takes over when that is gone.
    """
    canal = load(config)
    connect_ray(canal)
    known = set(registry.destinations(canal.ray.namespace))
    if not canal.ray.standby:
        _start_processes(canal)
    controller = find_controller(canal.ray.namespace, canal.ray.spare)
    if canal.ray.standby and not take_part(canal, controller):
        return []
    names = [instance.destination for instance in canal.instance]
    # Passwords in clear text go no further than to the head node, and by memory alone.
    config_json = canal.model_dump_json()
    changed: dict[str, list[str]] = ask_controller(
        controller, "apply", config_json, replace, first_s=max(timeout, BEGIN_S)
    )
    for name, keys in changed.items():
        logger.warning(
            "destination %s: its configuration has changed (%s); it was started over and goes on "
            "at its cursors",
            name,
            ", ".join(keys),
        )
    if wait:
        for name in names:
            try:
                store = registry.find_store(name, canal.ray.namespace)
                answer(store.submit(DestinationApi.wait_running, timeout), timeout + BUSY_S)
            except CanalError as error:
                if name not in known and not error.retryable:
                    stop(name, namespace=canal.ray.namespace)
                raise error.at(destination=name) from None
    if canal.notify is not None:
        _notify(canal.notify, canal.ray.namespace)
    if canal.server is not None:
        serve(canal, timeout=timeout, replace=replace)
    return names


def _notify(config: NotifyConfig, namespace: str) -> None:
    """Let the notifier run with this configuration; one that runs with another is replaced."""
    wanted = config.model_dump_json()
    handle = launch.notifier(config, namespace)
    with contextlib.suppress(InstanceNotRunning):
        if answer(handle.configuration.remote(), timeout=_COMPARE_S) == wanted:
            return
    ray.kill(handle, no_restart=True)
    deadline = time.monotonic() + _COMPARE_S
    while registry.find_notifier(namespace) is not None and time.monotonic() < deadline:
        time.sleep(0.1)
    launch.notifier(config, namespace)


def _end_notifier(namespace: str) -> None:
    """Nothing is left to tell of."""
    handle = registry.find_notifier(namespace)
    if handle is not None:
        ray.kill(handle, no_restart=True)


def _start_processes(canal: CanalConfig) -> None:
    """Begin what a controller would begin when it has started itself, on the head: the processes of
    destinations that do not share one, and the spare."""
    namespace = canal.ray.namespace
    names = {instance.destination for instance in canal.instance}
    placed = set(registry.destinations(namespace))
    share = share_here(canal.ray.destinations_per_process, names, placed)
    here = {each.destination for each in canal.instance if each.node == HEAD}
    if here and not share and canal.ray.spare:
        start_one(head_of(cluster_nodes()))
    if share <= 1:
        for name in sorted(here - placed):
            home = home_for(name, {}, share, registry.STORE_PREFIX)
            launch.store_process(home, namespace)


def serve(
    config: str | os.PathLike[str] | dict[str, Any] | CanalConfig,
    *,
    timeout: float = _START_TIMEOUT_S,
    replace: bool = True,
) -> list[str]:
    """Open Canal's TCP port for all destinations of the cluster. Returns host:port of each replica.

    A server that runs already with this configuration is left as it is. If the configuration, a
    secret that it refers to or a file of `tls` has changed, the port is closed, with its
    connections, and opened again; a warning names the keys. `replace` false: that is refused.
    Raises ConfigError: no [server] section, it cannot be served, or the port cannot be had.
    """
    canal = load(config)
    if canal.server is None:
        raise ConfigError(
            "the configuration has no [server] section; see docs/reference/canal-tcp.md"
        )
    connect_ray(canal)
    _close_if_changed(canal.server, canal.ray.namespace, replace)
    handles = launch.servers(canal.server, canal.ray.namespace)
    try:
        return [answer(handle.address.remote(timeout), timeout + BUSY_S) for handle in handles]
    except CanalError:
        stop_serving(namespace=canal.ray.namespace)
        raise


def changed_server_keys(server: ServerConfig, namespace: str) -> set[str]:
    """Return the keys in which the TCP port that is open differs from a configuration. Raises
    ConfigError: this cannot be served."""
    server_json = launch.server_json(server)
    asked = [handle.compare.remote(server_json) for handle in registry.find_servers(namespace)]
    keys: set[str] = set()
    for reply in asked:
        try:
            keys.update(answer(reply, timeout=_COMPARE_S))
        except InstanceNotRunning:
            keys.add("a server does not answer")
    return keys


def _close_if_changed(server: ServerConfig, namespace: str, replace: bool) -> None:
    """Close the TCP port if it is served otherwise than this says. Raises ConfigError: this cannot
    be served, or may not replace it."""
    keys = changed_server_keys(server, namespace)
    if not keys:
        return
    told = ", ".join(sorted(keys))
    if not replace:
        raise ConfigError(
            f"Canal's TCP port is open with another configuration: {told}; without --no-replace it "
            "is closed and opened again, and its clients connect again"
        )
    logger.warning(
        "Canal's TCP port: its configuration has changed (%s); it is opened again, and clients "
        "connect again",
        told,
    )
    stop_serving(namespace=namespace)
    deadline = time.monotonic() + _COMPARE_S
    while registry.find_servers(namespace) and time.monotonic() < deadline:
        time.sleep(0.1)


def destinations(*, namespace: str = registry.NAMESPACE) -> list[str]:
    """Names of the destinations that were started in this cluster and not stopped, sorted."""
    connect_ray(local=False)
    return registry.destinations(namespace)


def nodes(*, namespace: str = registry.NAMESPACE) -> list[dict[str, Any]]:
    """Return the nodes of the cluster: `node` (its id), `head`, `draining`, `cpus`, `labels`, its
    `destinations` and what they take: `bytes_per_second` of their logs, `memory_bytes`. Raises
    InstanceNotRunning: no deployment runs in this namespace, or its controller does not answer."""
    connect_ray(local=False)
    found: list[dict[str, Any]] = answer(running_controller(namespace).nodes.remote(), ANSWER_S)
    return found


def stop_serving(*, namespace: str = registry.NAMESPACE) -> None:
    """Close Canal's TCP port and its connections. The destinations go on."""
    connect_ray(local=False)
    handles = registry.find_servers(namespace)
    replies = [handle.stop.remote() for handle in handles]
    deadline = time.monotonic() + ANSWER_S
    for handle, reply in zip(handles, replies, strict=True):
        with contextlib.suppress(InstanceNotRunning):  # one that stands still is killed
            _get_by(deadline, reply)
        ray.kill(handle, no_restart=True)


def server_status(*, namespace: str = registry.NAMESPACE) -> list[dict[str, Any]]:
    """Return of each replica of the TCP server its address, connections, requests, bytes; of one
    that does not answer the `error`."""
    connect_ray(local=False)
    replies = [handle.status.remote() for handle in registry.find_servers(namespace)]
    deadline = time.monotonic() + ANSWER_S
    found: list[dict[str, Any]] = []
    for reply in replies:
        try:
            found.append(_get_by(deadline, reply))
        except InstanceNotRunning as error:
            found.append({"error": str(error)})
    return found


def stop(destination: str, *, namespace: str = registry.NAMESPACE) -> None:
    """Stop a destination. Cursors stay; a later start resumes without loss. Raises
    InstanceNotFound; InstanceNotRunning: no controller runs, or it does not answer for a minute,
    and nothing was stopped."""
    connect_ray(local=False)
    if destination not in registry.destinations(namespace):
        registry.find_store(destination, namespace)  # tells what runs
    ask_controller(running_controller(namespace), "stop", destination)
    if not registry.destinations(namespace):
        _end_notifier(namespace)


def status(
    destination: str | None = None, *, namespace: str = registry.NAMESPACE
) -> dict[str, DestinationStatus]:
    """State of one or all destinations: positions, lag, rates, log fill, subscribers. One that has
    no process now, or whose process does not answer, is `restarting`, and keeps no other back.

    Raises InstanceNotFound for a destination that is not running.
    """
    connect_ray(local=False)
    # Who asks for one of many, again and again as the console does, has no list of all made.
    stores = registry.find_stores(namespace) if destination is None else {
        destination: registry.find_placed(destination, namespace)
    }  # fmt: skip
    replies = {
        name: registry.no_process(name) if store is None else store.submit(DestinationApi.status)
        for name, store in stores.items()
    }
    deadline = time.monotonic() + ANSWER_S
    found: dict[str, DestinationStatus] = {}
    for name, reply in replies.items():
        try:
            if isinstance(reply, InstanceNotFound):
                raise reply
            found[name] = _get_by(deadline, reply)
        except (InstanceNotFound, InstanceNotRunning) as error:
            found[name] = {"state": "restarting", "error": str(error)}
    return found


def set_filter(
    destination: str,
    filter: str,
    *,
    client_id: int = DEFAULT_CLIENT_ID,
    namespace: str = registry.NAMESPACE,
) -> None:
    """Change a subscriber's table filter from outside, while it reads.

    It counts from its next get on, and durably; batches that are outstanding stay so. Raises
    InstanceNotFound, NotSubscribed, ConfigError: a bad filter.
    """
    call_once(destination, namespace, DestinationApi.change_filter, client_id, filter)


def set_instance_filter(
    destination: str, *, namespace: str = registry.NAMESPACE, **changes: object
) -> dict[str, object]:
    """Change keys of [instance.filter] (`tables`, `dml_delete`, …) of a running destination.

    It counts for all that lies behind each subscriber's cursor when this returns, and durably,
    until the configuration's own [instance.filter] is another one. Batches that are outstanding are
    void, as after a restart of the destination. Returns the whole filter. Raises InstanceNotFound,
    ConfigError: a bad key or value; Fenced.
    """
    return call_once(destination, namespace, DestinationApi.change_instance_filter, changes)


def schema_history(
    destination: str, table: str = "", *, namespace: str = registry.NAMESPACE
) -> SchemaHistoryReport:
    """Return `tables`, the names of those whose schemas a destination knows, and `changes`, the
    versions of one of them (`table`: schema.table), in the order of the log.

    A change has `journal_name` and `position`, `kind` ("ddl", "snapshot": the catalog had it so,
    "table": it was read again), `sql`, `columns` (names and types; None: the table is gone) and
    `problem`: why its columns are not known. Raises InstanceNotFound, InstanceNotRunning.
    """
    return call_once(destination, namespace, DestinationApi.schema_history, table)


def table_meta(
    destination: str, table: str, *, namespace: str = registry.NAMESPACE
) -> TableMeta | None:
    """Return the newest version of a table (schema.table) that a destination has read of; None: its
    columns are not known there. Raises InstanceNotFound, InstanceNotRunning."""
    return call_once(destination, namespace, DestinationApi.table_meta, table)


def call_once(
    destination: str,
    namespace: str,
    method: Callable[Concatenate[DestinationApi, P], Coroutine[Any, Any, R]],
    *arguments: P.args,
    **named: P.kwargs,
) -> R:
    """Make a call of a destination, once. Raises InstanceNotFound, and what the call raises."""
    connect_ray(local=False)
    store = registry.find_store(destination, namespace)
    found: R = answer(store.submit(method, *arguments, **named))
    return found


def _get_by(deadline: float, reference: Any) -> Any:
    """Return the answer to one of several calls that wait until then, by time.monotonic, together;
    one that is there counts afterwards, too."""
    return answer(reference, max(deadline - time.monotonic(), 0.1))
