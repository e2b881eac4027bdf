"""The screen of `ray-canal status`."""

from __future__ import annotations

from ray_canal.cli.status import overview, sink_line
from tests.unit.destination.status.test_diagnosis import place, running, stages


def test_a_line_for_each_destination_and_what_is_wrong() -> None:
    busy = running(
        lag_bytes=3_400_000_000, lag_seconds=4000.0, rows_per_second=123456.7, decoders=4,
        bytes_per_second=1e8, stages=stages(fetch=20, decode=380),
        store={"subscribers": {"7": place(bytes_behind=98_113_022)}},
    )  # fmt: skip
    away = {"state": "restarting", "error": "the actor went away"}
    found = overview({"audit": away, "orders": busy})
    assert found[:3] == [
        "destination  state       lag       to read  rows/s   slowest subscriber  purge in  "
        "bottleneck",
        "audit        restarting  -         -        -        -                   -         -",
        "orders       running     66.7 min  3.4 GB   123,457  7: 98.1 MB          -         "
        "decode 95 %",
    ]
    assert found[3] == ""
    assert found[4].startswith("audit: its process is being started again")
    assert "34 s if nothing more is written" in found[5]


def test_a_destination_that_is_well_has_a_line_alone() -> None:
    assert len(overview({"orders": running()})) == 2
    assert overview({"orders": running()})[1].split()[:3] == ["orders", "running", "0"]
    assert "disconnected" in overview({"orders": running(connected=False)})[1]


def test_a_snapshot_that_has_failed_is_shown() -> None:
    failed = {"client_id": 7, "state": "failed", "error": "shop.log: no primary key"}
    found = overview({"orders": running(snapshots=[failed, {**failed, "state": "done"}])})
    told = "orders: the snapshot of subscriber 7 has failed: shop.log: no primary key"
    assert found[2:] == ["", told]


def test_a_line_for_a_sink() -> None:
    told = {"destination": "orders", "type": "mysql", "state": "failed", "rows": 3, "commits": 2,
            "cursor": "b.000001:4", "tables_aside": ["shop.t"], "error": "no",
            "snapshot_error": "rows are missing"}  # fmt: skip
    assert sink_line("s", told) == (
        "sink s: orders -> mysql, failed, 3 rows in 2 commits, at b.000001:4; set aside: shop.t\n"
        "  no\n  rows are missing"
    )
    told = {"destination": "orders", "type": "mysql", "state": "restarting"}
    assert sink_line("s", told) == "sink s: orders -> mysql, restarting"
