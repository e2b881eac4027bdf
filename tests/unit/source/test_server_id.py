"""A replica's server id that no other replica has, as far as the server tells."""

from __future__ import annotations

from typing import Any

import pytest

from ray_canal.config import SourceConfig
from ray_canal.errors import ConnectionLost, PrivilegeMissing, SourceError
from ray_canal.source import server_id

Answers = dict[str, Any]


def asked(answers: Answers) -> set[int]:
    def ask(statement: str) -> list[dict[str, Any]]:
        answer = answers[statement]
        if isinstance(answer, Exception):
            raise answer
        rows: list[dict[str, Any]] = answer
        return rows

    return server_id.taken_by_replicas(ask)


def test_old_servers_know_the_old_statement() -> None:
    unknown = SourceError("You have an error in your SQL syntax")
    assert asked({"SHOW REPLICAS": [{"Server_Id": 5}, {"Server_Id": 6}]}) == {5, 6}
    assert asked({"SHOW REPLICAS": unknown, "SHOW SLAVE HOSTS": [{"Server_id": 7}]}) == {7}


def test_without_the_grant_none_is_known() -> None:
    assert asked({"SHOW REPLICAS": PrivilegeMissing("REPLICATION SLAVE")}) == set()


def test_a_connection_that_breaks_is_not_taken_for_an_answer() -> None:
    with pytest.raises(ConnectionLost):
        asked({"SHOW REPLICAS": ConnectionLost("gone")})


def test_a_configured_id_is_taken_without_a_question() -> None:
    config = SourceConfig(address="127.0.0.1:3306", server_id=77)
    assert server_id.choose(None, config) == 77
