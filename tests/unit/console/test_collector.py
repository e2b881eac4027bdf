"""The collector does not take more of a cluster, however many destinations there are."""

from __future__ import annotations

import time
from typing import Any

from ray_canal.console.collector import Collector
from tests.processes import wait_for
from tests.unit.console.played import Played


class Counted(Played):
    """200 destinations; `asked`: how often one of them was asked."""

    asked = 0

    def status(self, destination: str) -> dict[str, Any]:
        self.asked += 1
        return super().status(destination)


def test_many_destinations_are_asked_less_often_each() -> None:
    cluster = Counted(200)
    collector = Collector(cluster, 0.2)
    collector.start()
    try:
        wait_for(lambda: cluster.asked >= 200, 30, "all are known")
        time.sleep(1.0)
        assert cluster.asked < 300  # 1,000 more at the pause of one
        began_at = time.time()
        collector.refresh("d100")  # at once, for whoever has changed something
        known = collector.one("d100")
        assert known.answered_at is not None
        assert known.answered_at >= began_at
    finally:
        collector.stop()
