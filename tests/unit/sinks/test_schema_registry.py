"""Numbers of schemas, from a registry over HTTP."""

from __future__ import annotations

import pytest

from ray_canal.config.queue import RegistryConfig
from ray_canal.sinks.port import SinkError
from ray_canal.sinks.schema_registry import RegistryClient
from tests.schema_registry import Registry

SCHEMA = {"type": "record", "name": "a.b", "fields": []}


def test_a_schema_is_registered_once() -> None:
    with Registry() as server:
        known = RegistryClient(RegistryConfig(url=server.url, username="u", password="env:HOME"))
        assert known("a b/c", SCHEMA) == known("a b/c", SCHEMA) == known("other", SCHEMA) == 1000
        assert {name: len(each) for name, each in server.subjects.items()} == {
            "a b/c": 1, "other": 1,
        }  # fmt: skip
        assert all(login.startswith("Basic ") for login in server.logins)


@pytest.mark.parametrize(
    ("code", "kind"), [(409, "schema"), (422, "schema"), (401, "fatal"), (503, "retry")]
)
def test_what_it_refuses_is_told(code: int, kind: str) -> None:
    with Registry() as server:
        server.refusals = [code]
        known = RegistryClient(RegistryConfig(url=server.url))
        with pytest.raises(SinkError, match=f"subject: {code}") as caught:
            known("subject", SCHEMA)
        assert caught.value.kind == kind
        assert known("subject", SCHEMA) == 1000


def test_one_that_is_away_is_asked_again() -> None:
    with Registry() as server:
        url = server.url
    known = RegistryClient(RegistryConfig(url=url))
    with pytest.raises(SinkError, match="schema registry at") as caught:
        known("subject", SCHEMA)
    assert caught.value.kind == "retry"
