"""What `ray-canal start` prints of the ports that it opens."""

from __future__ import annotations

import pytest

from ray_canal.cli import ports
from ray_canal.config import load


def test_a_warning_names_its_section(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ports, "ports", lambda _: [])
    orders = {"destination": "orders", "source": {"files": ["b"]}}
    server = {"username": "canal", "password_hash": "0" * 40}
    ports.open_ports(load({"instance": [orders], "server": server, "console": {}}))
    assert capsys.readouterr().err.startswith("warning: [console]: no password is set, so the port")
