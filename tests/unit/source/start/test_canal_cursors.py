"""Canal's cursors get the identity of the server that they are of, or are refused."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace

import pytest

from ray_canal.config import SourceConfig
from ray_canal.errors import ConfigError, ConnectionLost
from ray_canal.model.position import EntryPosition, LogPosition, SourceIdentity
from ray_canal.source.start import canal_cursors
from ray_canal.source.start.canal_cursors import tied
from ray_canal.source.start.search import Search
from tests.unit.source.start.test_decision import SECOND, ServersLog, of_transaction, source

HERE, STANDBY = "127.0.0.1:3306", "127.0.0.1:3307"
UUIDS = {HERE: "server-a", STANDBY: "server-b"}
PLACE, _ = of_transaction(SECOND, 5)
SECOND_S = Search(ServersLog()).surroundings(SECOND, PLACE.position).at_s
"""When the event at that place was written."""


@pytest.fixture(autouse=True)
def servers(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Servers by address that have the demo's log; one that is taken out does not answer."""
    there = dict(UUIDS)

    def uuid_at(config: SourceConfig) -> str:
        if config.address not in there:
            raise ConnectionLost(f"MySQL at {config.address}: refused")
        return there[config.address]

    @contextlib.contextmanager
    def log_of(config: SourceConfig) -> Iterator[ServersLog]:
        yield ServersLog(server=SourceIdentity(config.address, there[config.address]))

    monkeypatch.setattr(canal_cursors, "_uuid_at", uuid_at)
    monkeypatch.setattr(canal_cursors, "_log_of", log_of)
    return there


def canals(address: str, **changed: object) -> LogPosition:
    """As Canal keeps one: a file's name, an offset, the event's time."""
    kept = EntryPosition(SECOND, PLACE.position, timestamp=SECOND_S)
    return LogPosition(SourceIdentity(address), replace(kept, **changed))  # type: ignore[arg-type]


BOTH = source(address=HERE, standby=[STANDBY])


@pytest.mark.parametrize("address", [HERE, STANDBY, "localhost:3307"])
def test_a_cursor_is_of_the_server_at_its_address(address: str) -> None:
    [found] = tied(BOTH, [canals(address)])
    its = HERE if address == HERE else STANDBY
    assert found.identity == SourceIdentity(its, UUIDS[its])
    assert found.position == replace(PLACE, timestamp=SECOND_S)
    assert found.position.gtid == PLACE.gtid != ""


def test_a_cursor_of_another_server_is_refused() -> None:
    for address, named in (("10.0.0.9:3306", "10.0.0.9:3306"), ("", "an unnamed server")):
        with pytest.raises(ConfigError, match=f"the cursors are of {named}.*--server-uuid"):
            tied(BOTH, [canals(address)])


def test_a_named_server_counts_and_not_the_address() -> None:
    [found] = tied(BOTH, [canals("10.0.0.9:3306")], "server-b")
    assert found.identity == SourceIdentity(STANDBY, "server-b")
    [moved] = tied(BOTH, [canals("10.0.0.9:3306")], "server-c")
    assert moved.identity == SourceIdentity("10.0.0.9:3306", "server-c"), "moved at the start"


def test_where_its_server_may_be_one_that_does_not_answer_nobody_guesses(
    servers: dict[str, str],
) -> None:
    del servers[STANDBY]
    assert tied(BOTH, [canals(HERE)])[0].identity.server_uuid == "server-a"
    with pytest.raises(ConfigError, match=f"{STANDBY}: refused; --unchecked"):
        tied(BOTH, [canals("10.0.0.9:3306")])


def test_a_place_that_is_not_in_the_log_is_refused() -> None:
    misfits = ({"position": PLACE.position + 1}, {"journal_name": "mysql-bin.000077"},
               {"timestamp": SECOND_S + 1}, {"timestamp": 0})  # fmt: skip
    for changed in misfits:
        with pytest.raises(ConfigError, match=f"is not in the log of {HERE}"):
            tied(BOTH, [canals(HERE, **changed)])


def test_files_have_no_server_to_ask() -> None:
    given = [canals("10.0.0.9:3306")]
    assert tied(source(files=["/tmp/bin.000001"], address=""), given) == given
