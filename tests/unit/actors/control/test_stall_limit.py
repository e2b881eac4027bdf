"""The limit is kept for the controller's next life, by namespace."""

from __future__ import annotations

import pytest

from ray_canal.actors.control import stall_limit
from ray_canal.config.deployment import RayConfig


def test_it_is_kept_by_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: dict[str, str] = {}
    monkeypatch.setattr(stall_limit, "kv_get", kept.get)
    monkeypatch.setattr(stall_limit, "kv_put", kept.__setitem__)
    assert stall_limit.stall_limit("one") == RayConfig().stall_s == 15.0
    stall_limit.keep_stall_limit("one", 2.5)
    assert stall_limit.stall_limit("one") == 2.5
    assert stall_limit.stall_limit("two") == 15.0
