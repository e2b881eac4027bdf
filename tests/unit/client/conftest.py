"""A real destination in this process, over calls that may fail as Ray's."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from ray_canal.client.connector import Connector
from ray_canal.client.message import Message
from ray_canal.client.transport import RayTransport
from ray_canal.demo import binlog_files
from tests.local_destination import destination_of
from tests.loop_thread import LoopThread
from tests.lossy_calls import LossyCalls

Row = tuple[Any, ...]
client_ids = itertools.count(1)


@pytest.fixture(scope="module")
def _lossy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LossyCalls]:
    """A store whose log holds everything, for as long as the tests run."""
    patch, thread, stack = pytest.MonkeyPatch(), LoopThread(), AsyncExitStack()
    folder = tmp_path_factory.mktemp("lost")
    log = {"batch_mode": "ITEMSIZE", "buffer_size": 1 << 16}
    store = thread.run(
        stack.enter_async_context(destination_of(folder, binlog_files()[:1], store=log))
    )
    thread.run(store.subscribe(0, r".*\..*"))  # it never acks
    calls = LossyCalls(store, thread.loop)
    calls.install(patch)
    yield calls
    thread.run(stack.aclose())
    patch.undo()
    thread.end()


@pytest.fixture
def lossy(_lossy: LossyCalls) -> Iterator[LossyCalls]:
    yield _lossy
    _lossy.fates.clear()
    _lossy.late.clear()


@pytest.fixture(scope="module")
def every_row(_lossy: LossyCalls) -> list[Row]:
    connector = connected()
    found = [row for message in connector.messages(1 << 16, 0.1) for row in rows_of(message)]
    connector.unsubscribe()
    assert len(found) > 500
    assert found == sorted(set(found))
    return found


def connected(connector_of: Callable[..., Any] = Connector) -> Any:
    connector = connector_of(RayTransport("x"), next(client_ids))
    connector.subscribe()
    return connector


def rows_of(message: Message) -> list[Row]:
    columns = ("timeline", "journal_name", "position", "row")
    return sorted(
        row
        for batch in message.batches
        for row in zip(*(batch.column(name).to_pylist() for name in columns), strict=True)
    )
