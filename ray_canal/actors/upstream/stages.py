"""Starts the stages of one upstream: fetcher, parser, transaction buffer, spiller, decode tasks;
and the readers of a snapshot.

All but decode tasks and row readers run on the node of their destination, if that takes them.
They are owned by the store actor that makes them: they die with it, and its constructor makes new
ones. So they need neither name nor restarts. (A spare is owned by nobody until it is adopted.)
"""

from __future__ import annotations

import contextlib
from typing import Any

import ray
from ray.actor import ActorHandle

from ray_canal.actors.log_settings import log_terms
from ray_canal.actors.placement import (
    ACTOR_CPUS,
    CONTROL_GROUP,
    HEALTH_GROUP,
    on_node,
    on_this_node,
    spread,
    this_node,
)
from ray_canal.actors.registry import NAMESPACE
from ray_canal.config import InstanceConfig
from ray_canal.config.kept_secrets import handed_over, with_references
from ray_canal.model.position import EntryPosition


def fetcher(config: InstanceConfig, fused: bool) -> ActorHandle[Any]:
    """Start a fetcher. Raises ConfigError: a password is not kept any more."""
    from ray_canal.actors.upstream.fetcher import FetcherActor

    given, told = handed_over(config)

    handle: ActorHandle[Any] = (
        ray.remote(concurrency_groups={CONTROL_GROUP: 1, HEALTH_GROUP: 1})(FetcherActor)
        .options(num_cpus=ACTOR_CPUS, max_restarts=0, **on_this_node())
        .remote(given.model_dump_json(), fused)
    )
    handle.remember.remote(told)
    let_log(handle, "fetcher")
    return handle


def let_log(stage: ActorHandle[Any], name: str) -> None:
    """Let a stage log as this process does, in the name of this task's destination."""
    terms = log_terms()
    if terms is not None:
        stage.log_as.remote(terms, name)


def spare(name: str, node: str) -> ActorHandle[Any]:
    """Start a spare (spare.py) on a node. It belongs to nobody, and ends by itself."""
    from ray_canal.actors.upstream.spare import FetcherActor

    handle: ActorHandle[Any] = (
        ray.remote(concurrency_groups={CONTROL_GROUP: 1, HEALTH_GROUP: 1})(FetcherActor)
        .options(
            name=name,
            namespace=NAMESPACE,
            lifetime="detached",
            num_cpus=ACTOR_CPUS,
            max_restarts=0,
            **on_node(node),
        )
        .remote(name, node)
    )
    return handle


def end(stage: ActorHandle[Any]) -> None:
    """End a stage. One that cannot be told ends with its owner."""
    with contextlib.suppress(Exception):
        ray.kill(stage)


def parser(config: InstanceConfig) -> ActorHandle[Any]:
    """Start a parser. Raises ConfigError: a password is not kept any more."""
    from ray_canal.actors.upstream.parser import Parser

    given, told = handed_over(config)

    handle: ActorHandle[Any] = (
        ray.remote(concurrency_groups={HEALTH_GROUP: 1})(Parser)
        .options(num_cpus=ACTOR_CPUS, max_restarts=0, **on_this_node())
        .remote(given.model_dump_json())
    )
    handle.remember.remote(told)
    let_log(handle, "parser")
    return handle


def transaction_buffer(
    config: InstanceConfig, start: EntryPosition, gtid_set: str
) -> ActorHandle[Any]:
    """Start a transaction buffer."""
    from ray_canal.actors.upstream.transaction_buffer_actor import TransactionBufferActor

    handle: ActorHandle[Any] = (
        ray.remote(concurrency_groups={HEALTH_GROUP: 1})(TransactionBufferActor)
        .options(num_cpus=ACTOR_CPUS, max_restarts=0, **on_this_node())
        .remote(with_references(config, lambda _: "kept:").model_dump_json(), start, gtid_set)
    )
    let_log(handle, "transaction buffer")
    return handle


def spiller(folder: str) -> ActorHandle[Any]:
    """Start a spiller, next to its store, where the folder is."""
    from ray_canal.actors.spiller import Spiller

    handle: ActorHandle[Any] = (
        ray.remote(Spiller)
        .options(num_cpus=ACTOR_CPUS, max_restarts=0, **on_node(this_node()))
        .remote(folder)
    )
    let_log(handle, "spiller")
    return handle


def row_reader(config: InstanceConfig, kind: type[Any]) -> ActorHandle[Any]:
    """Start a reader of a snapshot's rows, of a class of row_readers.py, where `snapshot.node`
    says. Raises ConfigError: a password is not kept any more."""
    given, told = handed_over(config)
    handle: ActorHandle[Any] = (
        ray.remote(concurrency_groups={CONTROL_GROUP: 1, HEALTH_GROUP: 1})(kind)
        .options(num_cpus=ACTOR_CPUS, max_restarts=0, **spread(config.snapshot.node))
        .remote(given.model_dump_json())
    )
    handle.remember.remote(told)
    let_log(handle, "row reader")
    return handle


def decode_task() -> Any:
    """Return the stateless DML-decode task: (raw, parsed) -> (info, decoded). Any worker, any
    chunk; its demand for a CPU is what makes the cluster grow."""
    from ray_canal.actors.upstream.decoder import decode_chunk

    return ray.remote(decode_chunk).options(num_returns=2, num_cpus=1, max_retries=3)
