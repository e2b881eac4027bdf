"""What a signal's row asks for, in Debezium's words; what cannot be understood is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ray_canal.errors import ConfigError
from ray_canal.model.snapshot_wish import SnapshotWish
from ray_canal.snapshot.signals import Signal, signal_of


def row(kind: str, data: Any = None, name: str = "s1") -> dict[str, Any]:
    return {"id": name, "type": kind, "data": None if data is None else json.dumps(data)}


def test_tables_with_conditions() -> None:
    asked = {
        "data-collections": ["shop.orders", "shop.items"], "type": "incremental",
        "additional-conditions": [{"data-collection": "shop.items", "filter": "stock > 0"}],
    }  # fmt: skip
    wishes = (SnapshotWish("shop.orders"), SnapshotWish("shop.items", "stock > 0"))
    assert signal_of(row("execute-snapshot", asked)) == Signal("s1", "start", wishes, None, "keyed")
    found = signal_of(row("execute-snapshot", {**asked, "type": "BLOCKING"}))
    assert found.mode == "consistent"


@pytest.mark.parametrize("kind", ["stop", "pause", "resume"])
def test_what_needs_no_data(kind: str) -> None:
    action = "cancel" if kind == "stop" else kind
    assert signal_of(row(f"{kind}-snapshot")) == Signal("s1", action)
    assert signal_of(row(f"{kind}-snapshot", {"client_id": 7})).client_id == 7


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (row("pause-snapshot", name=""), "needs an id"),
        (row("log"), "type 'log': expected execute-snapshot"),
        (row("execute-snapshot"), "cannot be understood"),
        (row("execute-snapshot", {"data-collections": "shop.orders"}), "no list of tables"),
        (row("execute-snapshot", {"data-collections": ["x"], "type": "quick"}), "understood"),
        (row("execute-snapshot", ["shop.orders"]), "no JSON object"),
        ({"id": "s1", "type": "execute-snapshot", "data": "{"}, "cannot be understood"),
        (
            row("execute-snapshot", {
                "data-collections": ["shop.orders"],
                "additional-conditions": [{"data-collection": "shop.order", "filter": "1"}],
            }),
            "shop.order, which is none of its tables",
        ),
    ],
)  # fmt: skip
def test_what_is_refused(given: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        signal_of(given)
