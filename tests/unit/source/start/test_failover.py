"""Which of several servers is read."""

from __future__ import annotations

import pytest

from ray_canal.config import SourceConfig
from ray_canal.errors import (
    CanalError,
    ConnectionLost,
    PositionPurged,
    SourceError,
    TransactionsMissing,
)
from ray_canal.model.position import EntryPosition, LogPosition, SourceIdentity
from ray_canal.source.start.failover import choose

A, B, C = "a:3306", "b:3306", "c:3306"


def cursor(server: str) -> LogPosition:
    return LogPosition(SourceIdentity("", server), EntryPosition("bin.000001"))


def chosen(
    opens: dict[str, CanalError | None],
    *,
    away: str = "",
    own: str = "",
    on_purged: str = "fail",
    standby: tuple[str, ...] = (B, C),
    back: str = "",
) -> tuple[str, list[str]]:
    """(what was opened with which on_purged, what was tried). A server's uuid is its address.
    `back`: of those that are away, who is there behind the second pause."""
    source = SourceConfig.model_validate(
        {"address": A, "standby": standby, "on_purged": on_purged}
    )
    tried: list[str] = []
    pauses: list[float] = []

    def probe(config: SourceConfig) -> str:
        if config.address in away.split() and (config.address != back or len(pauses) < 2):
            raise ConnectionLost(f"{config.address} is away")
        return config.address

    def open_at(config: SourceConfig) -> str:
        tried.append(config.address)
        error = opens.get(config.address)
        if error is not None and not (
            isinstance(error, PositionPurged) and config.on_purged != "fail"
        ):
            raise error
        return f"{config.address} {config.on_purged}"

    cursors = [cursor(own)] if own else []
    return choose(source, cursors, probe, open_at, pause=pauses.append), tried


def test_the_configured_order() -> None:
    assert chosen({}) == (f"{A} fail", [A])
    assert chosen({}, away=A) == (f"{B} fail", [B])
    assert chosen({}, away=f"{A} {B}") == (f"{C} fail", [C])


def test_the_cursors_own_server_comes_first() -> None:
    assert chosen({}, own=B) == (f"{B} fail", [B])
    assert chosen({}, own=B, away=B) == (f"{A} fail", [A])
    assert chosen({}, own="gone") == (f"{A} fail", [A])


def test_a_server_that_lacks_transactions_is_passed_over() -> None:
    assert chosen({B: TransactionsMissing("1-5")}, away=A)[1] == [B, C]
    with pytest.raises(TransactionsMissing, match="1-5"):
        chosen({B: TransactionsMissing("1-5"), C: TransactionsMissing("9")}, away=A)


def test_what_answered_is_told_rather_than_what_is_away() -> None:
    with pytest.raises(ConnectionLost, match=A):
        chosen({}, away=f"{A} {B} {C}")
    with pytest.raises(SourceError, match="no rows"):
        chosen({C: SourceError("no rows")}, away=f"{A} {B}")


def test_on_purged_counts_only_when_no_server_has_it() -> None:
    purged: CanalError = PositionPurged("gone")
    assert chosen({A: purged}, on_purged="latest") == (f"{B} fail", [A, B])
    everywhere = {A: purged, B: purged, C: purged}
    assert chosen(everywhere, on_purged="latest") == (f"{A} latest", [A, B, C, A])
    with pytest.raises(PositionPurged):
        chosen(everywhere)


def test_nothing_is_given_up_that_a_server_may_have_that_is_away() -> None:
    """A standby had what its master had purged, and did not answer for a second, on a busy machine:
    all subscribers were told that it is lost, or went on behind it."""
    purged: CanalError = PositionPurged("gone")
    with pytest.raises(PositionPurged, match=f"gone. {B}, {C}, which may have it") as caught:
        chosen({A: purged}, away=f"{B} {C}")
    assert caught.value.retryable
    opened, tried = chosen({A: purged}, away=f"{B} {C}", back=C, on_purged="latest")
    assert (opened, tried) == (f"{C} fail", [A, A, A, C])
    opened, tried = chosen({A: purged}, away=f"{B} {C}", on_purged="latest")
    assert (opened, tried) == (f"{A} latest", [A] * 5)
    # A snapshot, too, is for what nobody has: who waits for it had been moved to the log's end.
    opened, tried = chosen({A: purged}, away=f"{B} {C}", back=C, on_purged="snapshot")
    assert (opened, tried) == (f"{C} fail", [A, A, A, C])
    with pytest.raises(PositionPurged):
        chosen({A: purged}, away=f"{B} {C}", on_purged="snapshot")


def test_a_single_server_is_not_asked_first() -> None:
    assert chosen({}, standby=(), on_purged="earliest") == (f"{A} earliest", [A])
    with pytest.raises(ConnectionLost):
        chosen({A: ConnectionLost("away")}, standby=())
