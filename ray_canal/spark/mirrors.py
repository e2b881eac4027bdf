"""Tables that follow a destination's: Delta tables of the rows as they are, or Parquet of changes.

Delta is written by delta-rs (sinks/lakes/delta.py), without a Spark session; Parquet by Ray tasks
(spark/parquet.py). Both hold each change once, however often a mirror is killed and run again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal

from pydantic import ValidationError
from pyspark.sql import SparkSession

from ray_canal.actors.registry import NAMESPACE
from ray_canal.client.connecting import connect
from ray_canal.client.connector import ALL_TABLES
from ray_canal.config import SinkConfig
from ray_canal.config.sink import LakeConfig
from ray_canal.errors import CanalError, ConfigError
from ray_canal.sinks.lakes.lake import Lake
from ray_canal.sinks.open import lake_of, make_sink
from ray_canal.sinks.runner import Runner
from ray_canal.spark.frames import Statements
from ray_canal.spark.parquet import ParquetSink
from ray_canal.spark.stream import run

Format = Literal["delta", "parquet"]
CLIENT_ID = 1003
_log = logging.getLogger(__name__)


class _Policy(LakeConfig):
    """Parameters of `mirror`: errors name them without a section."""

    @property
    def section(self) -> str:
        return ""


def mirror(
    destination: str,
    path: str,
    tables: str = ALL_TABLES,
    *,
    format: Format = "delta",
    client_id: int = CLIENT_ID,
    stopped: threading.Event | None = None,
    namespace: str = NAMESPACE,
    **options: Any,
) -> int:
    """Write a destination's tables below `path` until `stopped` is set, or a source of binlog files
    is at its end. Returns how many rows (changes) were written.

    "delta": a Delta table `path/SCHEMA/TABLE` for each table, with its rows as they are: the last
    image of each key, changed keys moved, deleted rows gone, emptied with TRUNCATE, and with the
    columns that DDL gives it. It begins with what the log has: rows that are older come with their
    first change. Options:

    - `schema_change` ("add"), `database`, `table`, `without_key`: as of a [[sink]] of type "delta";
    - `commit_interval_s` (5): of so many seconds of changes one commit is made, at most
      `batch_size` memory units of them;
    - `compact_s` (3600): so often small files are joined; 0: never;
    - `storage_options`: of the object store, as delta-rs takes them.

    "parquet": every change, as `ParquetSink` writes it; `read_rows` gives the rows. Options:
    `session` (the Spark session; None: that of this process), `statements` and `batch_size`, as of
    `run`.

    Raises ConfigError: an option that there is not; SinkError, and what a connector raises.
    """
    stopped = stopped or threading.Event()
    if format == "delta":
        return _delta(destination, path, tables, client_id, stopped, namespace, options)
    if format == "parquet":
        subscriber = partial(connect, destination, client_id, namespace=namespace)
        return _parquet(subscriber, path, tables, stopped, **options)
    raise ConfigError(f"format {format!r}: there are delta and parquet")


def _delta(
    destination: str,
    path: str,
    tables: str,
    client_id: int,
    stopped: threading.Event,
    namespace: str,
    options: Mapping[str, Any],
) -> int:
    config, compact_s = _sink(destination, path, tables, client_id, dict(options))
    sink = make_sink(config)
    runner = Runner(config, lambda: connect(destination, client_id, namespace=namespace), sink)
    done = threading.Event()
    compactor = threading.Thread(
        target=_compact_now_and_then, args=(config, compact_s, done), name="compact", daemon=True
    )
    if compact_s:
        compactor.start()
    try:
        runner.run(stopped)
    finally:
        done.set()
        if compact_s:
            compactor.join()
    return runner.status.rows


def _sink(
    destination: str, path: str, tables: str, client_id: int, options: dict[str, Any]
) -> tuple[SinkConfig, float]:
    """The sink, and how often its tables are compacted. Raises ConfigError."""
    compact_s = float(options.pop("compact_s", 3600.0))
    lake = {"path": path, "options": options.pop("storage_options", {})}
    interval = options.pop("commit_interval_s", 5.0)
    given = {
        "name": f"mirror-{client_id}",
        "destination": destination,
        "type": "delta",
        "client_id": client_id,
        "tables": tables,
        "commit_interval_s": interval,
        "batch_size": options.pop("batch_size", 0),
    }
    try:
        policy = _Policy.model_validate({**lake, **options})
        return SinkConfig.model_validate({**given, "lake": policy}), compact_s
    except ValidationError as error:
        raise ConfigError(f"mirror: {error}") from None


def _compact_now_and_then(config: SinkConfig, every_s: float, done: threading.Event) -> None:
    """Join small files until `done`. A commit that comes between is no harm: one of both is made
    again."""
    while not done.wait(every_s):
        compact(lake_of(config))


def compact(lake: Lake) -> None:
    """Join the small files of a mirror's tables. A table that is busy is left for the next time."""
    lake.open()
    for name in lake.names():
        try:
            _log.info("%s: %s", name, lake.compact(name, False, None))
        except CanalError as error:
            _log.info("%s was not compacted now: %s", name, error)
    lake.close()


def _parquet(
    subscriber: Callable[[], Any],
    path: str,
    tables: str,
    stopped: threading.Event,
    *,
    session: SparkSession | None = None,
    statements: Statements = "error",
    batch_size: int = 24576,
) -> int:
    session = session or SparkSession.getActiveSession()
    if session is None:
        raise ConfigError('format="parquet" needs a Spark session: call spark.session() before')
    with subscriber() as connector:
        connector.subscribe(tables)
        progress = run(
            connector,
            session,
            ParquetSink(session, path),
            batch_size=batch_size,
            statements=statements,
            until=lambda _: stopped.is_set(),
        )
    return progress.rows
