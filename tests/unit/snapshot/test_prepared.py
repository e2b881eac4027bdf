"""XA transactions that a server lists as prepared, and one that lists none."""

from __future__ import annotations

from typing import Any

import pytest

from ray_canal.config import SourceConfig
from ray_canal.errors import ConnectionLost, PrivilegeMissing, SourceError
from ray_canal.snapshot import commits
from ray_canal.snapshot.prepared import PreparedTransactions

SOURCE = SourceConfig(address="db:3306", username="canal")


class Server:
    """Answers with these lists of names, one after the other, then with the last one again."""

    def __init__(self, *lists: str, counted: int = 0) -> None:
        self.lists = list(lists)
        self.counted = counted

    def __call__(self, sql: str) -> list[dict[str, Any]]:
        if sql.startswith("SHOW"):
            names = ("Com_xa_commit", "Com_xa_recover")
            counts = (self.counted, 7)
            return [
                {"Variable_name": name, "Value": str(count)}
                for name, count in zip(names, counts, strict=True)
            ]
        if not self.lists:
            raise SourceError("XAER_RMERR (1401)")
        now = self.lists.pop(0) if len(self.lists) > 1 else self.lists[0]
        return [{"formatID": 1, "data": name} for name in now]


def test_what_is_prepared_later_is_not_waited_for() -> None:
    server = Server("", "ab", "bc", "cd", "cd")
    PreparedTransactions(SOURCE, server, is_mariadb=False).wait()
    assert server.lists == ["cd"]


def test_what_stays_prepared_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "LIMIT_S", 0.0)
    waiting = PreparedTransactions(SOURCE, Server("", "ab", "b"), is_mariadb=True)
    with pytest.raises(ConnectionLost, match="2 XA transactions have been prepared"):
        waiting.wait()


def test_who_may_not_look_is_refused_where_there_have_been_some() -> None:
    seen = PreparedTransactions(SOURCE, Server(), is_mariadb=False)
    assert not seen.may_look
    seen.wait()
    with pytest.raises(PrivilegeMissing, match="GRANT XA_RECOVER_ADMIN"):
        PreparedTransactions(SOURCE, Server(counted=1), is_mariadb=False)
