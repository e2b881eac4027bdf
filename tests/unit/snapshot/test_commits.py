"""What is waited for until all that a log has shows: transactions that InnoDB has prepared."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import pytest

from ray_canal.config import SourceConfig
from ray_canal.errors import ConnectionLost, PrivilegeMissing, ServerSettingRefused
from ray_canal.snapshot import commits
from ray_canal.snapshot.commits import PendingCommits, shows_what_is_executed
from ray_canal.source.catalog import Catalog

CONFIG = SourceConfig(address="127.0.0.1:1", username="canal")


class Variables:
    """A server of these variables."""

    def __init__(self, version: str = "5.6.51-log", **variables: str) -> None:
        self.version = version
        self._variables = variables

    def variable(self, name: str) -> str | None:
        return self._variables.get(name)


def catalog(version: str = "5.6.51-log", **variables: str) -> Catalog:
    return cast(Catalog, Variables(version, **variables))


def status(*prepared: int) -> bytes:
    """What InnoDB says, with one transaction that is not prepared."""
    states = ["---TRANSACTION 9, ACTIVE 3 sec\nLOCK WAIT", "---TRANSACTION 8, not started"]
    states += [f"---TRANSACTION {number}, ACTIVE (PREPARED) 0 sec" for number in prepared]
    return "\n".join(["LIST OF TRANSACTIONS FOR EACH SESSION:", *states, "END"]).encode()


def asked(answers: Iterable[bytes]) -> tuple[PendingCommits, list[str]]:
    """(pending, the statements that it asks)."""
    left, found = iter(answers), list[str]()

    def ask(sql: str) -> list[dict[str, Any]]:
        found.append(sql)
        return [{"Type": "InnoDB", "Name": "", "Status": next(left)}]

    return PendingCommits(CONFIG, catalog(), ask), found


def test_what_is_prepared_is_waited_for_and_what_comes_later_is_not() -> None:
    pending, found = asked([status(11, 12), status(12, 13), status(13, 14), status()])
    pending.wait()
    assert found == ["SHOW ENGINE INNODB STATUS"] * 3


def test_nothing_prepared_is_nothing_to_wait_for() -> None:
    pending, found = asked([status(), status(11)])
    pending.wait()
    assert len(found) == 1


def test_a_list_that_is_cut_says_nothing() -> None:
    cut = b"LIST OF TRANSACTIONS FOR EACH SESSION:\n... truncated...\n---TRANSACTION 8, not started"
    pending, found = asked([cut, status(11), cut, status(12), status()])
    pending.wait()
    assert len(found) == 5


def test_what_stays_prepared_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "LIMIT_S", 0.0)
    pending, _ = asked([status(11, 7)] * 9)
    with pytest.raises(ConnectionLost, match=r"prepared \(11, 7\).*XA RECOVER"):
        pending.wait()


def test_a_missing_grant_is_named() -> None:
    def ask(sql: str) -> list[dict[str, Any]]:
        raise PrivilegeMissing("MySQL at 127.0.0.1:1: Access denied (1227)")

    with pytest.raises(PrivilegeMissing, match=r"GRANT PROCESS ON \*\.\* TO 'canal'"):
        PendingCommits(CONFIG, catalog(), ask).wait()


@pytest.mark.parametrize(
    ("name", "value"), [("innodb_support_xa", "OFF"), ("innodb_status_output_locks", "ON")]
)
def test_settings_that_hide_transactions_are_refused(name: str, value: str) -> None:
    with pytest.raises(ServerSettingRefused, match=f"SET GLOBAL {name} = "):
        PendingCommits(CONFIG, catalog(**{name: value}), lambda sql: [])


def test_who_shows_what_is_executed() -> None:
    assert not shows_what_is_executed(catalog(gtid_mode="ON"))
    assert not shows_what_is_executed(catalog("8.0.36", gtid_mode="OFF"))
    assert shows_what_is_executed(catalog("5.7.44-log", gtid_mode="ON"))
    assert shows_what_is_executed(catalog("9.7.0", gtid_mode="ON"))
