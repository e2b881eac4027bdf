"""The demo's truth: digests see every difference, replicas apply, the files replay to it."""

from __future__ import annotations

import datetime as dt
import decimal
import json

import pytest

from ray_canal.config import load
from ray_canal.demo import CONFIG_PATH, FOLDER, binlog_files, expected
from ray_canal.demo.truth import KEYS, ShopReplica, canonical, digest
from ray_canal.offline import decode_files


def test_one_form_for_values_that_drivers_and_arrow_type_differently() -> None:
    instant = dt.datetime(2026, 10, 1, 8, 0, 0, 500_000)
    zoned = instant.replace(tzinfo=dt.timezone.utc).astimezone(dt.timezone(dt.timedelta(hours=2)))
    assert canonical(zoned) == canonical(instant) == "2026-10-01 08:00:00.500000"
    assert canonical(True) == 1
    assert canonical(["gift", "express"]) == "gift,express"
    assert canonical(decimal.Decimal("1E+2")) == "100"
    assert canonical(dt.timedelta(hours=-1, microseconds=1)) == -3_599_999_999


@pytest.mark.parametrize("change", [{"quantity": 3}, {"quantity": None}, {"line_no": 2}])
def test_a_digest_sees_a_changed_value(change: dict[str, object]) -> None:
    row = {"order_id": 1, "line_no": 1, "quantity": 2}
    assert digest("order_lines", [row], row) != digest("order_lines", [row | change], row)


def test_a_replica_counts_and_refuses_a_change_of_a_row_that_is_not_there() -> None:
    replica = ShopReplica()
    replica.apply("items", "INSERT", None, {"id": 1})
    replica.apply("items", "UPDATE", {"id": 1}, {"id": 2})
    assert replica.rows["items"] == {(2,): {"id": 2}}
    assert replica.changes["items"] == {"INSERT": 1, "UPDATE": 1, "DELETE": 0}
    with pytest.raises(KeyError):
        replica.apply("items", "DELETE", {"id": 1}, None)
    assert any(line.startswith("items.rows") for line in replica.differences(expected()))


def test_the_bundled_files_are_those_that_the_truth_is_about() -> None:
    truth = expected()
    assert {path.name: path.stat().st_size for path in binlog_files()} == truth["files"]
    assert sum(truth["files"].values()) < 1_500_000
    assert set(truth["tables"]) == set(KEYS)
    assert json.loads((FOLDER / "expected.json").read_text(encoding="utf-8")) == truth
    assert [path for instance in load(CONFIG_PATH).instance for path in instance.source.files] == [
        str(path) for path in binlog_files()
    ]


def test_the_bundled_files_replayed_give_what_the_server_held() -> None:
    replica = ShopReplica()
    for batch in decode_files(binlog_files()):
        table = batch.schema.metadata[b"canal.table"].decode()
        for row in batch.to_pylist():
            replica.apply(table, row["event_type"], row["before"], row["after"])
    assert replica.differences(expected()) == []
