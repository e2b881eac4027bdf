"""Which sinks may be started next to those that run: Ray's key-value store is a dict here."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

import pytest

from ray_canal.errors import ConfigError, NotSubscribed
from ray_canal.sinks import actor
from ray_canal.sinks.actor import SinkRecords, seek_sink, sink_plan, start_sinks


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of sinks whose process was started."""
    values: dict[str, str] = {}
    found: list[str] = []
    monkeypatch.setattr(actor, "kv_put", lambda key, text, **_: values.__setitem__(key, text))
    monkeypatch.setattr(actor, "kv_get", lambda key, _=None: values.get(key))
    monkeypatch.setattr(actor, "kv_keys", lambda prefix, _: [k for k in values if prefix in k])
    monkeypatch.setattr(actor, "connect_ray", lambda *_, **__: None)
    monkeypatch.setattr(actor, "find_actor", lambda *_: None)
    monkeypatch.setattr(actor, "_launch", lambda name, _: found.append(name))
    return found


def deployment(destination: str) -> dict[str, Any]:
    sink = {"name": "s", "destination": destination, "type": "jsonl", "client_id": 1, "path": "p"}
    source = {"address": "h:1"}
    return {"instance": [{"destination": destination, "source": source}], "sink": [sink]}


def test_a_sink_of_another_destination_keeps_its_name(launched: list[str]) -> None:
    assert start_sinks(deployment("orders")) == ["s"]
    for call in (start_sinks, sink_plan):
        with pytest.raises(ConfigError, match="runs for the destination orders, and this one is"):
            call(deployment("users"))
    assert launched == ["s"]
    assert SinkRecords("ray_canal").get("s")["config"]["destination"] == "orders"
    assert sink_plan(deployment("orders")) == {"s": "same"}


def test_a_subscriber_that_was_removed_comes_again_to_be_moved(
    launched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    start_sinks(deployment("orders"))
    moved, new = MagicMock(), MagicMock()
    moved.seek.side_effect = (NotSubscribed("client 1 is not subscribed"), None)
    monkeypatch.setattr(actor, "subscriber", lambda *_, **__: moved)
    monkeypatch.setattr(actor, "connect", lambda *_, **__: new)
    monkeypatch.setattr(actor, "kv_delete", lambda *_: None)
    monkeypatch.setattr(actor, "make_sink", lambda *_: MagicMock(guarantee="at_least_once"))
    seek_sink("s", "earliest")
    assert [call.args for call in moved.seek.call_args_list] == [("earliest",)] * 2
    new.__enter__().subscribe.assert_called_once()
    assert launched == ["s", "s"]
