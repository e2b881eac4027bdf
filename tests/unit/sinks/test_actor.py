"""Which sinks may be started next to those that run: Ray's key-value store is a dict here."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

import pytest

from ray_canal.errors import ConfigError, NotSubscribed
from ray_canal.sinks import actor, records
from ray_canal.sinks.actor import apply_sinks, seek_sink, sink_plan, start_sinks
from ray_canal.sinks.records import SinkRecords


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of sinks whose process was started."""
    values: dict[str, str] = {}
    found: list[str] = []
    monkeypatch.setattr(records, "kv_put", lambda key, text, **_: values.__setitem__(key, text))
    monkeypatch.setattr(records, "kv_get", lambda key, _=None: values.get(key))
    monkeypatch.setattr(
        records, "kv_all", lambda prefix, _: {k: v for k, v in values.items() if prefix in k}
    )
    monkeypatch.setattr(records, "kv_delete", lambda key, _=None: values.pop(key, None))
    monkeypatch.setattr(actor, "connect_ray", lambda *_, **__: None)
    monkeypatch.setattr(actor, "find_actor", lambda *_: None)
    monkeypatch.setattr(actor, "_launch", lambda name, _: found.append(name))
    return found


def deployment(destination: str, **client_ids: int) -> dict[str, Any]:
    """`client_ids`: those of its sinks, by name."""
    sinks = [
        {"name": name, "destination": destination, "type": "jsonl", "client_id": client_id,
         "path": name} for name, client_id in (client_ids or {"s": 1}).items()
    ]  # fmt: skip
    source = {"address": "h:1"}
    return {"instance": [{"destination": destination, "source": source}], "sink": sinks}


def test_a_sink_of_another_destination_keeps_its_name(launched: list[str]) -> None:
    assert start_sinks(deployment("orders")) == ["s"]
    for call in (start_sinks, sink_plan):
        with pytest.raises(ConfigError, match="runs for the destination orders, and this one is"):
            call(deployment("users"))
    assert launched == ["s"]
    assert SinkRecords("ray_canal").get("s")["config"]["destination"] == "orders"
    assert sink_plan(deployment("orders")) == {"s": "same"}


def test_a_sink_with_another_name_begins_when_the_one_before_it_has_ended(
    launched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It began before that, and what one had committed and not acked was written by both."""
    monkeypatch.setattr(actor, "find_actor", lambda name, _: name)
    monkeypatch.setattr(actor, "_status", lambda _: {"state": "running"})
    monkeypatch.setattr(actor, "_end", lambda name, *_: launched.append(f"end of {name}"))
    start_sinks(deployment("orders", s=1, t=2))
    new = deployment("orders", u=1, t=2)
    told = "the sink s, which runs, has the client_id 1, too"
    with pytest.raises(ConfigError, match=told):
        start_sinks(new)
    with pytest.raises(ConfigError, match=told):
        apply_sinks(new, remove=False)
    assert sink_plan(new) == {"u": "start", "t": "same", "s": "unlisted"}
    apply_sinks(new, remove=True)
    assert launched == ["s", "t", "end of s", "u"]


def test_sinks_that_swap_client_ids_have_both_ended_before_either_begins(
    launched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actor, "find_actor", lambda name, _: name)
    monkeypatch.setattr(actor, "_end", lambda name, *_: launched.append(f"end of {name}"))
    start_sinks(deployment("orders", s=1, t=2))
    launched.clear()
    start_sinks(deployment("orders", s=2, t=1))
    assert launched == ["end of s", "end of t", "s", "t"]


def test_a_subscriber_that_was_removed_comes_again_to_be_moved(
    launched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    start_sinks(deployment("orders"))
    moved, new = MagicMock(), MagicMock()
    moved.seek.side_effect = (NotSubscribed("client 1 is not subscribed"), None)
    monkeypatch.setattr(actor, "subscriber", lambda *_, **__: moved)
    monkeypatch.setattr(actor, "connect", lambda *_, **__: new)
    monkeypatch.setattr(actor, "make_sink", lambda *_: MagicMock(guarantee="at_least_once"))
    seek_sink("s", "earliest")
    assert [call.args for call in moved.seek.call_args_list] == [("earliest",)] * 2
    new.__enter__().subscribe.assert_called_once()
    assert launched == ["s", "s"]
