"""A disk that is full for seconds, under a real destination: subscribers go on after it."""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path

import pytest

from ray_canal.demo import binlog_files
from ray_canal.destination import disk_state
from ray_canal.destination.disk_state import DiskState
from ray_canal.log.segment import SegmentFolder
from ray_canal.model.message import EMPTY_BATCH
from ray_canal.model.subscription import Subscription
from ray_canal.offline import decode_chunks
from tests.local_destination import destination_of

SMALL_LOG = {"buffer_size": 8, "memunit_bytes": 1024}


def test_whole_transactions_go_on_when_the_disk_has_room_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """B2: a disk that is full for seconds does not stop a subscriber of whole transactions for
    ever; status and log tell of it meanwhile."""
    really, tried = SegmentFolder.write, []

    def write(self: SegmentFolder, *chunk: object) -> object:
        tried.append(time.monotonic())
        if tried[-1] < tried[0] + 2:
            raise OSError(28, "No space left on device")
        return really(self, *chunk)  # type: ignore[arg-type]

    monkeypatch.setattr(SegmentFolder, "write", write)
    monkeypatch.setattr(disk_state, "PAUSE_S", 0.2)

    async def read() -> tuple[int, list[str]]:
        files, rows, told = binlog_files()[2:], 0, []
        async with destination_of(tmp_path, files, store=SMALL_LOG) as store:
            await store.subscribe(1, r".*\..*", wishes=Subscription(transactions=True))
            while True:
                head = await store.get_without_ack(1, 1, 0.5)
                log = (await store.status())["store"]
                if log["disk_error"]:
                    assert log["disk_failing_s"] > 0
                    told.append(log["disk_error"])
                if head.id != EMPTY_BATCH:
                    rows += head.row_count
                    await store.ack(1, head.id, head.epoch)
                elif head.finished:
                    return rows, told

    with caplog.at_level(logging.WARNING):
        rows, told = asyncio.run(asyncio.wait_for(read(), 60))
    chunks = decode_chunks(binlog_files()[2:])
    assert rows == sum(int(info.entries["rows"].sum()) for info, _ in chunks)
    assert told
    assert all("No space left" in text for text in told)
    lines = [record.getMessage() for record in caplog.records]
    assert sum("cannot go to disk" in line for line in lines) == 1
    assert sum("goes to disk again" in line for line in lines) == 1


def test_a_failure_that_lasts_is_logged_now_and_then(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """B2: the log says why, once a minute; each write is tried after a pause."""
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    disk = DiskState("x", "/spill")
    assert disk.may_try
    assert disk.report() == {"disk_error": None, "disk_failing_s": 0.0}
    for _ in range(100):
        disk.failed("no space")
        assert not disk.may_try
        now += 1.0
        assert disk.may_try
    assert disk.report() == {"disk_error": "no space", "disk_failing_s": 100.0}
    assert len(caplog.records) == 2
    disk.worked()
    assert "after 100 s" in caplog.records[-1].getMessage()
    assert disk.report()["disk_error"] is None


def test_a_failure_is_told_while_writes_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was full is not failing any more once nothing wants to go there: subscribers have read
    the log."""
    now = [100.0]
    monkeypatch.setattr("ray_canal.destination.disk_state.time.monotonic", lambda: now[0])
    disk = DiskState("d", "/spill")
    for _ in range(30):
        disk.failed("No space left on device")
        now[0] += 1.0
    assert disk.report() == {"disk_error": "No space left on device", "disk_failing_s": 30.0}
    now[0] += 15.0
    assert disk.report() == {"disk_error": None, "disk_failing_s": 0.0}
    assert disk.may_try
    disk.failed("No space left on device")
    assert disk.report()["disk_failing_s"] == 0.0
    disk.worked()
    assert disk.report()["disk_error"] is None
