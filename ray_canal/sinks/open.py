"""From a [[sink]] of the configuration to a runner: the one place that knows every target."""

from __future__ import annotations

import importlib
import logging
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ray_canal.client.connecting import connect
from ray_canal.config import CanalConfig, SinkConfig, load
from ray_canal.errors import ConfigError
from ray_canal.sinks.lakes.file_shares import Spread, in_threads
from ray_canal.sinks.port import Sink, SinkError, Transform
from ray_canal.sinks.runner import Runner, SinkStatus
from ray_canal.views.row_places import table_name

if TYPE_CHECKING:
    from ray_canal.sinks.lakes.lake import Lake

logger = logging.getLogger(__name__)

_QUEUES = {
    "kafka": ("queues.kafka", "KafkaSink"),
    "rabbitmq": ("queues.rabbitmq", "RabbitSink"),
    "rocketmq": ("queues.rocketmq", "RocketSink"),
}
_DATABASES = {
    "mysql": ("databases.mysql", "MySqlDatabase"),
    "postgres": ("databases.postgres", "PostgresDatabase"),
    "duckdb": ("databases.duckdb", "DuckDatabase"),
}


def make_sink(config: SinkConfig, spread: Spread = in_threads) -> Sink:
    """Return the target of a sink, not connected yet. `spread` calls the writers of a lake's files.
    Raises ConfigError: a package is missing, or there is no such class."""
    if config.type in _DATABASES:
        from ray_canal.sinks.databases.mirror import Mirror

        database = _class_of(config, *_DATABASES[config.type])
        given = (Path(config.path),) if config.type == "duckdb" else ()
        return Mirror(
            config.name, config.destination, config.mirror, lambda: database(config.mirror, *given)
        )
    if config.type in ("delta", "iceberg"):
        from ray_canal.sinks.lakes.lake import LakeMirror, LakeSink

        kind = LakeSink if config.lake.mode == "append" else LakeMirror
        return kind(config.lake, lake_of(config, spread), config.destination, config.name)
    if config.type in _QUEUES:
        module, name = _QUEUES[config.type]
        if config.type == "rabbitmq" and config.rabbitmq.stream:
            module, name = "queues.rabbitmq_streams", "StreamSink"
        queue: Sink = _class_of(config, module, name)(config)
        return queue
    if config.type == "jsonl":
        from ray_canal.sinks.jsonl import JsonLines
        from ray_canal.sinks.messages import MessageMaker

        maker = MessageMaker(config.message, config.routing) if config.message.format else None
        return JsonLines(Path(config.path), maker)
    sink: Sink = _named(config.target, "target")(config)
    return sink


def lake_of(config: SinkConfig, spread: Spread = in_threads) -> Lake:
    """Return the tables of a lake that a sink writes. Raises ConfigError: a package is missing, or
    the sink writes no lake."""
    name = f"{config.destination}.{config.name}"
    try:
        if config.type == "delta":
            from ray_canal.sinks.lakes.delta_lake import DeltaLake

            return DeltaLake(name, config.lake, spread)
        if config.type == "iceberg":
            from ray_canal.sinks.lakes.iceberg import IcebergLake

            return IcebergLake(name, config.lake, spread)
    except ImportError as error:
        raise _missing(config, error) from None
    raise ConfigError(f'sink {config.name} writes no lake: its type is "{config.type}"')


def _missing(config: SinkConfig, error: ImportError) -> ConfigError:
    return ConfigError(f'sink {config.name}: {error}; run: pip install "ray-canal[{config.type}]"')


def _class_of(config: SinkConfig, module: str, name: str) -> Any:
    """Return a class of this room whose library is an extra of the type's name. Raises
    ConfigError: the extra is not installed."""
    try:
        return getattr(importlib.import_module(f"ray_canal.sinks.{module}"), name)
    except ImportError as error:
        raise _missing(config, error) from None


def transform_of(config: SinkConfig) -> Transform | None:
    """Return the function that changes each batch; it raises SinkError, whatever the user's raises.
    Raises ConfigError."""
    if not config.transform:
        return None
    found: Transform = _named(config.transform, "transform")

    def changed(batch: pa.RecordBatch) -> pa.RecordBatch | None:
        try:
            other = found(batch)
        except Exception as error:
            text = f"{_transform_of(config, batch)} raised {type(error).__name__}: {error}"
            logger.exception("%s", text)
            raise SinkError(text) from error
        if other is None or isinstance(other, pa.RecordBatch):
            return other
        raise SinkError(
            f"{_transform_of(config, batch)} returned a {type(other).__name__}: return a pyarrow "
            "RecordBatch, or None"
        )

    return changed


def _transform_of(config: SinkConfig, batch: pa.RecordBatch) -> str:
    """Return which rows a transform was given, for an error."""
    file, position = (batch[name][0].as_py() for name in ("journal_name", "position"))
    return (
        f"sink {config.name}: transform {config.transform!r}, given rows of {table_name(batch)} "
        f"from {file}:{position} on,"
    )


def _named(text: str, key: str) -> Any:
    module, _, name = text.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{key} = {text!r}: {error}; is its module in PYTHONPATH?") from error


def runner_of(deployment: CanalConfig, name: str, sink: Sink | None = None) -> Runner:
    """Return a runner for a sink of a deployment whose destination runs in the cluster. `sink`: the
    target itself, in place of what the configuration names. Raises ConfigError."""
    config = deployment.sink_named(name)
    return Runner(
        config,
        lambda: connect(config.destination, config.client_id, namespace=deployment.ray.namespace),
        sink or make_sink(config),
        transform_of(config),
    )


def run_sink(
    config: str | os.PathLike[str] | dict[str, Any] | CanalConfig,
    name: str,
    *,
    sink: Sink | None = None,
    stopped: threading.Event | None = None,
) -> SinkStatus:
    """Run a [[sink]] of a configuration here until `stopped` is set, or a source of binlog files is
    at its end; its destination must run. `sink`: a target object, in place of what the
    configuration names. Returns what was done. Raises ConfigError, SinkError, and what the
    destination raises that does not pass by itself."""
    runner = runner_of(load(config), name, sink)
    runner.run(stopped or threading.Event())
    return runner.status
