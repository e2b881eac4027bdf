"""Settings of a server, and what is said of them."""

from __future__ import annotations

from typing import Any

import pytest

from ray_canal.config import InstanceConfig
from ray_canal.source.setting_checks import CheckResult, ServerFacts, check_settings

GOOD = {
    "log_bin": "ON",
    "binlog_format": "ROW",
    "binlog_row_image": "FULL",
    "binlog_row_metadata": "FULL",
    "binlog_checksum": "CRC32",
    "gtid_mode": "ON",
    "server_id": "1",
    "log_replica_updates": "ON",
    "binlog_expire_logs_seconds": "2592000",
}


def checked(
    variables: dict[str, str] | None = None,
    *,
    version: str = "9.7.0",
    source: dict[str, Any] | None = None,
    time_zone: str = "UTC",
    **facts: Any,
) -> dict[str, CheckResult]:
    config = InstanceConfig.model_validate(
        {
            "destination": "d",
            "source": {"address": "db:3306", **(source or {})},
            "time_zone": time_zone,
        }
    )
    merged = {"retention_s": 2592000.0, **facts}
    known = {**GOOD, **(variables or {})}
    known = {name: value for name, value in known.items() if value != "unknown"}
    results = check_settings(config, ServerFacts(version, known, **merged))
    return {each.name: each for each in results}


def test_a_good_server() -> None:
    results = checked(source={"standby": ["other:3306"], "gtid": True, "server_id": 77})
    assert all(result.ok and not result.fix for result in results.values()), results
    assert {"gtid_mode", "binlog retention", "source.server_id", "time_zone"} <= results.keys()
    assert "log_replica_updates" in results
    assert "log_replica_updates" not in checked()


@pytest.mark.parametrize(
    ("name", "value", "fix", "advisory"),
    [
        ("log_bin", "OFF", "--log-bin", False),
        ("binlog_format", "MIXED", "SET PERSIST binlog_format = 'ROW'", True),
        ("binlog_format", "STATEMENT", "every change is written as a statement", True),
        ("binlog_row_image", "MINIMAL", "SET PERSIST binlog_row_image = 'FULL'", True),
        ("binlog_row_metadata", "MINIMAL", "SET PERSIST binlog_row_metadata = 'FULL'", True),
        ("binlog_checksum", "NONE", "SET PERSIST binlog_checksum = 'CRC32'", True),
        ("gtid_mode", "OFF", "enforce_gtid_consistency", True),
        ("server_id", "0", "SET PERSIST server_id = 1", False),
        ("log_replica_updates", "OFF", "log_replica_updates = ON", True),
    ],
)
def test_a_wrong_setting(name: str, value: str, fix: str, advisory: bool) -> None:
    found = checked({name: value}, source={"standby": ["other:3306"]})[name]
    assert (found.ok, found.detail, found.advisory) == (False, value, advisory)
    assert fix in found.fix


def test_older_servers_and_mariadb() -> None:
    image = checked({"binlog_row_image": "MINIMAL"}, version="5.6.51")["binlog_row_image"]
    assert "SET GLOBAL binlog_row_image = 'FULL', and binlog_row_image = FULL in" in image.fix
    bare = checked({"binlog_row_metadata": "unknown"}, version="5.6.51")["binlog_row_metadata"]
    assert "not known" in bare.detail
    mariadb = checked({"gtid_mode": "unknown"}, version="10.11.6-MariaDB")
    assert "gtid_mode" not in mariadb
    assert "SET GLOBAL" in checked({"server_id": "0"}, version="10.11.6-MariaDB")["server_id"].fix


def test_a_galera_node_that_does_not_log_what_others_write() -> None:
    provider = "/usr/lib/galera/libgalera_smm.so"
    node = {"wsrep_on": "ON", "wsrep_provider": provider, "log_replica_updates": "unknown"}
    for value, ok in (("ON", True), ("OFF", False)):
        found = checked({**node, "log_slave_updates": value}, version="10.11.6-MariaDB")
        assert (found["log_slave_updates"].ok, found["log_slave_updates"].advisory) == (ok, False)


def test_gtids_that_the_configuration_needs() -> None:
    assert not checked({"gtid_mode": "OFF"}, source={"gtid": True})["gtid_mode"].advisory
    wanted = {"start": "gtid", "gtid_set": "3e11fa47-71ca-11e1-9e33-c80aa9429562:1"}
    assert not checked({"gtid_mode": "OFF_PERMISSIVE"}, source=wanted)["gtid_mode"].advisory


def test_retention() -> None:
    assert "24 h" in checked(retention_s=86400)["binlog retention"].detail
    short = checked(retention_s=3600)["binlog retention"]
    assert (short.ok, short.advisory) == (False, True)
    assert "SET PERSIST binlog_expire_logs_seconds = 604800" in short.fix
    old = checked(
        {"binlog_expire_logs_seconds": "unknown"}, version="5.6.51", retention_s=3600
    )["binlog retention"]
    assert "expire_logs_days = 7" in old.fix
    assert checked(retention_s=0)["binlog retention"].ok


def test_server_ids() -> None:
    def of(ours: int) -> CheckResult:
        return checked(source={"server_id": ours}, taken_ids=frozenset({7}))["source.server_id"]

    assert of(0).ok
    assert of(8).ok
    assert (of(7).ok, of(7).advisory) == (False, True)  # it may be ours
    assert (of(1).ok, of(1).advisory) == (False, False)
    assert "source.server_id = 0" in of(1).fix


def test_time_zone_and_clock() -> None:
    assert checked(time_zone="Asia/Shanghai", zone_s=8 * 3600)["time_zone"].ok
    other = checked(zone_s=-(5 * 3600 + 1800))["time_zone"]
    assert (other.ok, other.advisory) == (False, True)
    assert "-05:30" in other.detail
    assert checked(ahead_s=1.0)["clock"].ok
    assert "30.0 s behind" in checked(ahead_s=-30.0)["clock"].detail


def test_databases_that_are_not_logged() -> None:
    assert "databases in the binlog" not in checked()
    assert checked(logged_only="shop")["databases in the binlog"].detail == "only shop"
    assert checked(not_logged="shop")["databases in the binlog"].detail == "not shop"
