"""Where reads of what a log has end: places, by what a destination's status says."""

from __future__ import annotations

from typing import Any

from ray_canal.client import log_end as module
from ray_canal.client.log_end import LogEnd, Reach, reach_of
from ray_canal.source.port import SourceStatus
from ray_canal.views.row_places import RowPlace


def at(position: int, number: int = 7, timeline: int = 2) -> RowPlace:
    return RowPlace(timeline, number, position, -1, f"bin.{number:06d}")


def row(position: int, number: int = 7, timeline: int = 2) -> RowPlace:
    return RowPlace(timeline, number, position, 0, f"bin.{number:06d}")


def status(**more: Any) -> dict[str, Any]:
    fetched = SourceStatus("bin.000007", 500, end=("bin.000008", 90))
    return {"timeline": 2, "connected": True, "fetched": fetched, **more}


def test_the_reach_of_a_status() -> None:
    assert reach_of(status(), 1) == Reach(at(500), at(90, 8))
    assert reach_of(status(connected=False), 1) == Reach(at(500), None)
    store = {"full_s": 3.0, "subscribers": {"1": {}, "2": {"detached": True}}}
    assert reach_of(status(store=store), 1) == Reach(at(500), at(90, 8), 3.0)
    assert reach_of(status(store=store), 2) == Reach(at(500), at(90, 8), 3.0, detached=True)
    assert reach_of({"state": "restarting", "error": "x"}, 1) is None
    assert reach_of({"timeline": 0, "connected": False, "fetched": None}, 1) is None


def test_an_end_that_was_told_before_the_read_began_does_not_count(monkeypatch: Any) -> None:
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(module.time, "sleep", lambda s: now.__setitem__(0, now[0] + s))
    # Asked 1.9 s ago; from 0.1 s on it says what was written until then.
    end = LogEnd(
        lambda: Reach(at(100), at(300), end_age_s=1.9 + now[0])
        if now[0] < 0.1
        else Reach(at(100), at(900), end_age_s=now[0] - 0.1)
    )
    assert now[0] == 0.2
    assert not end.is_reached(row(300))
    assert end.is_reached(row(900))


def test_a_message_behind_the_end_is_the_last() -> None:
    end = LogEnd(lambda: Reach(at(100), at(300)))
    assert not end.is_reached(row(299))
    assert end.is_reached(row(300))
    assert end.is_reached(row(4, 8))
    assert end.is_reached(row(4, 1, timeline=3))
    assert not end.is_reached(row(999, 6))
    assert not end.is_reached(row(999, 9, timeline=1))


def test_a_log_that_is_quiet_ends_once_all_was_read() -> None:
    reads = iter([100, 200, 300, 300])
    end = LogEnd(lambda: Reach(at(read := next(reads)), at(read + 200)))
    assert [end.is_empty() for _ in range(6)] == [False] * 5 + [True]  # the end stays at 300
    assert next(reads, None) is None


def test_rows_that_come_meanwhile_put_off_the_end() -> None:
    end = LogEnd(lambda: Reach(at(300), at(300)))
    assert not end.is_empty()
    assert not end.is_reached(row(200))
    assert not end.is_empty()
    assert end.is_empty()


def test_a_full_log_ends_where_it_is_full() -> None:
    end = LogEnd(lambda: Reach(at(100), at(300), full_s=5.0))
    assert [end.is_empty() for _ in range(2)] == [False, True]


def test_a_log_that_was_full_for_a_while_is_waited_for() -> None:
    full = [Reach(at(100), at(300), full_s=5.0)]
    answers = iter(full + [Reach(at(100), at(300))] * 2 + [Reach(at(300), at(300))] * 2)
    end = LogEnd(lambda: next(answers))
    assert [end.is_empty() for _ in range(8)] == [False] * 7 + [True]


def test_a_subscriber_that_is_detached_is_not_at_the_end() -> None:
    answers = iter([Reach(at(300), at(300), detached=True)] * 3 + [Reach(at(300), at(300))] * 2)
    end = LogEnd(lambda: next(answers))
    assert [end.is_empty() for _ in range(8)] == [False] * 7 + [True]


def test_a_source_that_is_away_is_waited_for_then_the_log_is_all(monkeypatch: Any) -> None:
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    end = LogEnd(lambda: Reach(at(100), None))
    assert not any(end.is_empty() for _ in range(20))
    now[0] = 11.0
    assert [end.is_empty() for _ in range(4)][-1]


def test_a_destination_that_starts_again_is_waited_for() -> None:
    answers = iter([None, None, Reach(at(300), at(300)), Reach(at(300), at(300))])
    end = LogEnd(lambda: next(answers))
    assert [end.is_empty() for _ in range(6)] == [False] * 5 + [True]


def test_a_log_that_was_reset_is_waited_for_until_its_destination_notices(
    monkeypatch: Any,
) -> None:
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(module.time, "sleep", lambda s: now.__setitem__(0, now[0] + s))

    def reach() -> Reach:
        if now[0] < 11.0:
            return Reach(at(500), at(90, 1), end_age_s=0.1)
        if now[0] < 13.0:  # noticed, and it has not asked the source since
            return Reach(at(4, 1, timeline=3), None)
        return Reach(at(90, 1, timeline=3), at(90, 1, timeline=3))

    end = LogEnd(reach)
    found = []
    while not found or not found[-1]:
        now[0] += 0.5
        found.append(end.is_empty())
    assert now[0] > 13.0
    assert end.is_reached(row(90, 1, timeline=3))


def test_a_log_that_stays_behind_what_was_read_is_not_waited_for_longer(monkeypatch: Any) -> None:
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(module.time, "sleep", lambda s: now.__setitem__(0, now[0] + s))
    end = LogEnd(lambda: Reach(at(500), at(90, 1), end_age_s=0.1))
    assert not any(end.is_empty() for _ in range(8))
    now[0] = 31.0
    assert any(end.is_empty() for _ in range(4))
