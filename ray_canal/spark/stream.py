"""Micro-batches: get -> one DataFrame per table -> your function -> ack; rollback on failure.

The next batches are fetched and written ahead (ahead.py) while Spark works on this one.

At least once and in order: a batch is acked after the function returned. A function that keeps with
what it writes the id of the last row, and passes over rows that are not above it, makes it exactly
once (spark/parquet.py does).
"""

from __future__ import annotations

import logging
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession

from ray_canal.errors import CanalError, ConfigError, InstanceRestarted
from ray_canal.spark.ahead import EMPTY_BATCH, Ahead, MessageSource, Wanted
from ray_canal.spark.frames import (
    FrameOptions,
    Frames,
    Options,
    Statements,
    Written,
    to_frames,
    write_frames,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

_log = logging.getLogger(__name__)

_RESTARTS_MAX = 10
"""So many times in a row may the destination restart under a batch before `run` gives up."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a run; only acked batches count.

    `finished`: the source (binlog files) is at its end. `stopped`: a signal ended the run.
    """

    batches: int = 0
    rows: int = 0
    rows_by_table: dict[str, int] = field(default_factory=dict)
    empty_polls: int = 0
    finished: bool = False
    stopped: bool = False


Function = Callable[[dict[str, DataFrame], Any], None]


def run(
    connector: MessageSource,
    spark: SparkSession,
    function: Function,
    *,
    batch_size: int = 24576,
    timeout: float = 1.0,
    max_batches: int | None = None,
    until: Callable[[Progress], bool] | None = None,
    retries: int = 0,
    **frames: Unpack[FrameOptions],
) -> Progress:
    """Call `function({"schema.table": DataFrame}, message)` for each batch, then ack the batch.

    `connector` is subscribed. `batch_size` and `timeout` are those of `get_without_ack`;
    `tables` (others are acked unread), `statements` and `partition_by` are as in `FrameOptions`.
    Ends after `max_batches`, when `until(progress)` is true (asked after each batch and each empty
    poll), when a source of files is at its end, or at SIGINT or SIGTERM, which let the current
    batch finish; a second signal interrupts it. While the function works, the next batches are
    fetched, unless `timeout` is None or 0; those that no function was called with are rolled back
    at the end.

    When the function raises, it is called again with the same batch up to `retries` times; then
    the batch is rolled back and the error raised. Frames are read before the function returns, or
    not at all.

    A function that works on `message.batches` alone says so by a false attribute `reads_frames`:
    nothing is written for Spark then, and its frames are empty.

    A statement of which the log has the text alone (binlog_format STATEMENT or MIXED; partitions
    that come or go) changes rows that no frame can have: UnsupportedEvent, unless `statements` is
    "ignore".
    """
    options = Options.of(spark, **frames)
    options = replace(options, shown=getattr(function, "reads_frames", True))
    progress = Progress()
    restarts = 0
    with _stop_signals() as stop:
        while True:
            left = None if max_batches is None else max_batches - progress.batches
            batches = _Batches(connector, spark, function, retries, progress)
            try:
                return batches.run(Wanted(batch_size, timeout, left), options, until, stop)
            except InstanceRestarted as error:
                restarts = restarts + 1 if batches.progress.batches == progress.batches else 1
                if restarts > _RESTARTS_MAX:
                    raise
                _log.warning("a batch comes again: %s", error)
                progress = batches.progress


class _Batches:
    """One pass over a connector's batches, up to the end or to an error. `progress` goes on from
    where an earlier one was."""

    def __init__(
        self,
        connector: MessageSource,
        spark: SparkSession,
        function: Function,
        retries: int,
        progress: Progress,
    ) -> None:
        self._connector = connector
        self._spark = spark
        self._function = function
        self._retries = retries
        self.progress = progress

    def run(
        self,
        wanted: Wanted,
        options: Options,
        until: Callable[[Progress], bool] | None,
        stop: threading.Event,
    ) -> Progress:
        """The progress at the end."""
        ahead = Ahead(self._connector, wanted, lambda m: write_frames(m.batches, options))
        last = None if wanted.messages is None else self.progress.batches + wanted.messages
        try:
            while last is None or self.progress.batches < last:
                if stop.is_set():
                    self.progress = replace(self.progress, stopped=True)
                    break
                found = ahead.next()
                assert found is not None  # it waited
                message, written = found
                if written is None:
                    self._empty(message)
                else:
                    self._one(message, written)
                if self.progress.finished or (until is not None and until(self.progress)):
                    break
        except BaseException as error:
            ahead.close()
            _give_back(self._connector, error)
            raise
        ahead.close()
        if ahead.has_more:
            self._connector.rollback()
        return self.progress

    def _empty(self, message: Any) -> None:
        self.progress = replace(
            self.progress,
            empty_polls=self.progress.empty_polls + 1,
            finished=bool(getattr(message, "finished", False)),
        )

    def _one(self, message: Any, written: Written) -> None:
        """The function sees a batch, and it is acked."""
        try:
            made = written.frames(self._spark)
        except BaseException:
            written.release()
            raise
        with made:
            _called(self._function, made, message, self._retries)
        self._connector.ack(message.id)
        self.progress = _counted(self.progress, made.rows)


def changes(
    spark: SparkSession,
    source: str | Any,
    table: str,
    *,
    batch_size: int = 24576,
    timeout: float | None = None,
    client_id: int | None = None,
    ack: bool = False,
    statements: Statements = "error",
) -> DataFrame:
    """The changes of one table that are there now (one batch), as a DataFrame.

    `source`: a destination's name, or a subscribed connector. `table`: `schema.table`. By the name
    alone the subscription is ephemeral, and ends with the call. With a `client_id` it is that
    subscriber, whose batch comes again unless `ack` is true. Raises ConfigError: `ack` without a
    `client_id`, a table without its schema.

    The DataFrame can be read until the session stops, or until `release_changes()`. With no change
    of the table in the batch, an empty DataFrame without columns. `statements` as in `run`.
    """
    if "." not in table:
        raise ConfigError(f"table {table!r} has no schema: give schema.table")
    options: FrameOptions = {"tables": [table], "statements": statements}
    if not isinstance(source, str):
        return _one_look(spark, source, options, batch_size, timeout, ack)
    if ack and client_id is None:
        raise ConfigError("ack=True needs a client_id, whose cursor is moved")
    import ray_canal

    with ray_canal.connect(source, client_id=client_id) as connector:
        connector.subscribe(re.escape(table))
        return _one_look(spark, connector, options, batch_size, timeout, ack)


def _one_look(
    spark: SparkSession,
    connector: Any,
    options: FrameOptions,
    batch_size: int,
    timeout: float | None,
    ack: bool,
) -> DataFrame:
    message = connector.get_without_ack(batch_size, timeout)
    if message.id == EMPTY_BATCH:
        return _nothing(spark)
    made = to_frames(spark, message.batches, **options)
    _held.append(made)
    if ack:
        connector.ack(message.id)
    found = list(made.by_table.values())
    return found[0] if found else _nothing(spark)


def release_changes() -> None:
    """Free what the DataFrames of `changes` read; they cannot be read after this."""
    while _held:
        _held.pop().release()


_held: list[Frames] = []


def _nothing(spark: SparkSession) -> DataFrame:
    return spark.range(0).drop("id")


def _called(function: Function, made: Frames, message: Any, retries: int) -> None:
    for attempt in range(retries + 1):
        try:
            function(made.by_table, message)
            return
        except Exception as error:
            if attempt == retries:
                raise
            _log.warning(
                "batch %d, attempt %d of %d: %s", message.id, attempt + 1, retries + 1, error
            )


def _give_back(connector: MessageSource, cause: BaseException) -> None:
    """Roll back without hiding the error that is on its way."""
    try:
        connector.rollback()
    except CanalError as error:
        _log.warning("after %r: no rollback (what was not acked comes again): %s", cause, error)


def _counted(progress: Progress, rows: dict[str, int]) -> Progress:
    by_table = dict(progress.rows_by_table)
    for name, count in rows.items():
        by_table[name] = by_table.get(name, 0) + count
    return replace(
        progress,
        batches=progress.batches + 1,
        rows=progress.rows + sum(rows.values()),
        rows_by_table=by_table,
        empty_polls=0,
    )


@contextmanager
def _stop_signals() -> Iterator[threading.Event]:
    """An event that the first SIGINT or SIGTERM sets; the second raises KeyboardInterrupt.

    In another thread than the main one, signals are not ours: the event is never set.
    """
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def on_signal(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, on_signal) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
