"""A sink's runner over a real Store in this process: no Ray, real targets."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from ray_canal.client.connector import Connector
from ray_canal.client.transport import RayTransport
from ray_canal.config import SinkConfig
from ray_canal.model.reports import SnapshotReport
from ray_canal.model.snapshot_ledger import DONE, ENDED
from ray_canal.model.snapshot_wish import SnapshotWish, wishes_of
from ray_canal.sinks.open import make_sink, transform_of
from ray_canal.sinks.port import Sink
from ray_canal.sinks.runner import Runner
from tests.local_destination import destination_of
from tests.loop_thread import LoopThread
from tests.lossy_calls import LossyCalls

_CLIENT = 7


@contextlib.contextmanager
def destination(folder: Path, *, held: bool = False, **instance: Any) -> Iterator[LossyCalls]:
    """The destination `x`, running; connectors of this process find it. `held`: its log keeps all
    for subscribers to come."""
    patch, thread, stack = pytest.MonkeyPatch(), LoopThread(), contextlib.AsyncExitStack()
    store = thread.run(stack.enter_async_context(destination_of(folder, **instance)))
    if held:
        thread.run(store.subscribe(0, r".*\..*"))  # it never acks
    calls = LossyCalls(store, thread.loop)
    calls.install(patch)
    try:
        yield calls
    finally:
        thread.run(stack.aclose())
        patch.undo()
        thread.end()


def take_snapshot(destination: LossyCalls, tables: str) -> None:
    """Have rows read for the sink, and wait until it has them: `ray-canal snapshot start`."""

    def snapshot(action: str, wishes: Sequence[SnapshotWish] = ()) -> SnapshotReport:
        api = destination.destination.api
        found: SnapshotReport = destination.ask(api.snapshot(_CLIENT, action, wishes))
        return found

    snapshot("start", wishes_of(tables, "", ()))
    until(lambda: snapshot("status")["state"] in ENDED)
    assert snapshot("status")["state"] == DONE


def sink_config(kind: str, **more: Any) -> SinkConfig:
    tree = {"name": "s", "destination": "x", "type": kind, "client_id": _CLIENT, **more}
    return SinkConfig.model_validate(tree)


def runner_of(config: SinkConfig, sink: Sink | None = None) -> Runner:
    return Runner(
        config,
        lambda: Connector(RayTransport(config.destination), config.client_id),
        sink or make_sink(config),
        transform_of(config),
    )


def running(runner: Runner) -> contextlib.AbstractContextManager[None]:
    """The runner in a thread; what it raises is raised at the end of the block."""
    return in_thread(runner.run)


@contextlib.contextmanager
def in_thread(work: Callable[[threading.Event], object]) -> Iterator[None]:
    """Work in a thread until it is told to stop, at the end of the block, where what it raises is
    raised."""
    stopped, failures = threading.Event(), []

    def run() -> None:
        try:
            work(stopped)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join(60)
    assert not thread.is_alive()
    if failures:
        raise failures[0]


def until(condition: Callable[[], Any], seconds: float = 60.0) -> None:
    """Wait for something to be true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.05)
