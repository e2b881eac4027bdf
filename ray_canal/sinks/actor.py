"""Sinks on the cluster: an actor each, on any node, and how they are started and steered.

What should run is what was started and not stopped: a record in Ray's key-value store. It has the
sink's configuration, whether it is paused, and how often it was begun again. A process that ends is
restarted by Ray, one that does not answer is replaced by the controller; either way the target
shuts out whoever wrote before, and its own place decides where the sink goes on.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import ray
from ray.actor import ActorHandle
from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError

from ray_canal.actors.answers import ANSWER_S
from ray_canal.actors.log_settings import take_up_log_settings
from ray_canal.actors.placement import ACTOR_CPUS
from ray_canal.actors.registry import NAMESPACE, SINK_PREFIX, find_actor
from ray_canal.client.connecting import connect
from ray_canal.client.control import subscriber
from ray_canal.client.controller_calls import answer
from ray_canal.client.joining import connect_ray
from ray_canal.config import CanalConfig, SinkConfig, load
from ray_canal.config.kept_secrets import clear_secrets
from ray_canal.errors import (
    CanalError,
    ConfigError,
    InstanceNotFound,
    NotSubscribed,
)
from ray_canal.logs import tell, with_process_ids
from ray_canal.malloc import keep_freed_memory
from ray_canal.model.snapshot_ledger import FAILED
from ray_canal.model.subscription import TAIL
from ray_canal.sinks.lakes.ray_writers import in_ray_tasks
from ray_canal.sinks.metrics import METRICS_PERIOD_S, SinkMetrics
from ray_canal.sinks.open import make_sink, transform_of
from ray_canal.sinks.records import CommittedPlaces, SinkRecords, asked_records
from ray_canal.sinks.runner import Runner

logger = logging.getLogger(__name__)

_STOP_S = 30.0
_AGAIN_S = 2.0
_SNAPSHOT_S = 5.0
_THREADS = 8


class SinkActor:
    """One sink; its runner has a thread of its own."""

    def __init__(self, name: str, namespace: str) -> None:
        keep_freed_memory()
        take_up_log_settings(namespace)
        self._name = name
        self._places = CommittedPlaces(namespace)
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []
        self._runner: Runner | None = None
        self._failure = ""
        record = SinkRecords(namespace).get(name)
        config = SinkConfig.model_validate(record["config"])
        named = {"sink": name, "destination": config.destination, "client_id": config.client_id}
        with_process_ids(**named)
        self._tell("begun")
        try:
            runner = self._made(config, namespace)
        except CanalError as error:  # a package that this node lacks, a file that it cannot read
            self._failure = str(error)
            self._tell("failed", self._failure)
            return
        self._runner = runner
        if record["paused"]:
            runner.pause()
        metrics = SinkMetrics(config.destination, name)
        for call in (lambda: self._run(runner), lambda: self._publish(runner, metrics)):
            self._threads.append(threading.Thread(target=call, name=f"sink-{name}", daemon=True))
            self._threads[-1].start()
        # Not waited for at the end: the destination may not answer.
        threading.Thread(
            target=self._watch_snapshot,
            args=(runner, config, namespace),
            name=f"sink-{name}-snapshot",
            daemon=True,
        ).start()

    def _made(self, config: SinkConfig, namespace: str) -> Runner:
        return Runner(
            config,
            lambda: connect(config.destination, config.client_id, namespace=namespace),
            make_sink(config, in_ray_tasks),
            transform_of(config),
            self._places.get(config.name),
        )

    def _run(self, runner: Runner) -> None:
        status = runner.status
        while not self._stopped.is_set():
            try:
                runner.run(self._stopped)
                return
            except InstanceNotFound as error:  # stopped, or not started yet
                status.state, status.error = "waiting", str(error)
                self._stopped.wait(_AGAIN_S)
            except BaseException as error:  # of a library in Rust that panics, too
                # Whatever it is, it is told in the status, and this process goes on to answer.
                text = str(error)
                if not isinstance(error, CanalError):  # of a class of the user's, say
                    logger.exception("sink %s", self._name)
                    text = f"{type(error).__name__}: {error}"
                status.state, status.error = "failed", text
                self._tell("failed", text)
                return

    def _tell(self, state: str, error: str = "") -> None:
        level = logging.ERROR if error else logging.INFO
        text = "sink %s: %s %s"
        tell(logger, "sink", text, self._name, state, error, level=level, state=state)

    def _publish(self, runner: Runner, metrics: SinkMetrics) -> None:
        while not self._stopped.wait(METRICS_PERIOD_S):
            metrics.publish(runner.status)
            self._places.put(self._name, runner.committed)

    def _watch_snapshot(self, runner: Runner, config: SinkConfig, namespace: str) -> None:
        """Tell in the status that the subscriber's snapshot has failed: changes go on meanwhile."""
        while not self._stopped.wait(_SNAPSHOT_S):
            with contextlib.suppress(CanalError):  # the destination starts again
                error = _snapshot_error(config, namespace)
                if error not in ("", runner.status.snapshot_error):
                    logger.error("sink %s: %s", self._name, error)
                runner.status.snapshot_error = error

    def alive(self) -> None:
        """Answer: this process is not stopped."""

    def status(self) -> dict[str, Any]:
        """Return its state, counters, and where it is."""
        told = {"state": "failed", "error": self._failure}
        if self._runner is not None:
            told = self._runner.status.as_dict()
        return {**told, "node": ray.util.get_node_ip_address()}

    def pause(self) -> None:
        self._tell("paused")
        if self._runner is not None:
            self._runner.pause()

    def resume(self) -> None:
        self._tell("resumed")
        if self._runner is not None:
            self._runner.resume()

    def stop(self) -> None:
        """Return when what is in hand is committed, or soon after."""
        self._stopped.set()
        for thread in self._threads:
            thread.join(_STOP_S)
        if self._runner is not None:
            self._places.put(self._name, self._runner.committed)
        self._tell("stopped")


Config = str | os.PathLike[str] | dict[str, Any] | CanalConfig


def start_sinks(config: Config, *names: str) -> list[str]:
    """Start the sinks of a configuration (not given: all) on the cluster; return their names.

    One that runs with this configuration is left as it is; one that has failed, or runs with
    another configuration, is started over. Their destinations run already. Raises ConfigError:
    there is no such sink, another destination has one of its name, another one that runs is the
    same subscriber, or it has a password in clear text.
    """
    canal = load(config)
    connect_ray(canal)
    namespace = canal.ray.namespace
    chosen = [canal.sink_named(name) for name in names] if names else list(canal.sink)
    _refuse_others(asked_records(namespace).all(), chosen)
    _refuse_unfit(chosen)
    _start_over(chosen, namespace)
    return [sink.name for sink in chosen]


def apply_sinks(config: Config, *, remove: bool) -> None:
    """Start what sinks a configuration has; with `remove`, stop others before that: a sink that has
    another name now goes on where the one before it has ended. Raises as `start_sinks`."""
    canal = load(config)
    found = sink_plan(canal, remove=remove)
    _refuse_unfit(canal.sink)
    for name, what in found.items():
        if remove and what == "unlisted":
            stop_sink(name, namespace=canal.ray.namespace)
    _start_over(canal.sink, canal.ray.namespace)


def sink_plan(config: Config, *, remove: bool = True) -> dict[str, str]:
    """Return by name what `apply_sinks` would do with each sink of a configuration: "start",
    "restart", "same"; and "unlisted" for those that run and are not in it. Raises ConfigError:
    another destination has a sink of one's name, or one that goes on is the same subscriber."""
    canal = load(config)
    connect_ray(canal, local=False)
    known = asked_records(canal.ray.namespace).all()
    _refuse_others(known, canal.sink, remove=remove)
    found = dict.fromkeys(known, "unlisted")
    for sink in canal.sink:
        if sink.name not in known:
            found[sink.name] = "start"
        else:
            found[sink.name] = "same" if _is_same(known[sink.name], sink) else "restart"
    return found


def _is_same(record: Mapping[str, Any], sink: SinkConfig) -> bool:
    return bool(record["config"] == sink.model_dump(mode="json"))


def _refuse_others(
    known: Mapping[str, Mapping[str, Any]], chosen: Sequence[SinkConfig], *, remove: bool = False
) -> None:
    """Raise ConfigError if a sink that runs, of another destination, has the name of one of these:
    it would end; or if one that goes on (not with `remove`) is the same subscriber."""
    named = {sink.name: sink for sink in chosen}
    subscribers = {(sink.destination, sink.client_id): sink.name for sink in chosen}
    for name, record in known.items():
        destination, client_id = (record["config"][key] for key in ("destination", "client_id"))
        other = named.get(name)
        if other is not None and destination != other.destination:
            raise ConfigError(
                f"sink {name}: a sink of this name runs for the destination {destination}, and "
                f"this one is of {other.destination}: give it another name, or end the other one "
                f"first with `ray-canal sink stop {name}`"
            )
        same = subscribers.get((destination, client_id))
        if other is None and same is not None and not remove:
            raise ConfigError(
                f"sink {same}: the sink {name}, which runs, has the client_id {client_id}, too, and"
                " each would take the other's rows: give it another one, or end the other sink"
                f" first with `ray-canal sink stop {name}` (`apply --remove` does it)"
            )


def _refuse_unfit(chosen: Sequence[SinkConfig]) -> None:
    """Raise ConfigError if a sink cannot run on any node."""
    for sink in chosen:
        make_sink(sink)  # its packages are here, its class is found
        if keys := clear_secrets(sink):
            raise ConfigError(
                f"sink {sink.name}: {', '.join(keys)}: a sink runs on any node, and its "
                "configuration is kept by Ray: give passwords as env:NAME or file:PATH"
            )


def _start_over(chosen: Sequence[SinkConfig], namespace: str) -> None:
    """Start sinks, but those that run with this configuration."""
    records = asked_records(namespace)
    known = records.all()
    due = [sink for sink in chosen if _made_way(sink, known.get(sink.name), namespace)]
    known = records.all()  # one may have been paused meanwhile
    for sink in due:  # whose client ids no other one of these has any more
        paused = sink.name in known and bool(known[sink.name]["paused"])
        records.put(sink.name, sink.model_dump(mode="json"), paused=paused)
        _launch(sink.name, namespace)


def _made_way(sink: SinkConfig, known: Mapping[str, Any] | None, namespace: str) -> bool:
    """Return whether a sink is to be started, once its process has ended that has failed, or runs
    with another configuration."""
    handle = find_actor(SINK_PREFIX + sink.name, namespace)
    if known is None or handle is None:
        return True
    if _is_same(known, sink) and _status(handle)["state"] != "failed":
        return False
    _end(sink.name, handle, namespace)
    return True


def _launch(name: str, namespace: str) -> ActorHandle[Any]:
    handle: ActorHandle[Any] = (
        ray.remote(SinkActor)
        .options(
            name=SINK_PREFIX + name,
            namespace=namespace,
            lifetime="detached",
            get_if_exists=True,
            num_cpus=ACTOR_CPUS,
            scheduling_strategy="SPREAD",
            max_restarts=-1,
            max_task_retries=0,
            max_concurrency=_THREADS,
        )
        .remote(name, namespace)
    )
    return handle


def _end(name: str, handle: ActorHandle[Any], namespace: str) -> None:
    """End a sink's process, and wait until its name is free."""
    with contextlib.suppress(RayActorError, GetTimeoutError, RayTaskError):
        ray.get(handle.stop.remote(), timeout=_STOP_S)
    ray.kill(handle, no_restart=True)
    deadline = time.monotonic() + _STOP_S
    while find_actor(SINK_PREFIX + name, namespace) and time.monotonic() < deadline:
        time.sleep(0.05)


def stop_sink(name: str, *, namespace: str = NAMESPACE) -> None:
    """Stop a sink; its subscriber and its place stay. Raises InstanceNotFound."""
    connect_ray(local=False)
    records = asked_records(namespace)
    records.get(name)
    records.remove(name)
    handle = find_actor(SINK_PREFIX + name, namespace)
    if handle is not None:
        _end(name, handle, namespace)


def pause_sink(name: str, *, paused: bool = True, namespace: str = NAMESPACE) -> None:
    """Let a sink write nothing until it is resumed, also over restarts; its subscription stays.
    Raises InstanceNotFound, InstanceNotRunning."""
    connect_ray(local=False)
    records = asked_records(namespace)
    record = records.get(name)
    records.put(name, record["config"], paused=paused)
    handle = find_actor(SINK_PREFIX + name, namespace)
    if handle is not None:
        answer(handle.pause.remote() if paused else handle.resume.remote(), ANSWER_S)


def resume_sink(name: str, *, namespace: str = NAMESPACE) -> None:
    """Let a paused sink go on. Raises as `pause_sink`."""
    pause_sink(name, paused=False, namespace=namespace)


def seek_sink(name: str, to: str, *, namespace: str = NAMESPACE) -> None:
    """Move a sink to a place of the log (`head`, `tail`, `earliest`, FILE:POSITION, …), and
    start it over there; what a mirror has by key is written again.

    Raises ConfigError: the target keeps its place where it cannot be moved; InstanceNotFound,
    PositionPurged, and what the target raises.
    """
    connect_ray(local=False)
    record = asked_records(namespace).get(name)
    config = SinkConfig.model_validate(record["config"])
    target = make_sink(config)
    forget = getattr(target, "forget_place", None) or getattr(target, "write_again", None)
    if target.guarantee == "exactly_once" and forget is None:
        raise ConfigError(
            f"sink {name}: a target of the type {config.type!r} has its place with its rows, so it "
            "cannot go back; give the sink another name and an empty target"
        )
    handle = find_actor(SINK_PREFIX + name, namespace)
    if handle is not None:
        _end(name, handle, namespace)
    try:
        _move(config, to, namespace)
        CommittedPlaces(namespace).forget(name)
        if forget is not None:
            forget()
    finally:
        _launch(name, namespace)


def _move(config: SinkConfig, to: str, namespace: str) -> None:
    """Move a sink's subscriber; one that was removed comes again."""
    moved = subscriber(config.destination, config.client_id, namespace=namespace)
    try:
        moved.seek(to)
    except NotSubscribed:
        with connect(config.destination, config.client_id, namespace=namespace) as new:
            new.subscribe(config.tables, start=TAIL)
        moved.seek(to)


def sink_status(name: str | None = None, *, namespace: str = NAMESPACE) -> dict[str, Any]:
    """Return one or all sinks of the cluster by name: state, counters, place, error. Raises
    InstanceNotFound."""
    connect_ray(local=False)
    records = asked_records(namespace)
    found = {}
    known = {name: records.get(name)} if name else records.all()
    for each, record in known.items():
        config = record["config"]
        handle = find_actor(SINK_PREFIX + each, namespace)
        told = {"state": "restarting"} if handle is None else _status(handle)
        named = {key: config[key] for key in ("destination", "type", "client_id")}
        found[each] = {**named, **told}
    return found


def _status(handle: ActorHandle[Any]) -> dict[str, Any]:
    try:
        status: dict[str, Any] = answer(handle.status.remote(), ANSWER_S)
    except CanalError as error:
        return {"state": "restarting", "error": str(error)}
    return status


def _snapshot_error(config: SinkConfig, namespace: str) -> str:
    """Return why the newest snapshot of a sink's subscriber has failed; empty: it has not, or there
    is none. Raises CanalError: it is not known now."""
    client_id = config.client_id
    try:
        found = subscriber(config.destination, client_id, namespace=namespace).snapshot.status()
    except (ConfigError, NotSubscribed):
        return ""
    if found["state"] != FAILED:
        return ""
    return (
        f"the snapshot of subscriber {client_id} has failed, so rows are missing: {found['error']} "
        f"(`ray-canal snapshot resume {config.destination} --client-id {client_id}` tries again)"
    )
