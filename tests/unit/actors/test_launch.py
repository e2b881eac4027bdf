"""What a TCP server is made with is kept by Ray's head: no password in clear text is in it."""

from __future__ import annotations

import json

from ray_canal.actors.launch import server_json
from ray_canal.config import ServerConfig
from ray_canal.config.server import UserConfig


def test_passwords_are_hashed_before_they_travel() -> None:
    user = UserConfig(username="reader", password="in-clear-2")
    text = server_json(ServerConfig(username="canal", password="in-clear-1", user=(user,)))
    assert "in-clear" not in text
    tree = json.loads(text)
    assert tree["password_hash"]
    assert tree["user"][0]["password_hash"]
    assert ServerConfig.model_validate_json(text).asks_who_comes
