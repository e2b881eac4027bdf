"""Time stamps of chunks and messages, taken in every process of a Ray cluster from outside.

`install` is Ray's `worker_process_setup_hook`: it wraps methods of the pipeline, so nothing of the
package knows of it. Stamps are CLOCK_MONOTONIC, one clock for all processes of a machine. A chunk
is known by the offset in the binlog file at which it begins, a message by its batch's id.
"""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ray_canal.model.arrays import Int64s

FOLDER = "RAY_CANAL_BENCH_STAMPS"
"""Environment variable: where each process writes its stamps, in a file of its process id."""
OF_CHUNKS = ("reader free", "fetched", "parsed", "decoded", "in the loop", "buffered", "in the log")
OF_MESSAGES = ("asked", "handed out")
_EVERY_S = 0.5

_kept: list[tuple[str, int, int]] = []


def install() -> None:
    """Wrap what a row passes through in this process, and write stamps as they come."""
    from ray_canal.destination import fetcher
    from ray_canal.destination.delivery import Delivery
    from ray_canal.destination.log_pipeline import LogPipeline
    from ray_canal.destination.pump import FusedUpstream
    from ray_canal.log.event_store import EventStore
    from ray_canal.schema.event_parser import EventParser

    _wrap(fetcher.Fetcher, "_read", _of_result, ("reader free", "fetched"))
    _wrap(EventParser, "parse", _of_first, ("", "parsed"))
    _wrap(fetcher, "decoded", lambda given, _: given[1].head.position, ("", "decoded"))
    _wrap_async(FusedUpstream, "add", lambda given, _: given[1].head.position,
                ("in the loop", "buffered"))  # fmt: skip
    _wrap(EventStore, "put", lambda given, _: given[1].info.head.position, ("", "in the log"))
    _wrap(LogPipeline, "message", lambda _, head: head.id, ("", "handed out"))
    _wrap_async(Delivery, "poll", lambda _, head: max(head.id, 0), ("asked", ""))
    threading.Thread(target=_write, daemon=True).start()


def _of_result(_: tuple[Any, ...], chunk: Any) -> int:
    return 0 if chunk is None else int(chunk.head.position)


def _of_first(given: tuple[Any, ...], _: Any) -> int:
    return int(given[1].head.position)


Key = Callable[[tuple[Any, ...], Any], int]


def _wrap(owner: Any, name: str, key: Key, stages: tuple[str, str]) -> None:
    inner = getattr(owner, name)

    @functools.wraps(inner)
    def wrapped(*given: Any, **named: Any) -> Any:
        began_ns = time.monotonic_ns()
        result = inner(*given, **named)
        _keep(key(given, result), stages, began_ns)
        return result

    setattr(owner, name, wrapped)


def _wrap_async(owner: Any, name: str, key: Key, stages: tuple[str, str]) -> None:
    inner = getattr(owner, name)

    @functools.wraps(inner)
    async def wrapped(*given: Any, **named: Any) -> Any:
        began_ns = time.monotonic_ns()
        result = await inner(*given, **named)
        _keep(key(given, result), stages, began_ns)
        return result

    setattr(owner, name, wrapped)


def _keep(key: int, stages: tuple[str, str], began_ns: int) -> None:
    """Keep when a call began and ended, of those that have a stage; key 0: of nothing."""
    before, after = stages
    if key and before:
        _kept.append((before, key, began_ns))
    if key and after:
        _kept.append((after, key, time.monotonic_ns()))


def _write() -> None:
    path = Path(os.environ[FOLDER]) / f"{os.getpid()}.txt"
    while True:
        time.sleep(_EVERY_S)
        count = len(_kept)  # others append meanwhile
        if count:
            lines = "".join(f"{stage}\t{key}\t{ns}\n" for stage, key, ns in _kept[:count])
            del _kept[:count]
            with path.open("a", encoding="utf-8") as file:
                file.write(lines)


def stamps_in(folder: Path) -> dict[str, tuple[Int64s, Int64s]]:
    """Return by stage the keys, in order, and when each passed it first (ns)."""
    found: dict[str, dict[int, int]] = {}
    for path in folder.glob("*.txt"):
        for line in path.read_text("utf-8").splitlines():
            stage, key, ns = line.split("\t")
            found.setdefault(stage, {}).setdefault(int(key), int(ns))
    return {
        stage: (np.array(sorted(by_key)), np.array([by_key[key] for key in sorted(by_key)]))
        for stage, by_key in found.items()
    }
