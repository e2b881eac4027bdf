"""An actor that cannot open its port says why, in a line."""

from __future__ import annotations

import pytest
from ray.exceptions import ActorDiedError, GetTimeoutError, RayTaskError

from ray_canal.actors import port_actor
from ray_canal.errors import ConfigError

_TRACEBACK = """ray::ConsoleActor.__init__() (pid=599, ip=192.0.2.2)
  File "console/app.py", line 156, in start
    raise ConfigError(
ray_canal.errors.ConfigError: the console cannot listen on 127.0.0.1:1: is the port taken?
"""


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (
            ActorDiedError(RayTaskError("__init__", _TRACEBACK, ConfigError("cannot listen"))),
            "the console cannot listen on 127.0.0.1:1: is the port taken?",
        ),
        (GetTimeoutError("Get timed out"), "Get timed out"),
    ],
)
def test_what_a_constructor_raised_comes_without_its_traceback(
    error: Exception, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failed(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("ray.get", failed)
    with pytest.raises(ConfigError) as raised:
        port_actor._answer(None, "canal-console", 1.0)
    assert str(raised.value) == f"canal-console does not start: {reason}"
