"""What a server says of its load, by answers as servers of several kinds give them."""

from __future__ import annotations

from typing import Any

import pytest

from ray_canal.config import SourceConfig
from ray_canal.errors import ConnectionLost, PrivilegeMissing, SourceError
from ray_canal.snapshot import source_load
from ray_canal.snapshot.governor import LoadReading
from ray_canal.snapshot.source_load import SourceLoad

CONFIG = SourceConfig.model_validate({"address": "db:3306"})
Answers = dict[str, list[dict[str, Any]] | SourceError]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Answers:
    """Answers by the first words of a statement; `made` and `closed` count connections."""
    answers: Answers = {"made": [], "closed": []}

    def query(_: object, __: SourceConfig, sql: str) -> list[dict[str, Any]]:
        found = next(answers[each] for each in answers if sql.startswith(each))
        if isinstance(found, SourceError):
            raise found
        return found

    def noted(name: str) -> Any:
        return lambda *_: answers[name].append({}) or object()  # type: ignore[union-attr]

    monkeypatch.setattr(source_load, "query", query)
    monkeypatch.setattr(source_load, "connect", noted("made"))
    monkeypatch.setattr(source_load, "close", noted("closed"))
    answers["SHOW GLOBAL STATUS LIKE 'Threads_running'"] = [{"Value": "12"}]
    answers["SELECT `COUNT`"] = [{"value": 3400}]
    answers["SHOW REPLICA STATUS"] = []
    return answers


def test_a_server_that_is_no_replica(server: Answers) -> None:
    assert SourceLoad(CONFIG).read() == LoadReading(12, 3400, None)


def test_a_replica_is_as_late_as_its_latest_channel(server: Answers) -> None:
    lags = [{"Seconds_Behind_Source": lag} for lag in (4, None, 7)]
    server["SHOW REPLICA STATUS"] = list[dict[str, Any]](lags)
    assert SourceLoad(CONFIG).read().replica_lag_s == 7.0
    server["SHOW REPLICA STATUS"] = [{"Seconds_Behind_Source": None}]
    assert SourceLoad(CONFIG).read().replica_lag_s is None


def test_an_older_server_has_older_words(server: Answers) -> None:
    server["SHOW REPLICA STATUS"] = SourceError("syntax")
    server["SHOW SLAVE STATUS"] = [{"Seconds_Behind_Master": 2}]
    assert SourceLoad(CONFIG).read().replica_lag_s == 2.0


def test_what_the_account_may_not_see_is_not_known(server: Answers) -> None:
    server["SELECT `COUNT`"] = PrivilegeMissing("PROCESS")
    server["SHOW REPLICA STATUS"] = server["SHOW SLAVE STATUS"] = PrivilegeMissing("CLIENT")
    assert SourceLoad(CONFIG).read() == LoadReading(12, None, None)


def test_one_connection_is_used_until_it_fails(server: Answers) -> None:
    load = SourceLoad(CONFIG)
    load.read()
    load.read()
    assert (len(server["made"]), len(server["closed"])) == (1, 0)  # type: ignore[arg-type]
    running = "SHOW GLOBAL STATUS LIKE 'Threads_running'"
    server[running], kept = ConnectionLost("gone"), server[running]
    with pytest.raises(ConnectionLost):
        load.read()
    server[running] = kept
    assert load.read().threads_running == 12
    assert (len(server["made"]), len(server["closed"])) == (2, 1)  # type: ignore[arg-type]
