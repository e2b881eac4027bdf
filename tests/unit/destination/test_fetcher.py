"""What a fetcher says of its time."""

from __future__ import annotations

import time

import pytest

from ray_canal.config import InstanceConfig
from ray_canal.demo import binlog_files
from ray_canal.destination import fetcher as module
from ray_canal.destination.fetcher import Fetcher
from ray_canal.source.files import BinlogFiles


class Starved(BinlogFiles):
    """Waits 0.1 s for its file in each read, and gets no CPU for 0.3 s."""

    def read(self, linger_s: float, wait_s: float) -> None:
        time.sleep(0.4)
        self.waited_s += 0.1


def test_a_fetcher_that_gets_no_cpu_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that has used up its share: the fetch is then what limits the rest."""
    monkeypatch.setattr(module, "open_source", Starved)
    source = {"files": [str(binlog_files()[0])]}
    fetcher = Fetcher(InstanceConfig.model_validate({"destination": "x", "source": source}), False)
    for _ in range(2):
        fetched, chunk = fetcher.next_raw(0.0)
        assert chunk is None
        assert fetched.report is not None
        assert fetched.report.waiting_s == pytest.approx(0.1)
        assert fetched.report.busy_s >= 0.29
