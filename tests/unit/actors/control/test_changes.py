"""What a given configuration says otherwise than the one that runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ray_canal.actors.control.changes import changes, plan, refused
from ray_canal.actors.placement_table import Home, PlacementRecord
from ray_canal.config import CanalConfig, load
from ray_canal.config.changes import changed_keys
from ray_canal.errors import ConfigError


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where passwords in clear text are kept."""
    monkeypatch.setenv("HOME", str(tmp_path))


def config(meta: dict[str, Any] | None = None, **instance: Any) -> CanalConfig:
    tree = {"destination": "x", "source": {"address": "db", "password": "s3cret"}, **instance}
    return load({"instance": [tree, {**tree, "destination": "y"}], "meta": meta or {}})


def place(of: CanalConfig) -> PlacementRecord:
    return PlacementRecord.of(Home("process", 1), of.destination("x"), of.meta)


def test_keys_that_differ_are_named_and_values_are_not() -> None:
    """b11: also a password counts, and is in no text."""
    now = config(
        store={"policy": "spill"}, source={"address": "db", "password": "other", "gtid": True}
    )
    found = changes(now, {"x": place(config())})
    assert found == {"x": ["source.password", "source.gtid", "store.policy"]}
    assert "s3cret" not in str(refused(found)) + str(found)
    assert "x (source.password, source.gtid, store.policy)" in str(refused(found))


def test_a_plan_has_every_destination_once() -> None:
    """What is new, what changes (with values, secrets hidden), what stays, what is not listed."""
    now = config(store={"policy": "spill"}, source={"address": "db", "password": "other"})
    found = plan(now, {"x": place(config()), "z": place(config())})
    assert found == {
        "add": ["y"],
        "change": {
            "x": {
                "source.password": ("'**********'", "'**********'"),
                "store.policy": ("'block'", "'spill'"),
            }
        },
        "same": [],
        "unlisted": ["z"],
    }
    assert plan(config(), {"x": place(config())})["same"] == ["x"]


def test_what_does_not_differ_or_does_not_run_is_no_change() -> None:
    same = PlacementRecord.of(Home("elsewhere", 0), config().destination("x"), config().meta)
    assert changes(config(), {"x": same}) == {}
    assert changes(config(), {}) == {}
    assert changes(config(), {"z": place(config())}) == {}


@pytest.mark.parametrize(
    ("meta", "keys"),
    [
        ({"path": "elsewhere.db"}, "meta.path"),
        ({"backend": "redis", "address": "r"}, "meta.backend, meta.address"),
    ],
)
def test_cursors_elsewhere_are_refused(meta: dict[str, Any], keys: str) -> None:
    """b11: else the destination would begin as a new one."""
    with pytest.raises(ConfigError, match=f"\\({keys}\\)"):
        changes(config(meta), {"x": place(config())})
    with pytest.raises(ConfigError, match="in memory"):
        changes(
            config({"backend": "memory"}, linger_ms=1), {"x": place(config({"backend": "memory"}))}
        )


def test_another_password_of_the_cursors_server_is_a_change() -> None:
    meta = {"backend": "redis", "address": "r", "password": "one"}
    assert changes(config({**meta, "password": "two"}), {"x": place(config(meta))}) == {
        "x": ["meta.password"]
    }


def test_what_another_version_has_written_counts_as_changed() -> None:
    old = PlacementRecord("process", True, '{"destination": "x", "gone": 1}', "{}")
    assert changes(config(), {"x": old}) == {"x": ["all keys"]}


def test_sections_in_sections() -> None:
    one = config(source={"address": "db", "tls": {"mode": "required"}})
    other = config(source={"address": "db", "tls": {"mode": "disabled"}})
    keys = changed_keys(one.destination("x"), other.destination("x"))
    assert keys == ["source.tls.mode"]
    assert changed_keys(one, one) == []
