"""State of a log and of its subscribers' places."""

from __future__ import annotations

from pathlib import Path

from ray_canal.config import MetaConfig
from ray_canal.destination.attendance import Attendance
from ray_canal.destination.catch_ups import CatchUps
from ray_canal.destination.state import new_state
from ray_canal.destination.status.log_stats import LogStats
from ray_canal.model.subscription import Subscription
from tests.local_destination import ALL, instance, run, running, take
from tests.local_runtime import LocalRuntime


def test_without_a_log_there_is_nothing_to_tell(tmp_path: Path) -> None:
    state = new_state(instance(), MetaConfig(path=str(tmp_path / "meta.db")), LocalRuntime())
    stats = LogStats(state, CatchUps(state), Attendance())
    assert (stats.report(), stats.place(7)) == ({}, {})


def test_a_catch_up_is_shown_in_place_of_the_logs_place(tmp_path: Path) -> None:
    async def story() -> None:
        small = {"buffer_size": 64, "memunit_bytes": 1024}
        async with running(tmp_path, instance(store=small)) as destination:
            await destination.subscribe(8, ALL)
            for _ in range(30):
                assert await take(destination, 8, 4, seconds=30)
            start = destination.state.log.start
            await destination.subscribe(7, "shop", wishes=Subscription(start=start))
            store = (await destination.status())["store"]
            assert (store["full_s"] >= 0, store["held_by"] in ([], [8])) == (True, True)
            own, other = store["subscribers"]["7"], store["subscribers"]["8"]
            assert (own["detached"], own["filter"], own["failure"]) == (True, "shop", None)
            assert own["acked"] == str(start)
            assert not other.get("detached")

    run(story())


def test_one_that_is_being_removed_keeps_nobody_from_the_status(tmp_path: Path) -> None:
    """Its record is gone, and the log has it for one turn of the event loop more."""

    async def story() -> None:
        async with running(tmp_path) as destination:
            for client_id in (7, 8):
                await destination.subscribe(client_id, ALL)
            table, epoch = destination.state.subscribers, destination.state.guard.epoch
            await table.remove(7, epoch)
            assert list((await destination.status())["store"]["subscribers"]) == ["8"]

    run(story())
