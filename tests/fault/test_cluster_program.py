"""What a cluster run's readers write."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from ray_canal.errors import InstanceNotRunning
from tests.fault.cluster_program import _Rows


class Connector:
    """Gives its messages, each until it is acked."""

    def __init__(self, *messages: list[int]) -> None:
        self.messages = list(messages)
        self.is_away = False

    def get_without_ack(self, size: int, timeout: float) -> Any:
        batch = pa.RecordBatch.from_pylist([{"after": {"id": id}} for id in self.messages[0]])
        return SimpleNamespace(id=1, batches=[batch])

    def ack(self, message_id: int) -> None:
        if self.is_away:
            raise InstanceNotRunning("its process died")
        del self.messages[0]


def test_rows_whose_ack_failed_are_written_once(tmp_path: Path) -> None:
    connector: Any = Connector([1, 2], [3, 4])
    path = tmp_path / "d.jsonl"
    rows = _Rows(path)
    connector.is_away = True
    with pytest.raises(InstanceNotRunning):
        rows.take(connector)
    connector.is_away = False
    rows.take(connector)
    _Rows(path).take(connector)  # of a later life
    assert [json.loads(line)["id"] for line in path.read_text().splitlines()] == [1, 2, 3, 4]
