"""When rows of a live server are in hand, by each way to a client: arrays of ids and times."""

from __future__ import annotations

import contextlib
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import ray_canal as canal
from ray_canal.canal.generated import EntryProtocol_pb2 as pb

TABLE = "bench.item"
_FOUND_EVERY_S = 0.1
Ids = Any


class Arrivals:
    """Ids of rows and, by CLOCK_MONOTONIC, when they were there."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._ids: list[np.ndarray[Any, Any]] = []
        self._times: list[np.ndarray[Any, Any]] = []
        self.count = 0

    def note(self, ids: Ids, now_ns: int) -> bool:
        """Note rows; whether all that are expected are there."""
        found = np.asarray(ids, dtype=np.int64)
        self._ids.append(found)
        self._times.append(np.full(len(found), now_ns))
        self.count += len(found)
        return self.count >= self._rows

    def save(self, path: str) -> None:
        np.savez(path, id=np.concatenate(self._ids), ns=np.concatenate(self._times))


def by_messages(
    arrivals: Arrivals, tree: dict[str, Any], name: str, way: str, ready: Callable[[], None]
) -> None:
    """A connector's loop; `way`: "ray", "flight" or "tcp", whose view is entries."""
    with _address(tree, way) as address, canal.connect(name, address=address) as connector:
        connector.subscribe()
        ready()
        for message in connector.messages(1000):
            if way == "tcp":
                ids = [each for entry in message.entries for each in _ids_of(entry)]
                done = arrivals.note(ids, time.monotonic_ns())
            else:
                done = False
                for batch in message.batches:
                    ids = batch.column("after").field("id").to_numpy(zero_copy_only=False)
                    done = arrivals.note(ids, time.monotonic_ns())
            if done:
                return


@contextlib.contextmanager
def _address(tree: dict[str, Any], way: str) -> Iterator[str]:
    if way == "flight":
        address = canal.serve_flight({**tree, "flight": {"host": "127.0.0.1", "port": 0}})
        yield f"grpc://{address}"
        canal.stop_flight()
    elif way == "tcp":
        yield canal.serve({**tree, "server": {"host": "127.0.0.1", "port": 0}})[0]
        canal.stop_serving()
    else:
        yield ""


def _ids_of(entry: Any) -> Iterator[int]:
    if entry.entryType == pb.ROWDATA:
        for row in pb.RowChange.FromString(entry.storeValue).rowDatas:
            yield int(row.afterColumns[0].value)


def by_foreach_batch(
    arrivals: Arrivals, name: str, ready: Callable[[], None]
) -> dict[str, float]:
    """Micro-batches one after the other; the time is that of the call of the function. Return the
    median milliseconds of each part of a micro-batch, as Spark calls them. The session stays:
    whoever comes next finds it warm."""
    from ray_canal import spark

    session = spark.session("ray_canal_bench")
    session.sparkContext.setLogLevel("ERROR")
    done = threading.Event()

    def function(frame: Any, _number: int) -> None:
        now_ns = time.monotonic_ns()
        if arrivals.note([row[0] for row in frame.select("after.id").collect()], now_ns):
            done.set()

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as checkpoint:
        reader = session.readStream.format("ray_canal").option("destination", name)
        query = (
            reader.option("table", TABLE)
            .option("client_id", 7)
            .load()
            .writeStream.foreachBatch(function)
            .option("checkpointLocation", checkpoint)
            .start()
        )
        while query.status["message"].startswith("Initializing"):
            _go_on(query)
        ready()
        while not done.is_set():
            _go_on(query)
        parts = _medians([each["durationMs"] for each in query.recentProgress])
        query.stop()
    return parts


def _go_on(query: Any) -> None:
    if query.exception() is not None:
        raise query.exception()
    time.sleep(_FOUND_EVERY_S)


def _medians(durations: list[dict[str, int]]) -> dict[str, float]:
    """Of the micro-batches that had rows."""
    full = [each for each in durations if "addBatch" in each]
    return {name: statistics.median(each.get(name, 0) for each in full) for name in full[-1]}
