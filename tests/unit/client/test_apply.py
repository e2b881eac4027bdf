"""A plan changes nothing; applying it starts, and removes only what is asked for."""

from __future__ import annotations

from typing import Any

import pytest

from ray_canal.client import apply as applying

FOUND = {"add": [], "same": ["a"], "unlisted": ["old"], "change": {}}
CONFIG: dict[str, Any] = {"instance": [{"destination": "a", "source": {"files": ["x"]}}]}


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was done to the cluster; nothing of it is there."""
    found: list[Any] = []
    monkeypatch.setattr(applying, "connect_ray", lambda *_, **__: None)
    monkeypatch.setattr(applying, "controller", lambda *_: None)
    monkeypatch.setattr(applying, "ask_controller", lambda *_, **__: dict(FOUND))
    monkeypatch.setattr(applying, "start", lambda canal: found.append("start"))
    monkeypatch.setattr(applying, "stop", lambda name, namespace: found.append(("stop", name)))
    monkeypatch.setattr(applying, "stop_serving", lambda namespace: found.append("close"))
    return found


@pytest.mark.parametrize(
    ("wanted", "served", "keys", "how"),
    [
        (False, False, [], ""),
        (False, True, [], "unlisted"),
        (True, False, [], "open"),
        (True, True, [], "same"),
        (True, True, ["port"], "reopen"),
    ],
)
def test_what_becomes_of_the_port(
    wanted: bool, served: bool, keys: list[str], how: str,
    done: list[Any], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(applying.registry, "find_servers", lambda _: [object()] * served)
    monkeypatch.setattr(applying, "changed_server_keys", lambda *_: set(keys))
    found = applying.plan({**CONFIG, "server": {}} if wanted else CONFIG)
    assert (found["server"], found["server_keys"], done) == (how, keys, [])


def test_what_is_not_listed_stays_unless_it_is_to_go(
    done: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(applying.registry, "find_servers", lambda _: [object()])
    applying.apply(CONFIG)
    assert done == ["start"]
    done.clear()
    applying.apply(CONFIG, remove=True)
    assert done == ["start", ("stop", "old"), "close"]
