"""What is in quarantine is shown, decoded with a schema, and removed when somebody has it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ray_canal.config import CanalConfig, load
from ray_canal.console import quarantine as console_quarantine
from ray_canal.console.quarantine import decoded, remove_chunks, shown_chunks, told_keys
from ray_canal.dead_letters import DeadLetters
from ray_canal.demo import binlog_files
from ray_canal.errors import ConfigError, CorruptEvent, TableMetaMismatch
from ray_canal.meta.open import open_schema_store
from ray_canal.model.position import EntryPosition
from ray_canal.offline import decode_files
from tests.unit.binlog.golden import needs_golden
from tests.unit.console.played import Played
from tests.unit.console.test_app import USERS, Site
from tests.unit.test_redrive import BEHIND_THE_FIRST_TABLE, BINLOG, SQL, run

pytestmark = needs_golden
NAME = "d000"


@pytest.fixture
def deployment(tmp_path: Path) -> CanalConfig:
    """Of a destination that holds the changes of one table."""
    source = {"files": [str(BINLOG)]}
    config = load({"meta": {"path": str(tmp_path / "meta.db")},
                   "instance": [{"destination": NAME, "source": source}]})  # fmt: skip
    store = open_schema_store(config.meta, "")
    run("quarantine", BEHIND_THE_FIRST_TABLE, store, destination=NAME)
    store.close()
    return config


@pytest.fixture
def site(deployment: CanalConfig) -> Iterator[Site]:
    cluster = Played(1)
    cluster.deployment = lambda destination: deployment  # type: ignore[attr-defined]
    site = Site(cluster, user=USERS, host="127.0.0.1")
    yield site
    site.console.stop()


def test_what_is_decoded_and_removed_is_gone(deployment: CanalConfig) -> None:
    held = shown_chunks(deployment, NAME)
    assert {table for chunk in held for table in chunk["tables"]} == {"g_dml.t_dml"}
    with pytest.raises(TableMetaMismatch):
        decoded(deployment, NAME, "", [])
    first = decoded(deployment, NAME, SQL, ["*.*.id"])
    assert first.keys
    changes = [json.loads(line) for line in first.lines]
    assert {each["table"] for each in changes} == {"t_dml"}
    assert {each["after"]["id"] for each in changes if each["after"]} == {"•••"}
    assert shown_chunks(deployment, NAME) == held  # nothing is gone until somebody says so
    assert remove_chunks(deployment, NAME, told_keys(first.keys)) == len(held)
    assert remove_chunks(deployment, NAME, told_keys(first.keys)) == 0
    assert shown_chunks(deployment, NAME) == []


@pytest.mark.parametrize("keys", ["", "{", "[1]", '[["a", "b"]]', '[["a", "b", "c"]]'])
def test_keys_that_are_none_are_refused(deployment: CanalConfig, keys: str) -> None:
    with pytest.raises(ConfigError, match="decode them again"):
        remove_chunks(deployment, NAME, keys)


def test_by_rest(site: Site) -> None:
    where = f"/api/v1/destinations/{NAME}/quarantine"
    json_body = {"content_type": "application/json"}
    assert len(site.json(where, "vera")) > 0
    sql = json.dumps({"schema_sql": SQL}).encode()
    assert site.ask(f"{where}/decode", "vera", "POST", sql, **json_body)[0] == 403
    assert site.send(f"{where}/decode", {"schema_sql": ""}, "otto") == 409
    found = site.json(f"{where}/decode", "otto", method="POST", body=sql, **json_body)
    assert found["changes"][0]["table"] == "t_dml"
    assert site.send(f"{where}/release", {"keys": found["keys"]}, "otto") == 403
    assert site.send(f"{where}/release", {"keys": found["keys"]}, "ada") == 200
    assert site.json(where, "vera") == []


def test_dead_letters_are_among_it(deployment: CanalConfig, site: Site) -> None:
    """Messages that a consumer gave up are shown, given back, and removed like the others."""
    remove_chunks(deployment, NAME, told_keys(decoded(deployment, NAME, SQL, []).keys))
    batches = list(decode_files(binlog_files()[:1]))[:1]
    start = EntryPosition("bin.000001", 100)
    with DeadLetters(deployment, NAME, 7) as letters:
        letters.keep(SimpleNamespace(id=1, start=start, batches=batches), "no such customer")
    cookie = site.form("/login", {"username": "ada", "password": "all"})[2]["set-cookie"]
    token = {"cookie": cookie.partition(";")[0]}
    where = f"/destinations/{NAME}/quarantine"
    body = site.ask(where, **token)[1]
    assert "given up by client 7" in body
    form = {"csrf": value_of("csrf", body), "action": "decode", "schema_sql": ""}
    status, body, _ = site.form(where, form, **token)
    assert status == 200
    keys = json.dumps(json.loads(value_of("keys", body).replace("&#34;", '"')))
    assert site.form(where, {**form, "action": "release", "keys": keys}, **token)[0] == 303
    assert shown_chunks(deployment, NAME) == []


def test_a_letter_that_stays_undecodable_keeps_no_other(
    deployment: CanalConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def one_and_a_failure(*given: Any) -> Iterator[Any]:
        yield ("s", "bin.000001", 4), list(decode_files(binlog_files()[:1]))[:1]
        raise CorruptEvent("the event at 900")

    monkeypatch.setattr(console_quarantine, "decode_held", one_and_a_failure)
    found = decoded(deployment, NAME, "", [])
    assert found.keys == [("s", "bin.000001", 4)]
    assert "the event at 900" in found.failure


def test_by_the_page(site: Site) -> None:
    where = f"/destinations/{NAME}/quarantine"
    cookie = site.form("/login", {"username": "ada", "password": "all"})[2]["set-cookie"]
    token = {"cookie": cookie.partition(";")[0]}
    body = site.ask(where, **token)[1]
    csrf = value_of("csrf", body)
    status, body, _ = site.form(where, {"action": "decode", "csrf": csrf}, **token)
    assert status == 400
    assert "g_dml.t_dml" in body
    given = {"action": "decode", "csrf": csrf, "schema_sql": SQL}
    status, body, _ = site.form(where, given, **token)
    assert status == 200
    assert "Remove these" in body
    status, text, headers = site.form(where, {**given, "action": "download"}, **token)
    assert headers["content-disposition"].startswith("attachment")
    assert all(json.loads(line)["table"] == "t_dml" for line in text.splitlines())
    keys = json.dumps(json.loads(value_of("keys", body).replace("&#34;", '"')))
    released: dict[str, Any] = {"action": "release", "csrf": csrf, "keys": keys}
    assert site.form(where, released, **token)[0] == 303
    assert "Nothing is in quarantine" in site.ask(where, **token)[1]


def value_of(name: str, body: str) -> str:
    found = re.search(rf'name="{name}" value="([^"]*)"', body)
    assert found is not None
    return found[1]
