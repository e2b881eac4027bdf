"""The status of a real destination, from its start to its end."""

from __future__ import annotations

import json
from pathlib import Path

from ray_canal.demo import binlog_files
from ray_canal.destination.supervisor import FAILED, FINISHED
from tests.local_destination import (
    ALL,
    NAME,
    drain,
    instance,
    new_destination,
    run,
    running,
    take,
    until,
)


def test_it_says_where_the_destination_stands_and_what_it_has_read(tmp_path: Path) -> None:
    async def story() -> None:
        async with running(tmp_path, instance(binlog_files()[:1])) as destination:
            await destination.subscribe(7, ALL)
            heads = await drain(destination, 7, 1000)
            await until(lambda: destination.state.supervisor.state == FINISHED)
            status = await destination.status()
            assert (status["destination"], status["state"], status["error"]) == (
                NAME, FINISHED, None,
            )  # fmt: skip
            assert status["rows"] == sum(head.row_count for head in heads) > 0
            assert status["entries"] == sum(head.entry_count for head in heads)
            assert (status["generations"], status["errors"]) == (1, 0)
            assert status["epoch"] == destination.state.guard.epoch
            assert status["start"].startswith(str(destination.state.log.start))
            assert (status["connected"], status["lag_seconds"]) == (False, 0.0)
            assert {"fetch", "store", "get"} <= status["stages"].keys()
            assert list(status["store"]["subscribers"]) == ["7"]
            assert min(status["bytes_max"].values()) >= 0
            status.pop("fetched"), status.pop("purge")  # records of the source's
            json.dumps(status)  # plain values

    run(story())


def test_it_names_a_failure_while_there_is_no_log(tmp_path: Path) -> None:
    async def story() -> None:
        destination = new_destination(tmp_path, instance([tmp_path / "bin.000001"]))
        try:
            await until(lambda: destination.state.supervisor.state == FAILED)
            status = await destination.status()
            assert "bin.000001" in status["error"]
            assert (status["state"], status["errors"] > 0) == (FAILED, True)
            assert (status["store"], status["start"], status["address"]) == ({}, None, "")
        finally:
            await destination.stop()

    run(story())


def test_a_subscribers_place_is_told(tmp_path: Path) -> None:
    async def story() -> None:
        async with running(tmp_path) as destination:
            await destination.subscribe(7, ALL)
            head = await take(destination, 7, ack=False)
            assert head is not None
            place = (await destination.status())["store"]["subscribers"]["7"]
            assert (place["unacked_batches"], place["failed"], place["expired"]) == (1, False, None)
            assert 0 <= place["last_call_s"] < 60
            (listed,) = await destination.subscribers()
            assert (listed["client_id"], listed["unacked_batches"]) == (7, 1)

    run(story())
