"""What a server answers when it is asked whether a table is unlocked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ray_canal.errors import ConnectionLost, SourceError
from ray_canal.snapshot import late_rows
from ray_canal.snapshot.late_rows import wait_until_unlocked
from tests.unit.snapshot.test_replica_tables import TABLE

DONE = [{"Msg_type": b"status", "Msg_text": b"OK"}]
LATE = [{"Msg_type": b"Error", "Msg_text": b"Lock wait timeout exceeded"}, *DONE]


def asked(*answers: Any, shows_late: bool = True) -> list[str]:
    left, found = list(answers), list[str]()

    def ask(sql: str) -> Any:
        if sql.startswith("SET"):
            return []
        found.append(sql)
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    wait_until_unlocked(ask, replace(TABLE, shows_late=shows_late))
    return found


def test_the_server_is_asked_until_it_had_the_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(shows_late=False) == []
    assert asked(DONE) == ["CHECK TABLE `k`.`T` FOR UPGRADE FAST QUICK"]
    monkeypatch.setattr(late_rows, "_WAIT_S", 0.0)
    by_writers = SourceError("Lock wait timeout exceeded (1205)")
    assert len(asked(LATE, by_writers, DONE)) == 3
    monkeypatch.setattr(late_rows, "_LIMIT_S", 0.0)
    with pytest.raises(SourceError, match=r"k\.T: its engine .*: Lock wait timeout"):
        asked(LATE, DONE)


def test_what_is_no_lock_is_said_at_once() -> None:
    with pytest.raises(ConnectionLost, match="gone"):
        asked(ConnectionLost("gone"))
    with pytest.raises(SourceError, match="doesn't exist"):
        asked([{"Msg_type": "Error", "Msg_text": "Table 'k.T' doesn't exist"}])
