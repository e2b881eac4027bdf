"""Why nothing comes, from statuses as a destination gives them."""

from __future__ import annotations

from typing import Any

import pytest

from ray_canal import errors
from ray_canal.destination.status.bottleneck import Bottleneck, bottleneck, slowest
from ray_canal.destination.status.diagnosis import diagnose
from ray_canal.destination.status.failure_advice import _ADVICE, advice_on, recovers
from ray_canal.source.port import SourceStatus
from ray_canal.source.retention import PurgeDistance


def stages(waiting: dict[str, float] | None = None, **busy: float) -> dict[str, dict[str, float]]:
    return {
        name: {
            "busy_s": 1.0, "waiting_s": 1.0, "busy_percent": percent,
            "waiting_percent": (waiting or {}).get(name, 0.0),
        }
        for name, percent in busy.items()
    }  # fmt: skip


def place(**changes: Any) -> dict[str, Any]:
    return {
        "filter": "", "policy": "block", "acked": "bin.000001:4", "unacked_batches": 0,
        "entries_behind": 0, "bytes_behind": 0, "failure": None, "last_call_s": 1.0, **changes,
    }  # fmt: skip


def running(**changes: Any) -> dict[str, Any]:
    """A status that has nothing to complain of."""
    store = {"full_s": 0.0, "held_by": [], "disk_error": None, "disk_failing_s": 0.0,
             "subscribers": {"7": place()}}  # fmt: skip
    store.update(changes.pop("store", {}))
    return {
        "destination": "orders", "state": "running", "error": None, "connected": True,
        "source": "db:3306", "address": "db:3306", "lag_bytes": 0, "lag_seconds": 0.0,
        "purge": PurgeDistance(1000), "rows_per_second": 0.0, "bytes_per_second": 0.0,
        "entries": 12.0, "decoders": 0, "stages": stages(fetch=1, get=1), "uptime_s": 99.0,
        "fetched": SourceStatus("bin.000001", 4711), "quarantined": [], "errors": 0,
        "records_error": None, "generations": 1, "source_error": None, "store": store, **changes,
    }  # fmt: skip


def subscriber(client_id: int = 7, **changes: Any) -> dict[str, Any]:
    record = {"client_id": client_id, "cursor": "bin.000001:4", "expired_at": None}
    return {**record, **place(), "detached": False, **changes}


def test_nothing_is_wrong() -> None:
    found = diagnose(running(), [subscriber()])
    assert (found.severity, found.stage) == ("ok", "source")
    assert "bin.000001:4711" in str(found)
    assert "sql_log_bin" in found.advice


@pytest.mark.parametrize(
    ("changes", "severity", "stage", "told"),
    [
        ({"state": "restarting"}, "wait", "process", "started again"),
        ({"state": "stopped"}, "problem", "process", "ray-canal start"),
        ({"state": "idle"}, "ok", "source", "nobody has subscribed"),
        ({"state": "finished"}, "ok", "source", "files were read"),
        ({"state": "starting", "uptime_s": 3.0, "generations": 0}, "wait", "source", "its place"),
        ({"state": "starting", "uptime_s": 999.0, "generations": 0}, "problem", "source", "check"),
        ({"connected": False, "source_error": "refused"}, "problem", "source", "refused"),
        ({"quarantined": ["shop.t"]}, "problem", "decode", "shop.t"),
        ({"records_error": "disk is full", "lag_bytes": 10**9}, "problem", "cursors", "is full"),
        ({"purge": PurgeDistance(1, 600.0)}, "problem", "source", "10.0 min"),
        ({"purge": PurgeDistance(1, None, "in the next file")}, "problem", "source", "next file"),
        ({"lag_bytes": 10**9}, "wait", "source", "nothing has come"),
        ({"lag_bytes": 10**9, "bytes_per_second": 1e7, "stages": stages(fetch=60, decode=39)},
         "wait", "fetch+parse+decode", "100 s"),
    ],
)  # fmt: skip
def test_the_first_stage_that_stands_is_named(
    changes: dict[str, Any], severity: str, stage: str, told: str
) -> None:
    found = diagnose(running(**changes), [subscriber()])
    assert (found.severity, found.stage) == (severity, stage)
    assert told in str(found)


def test_a_full_log_names_who_holds_it() -> None:
    store = {"full_s": 90.0, "held_by": [7], "subscribers": {"7": place(last_call_s=4000.0)}}
    found = diagnose(running(store=store, lag_bytes=5), [subscriber()])
    assert (found.severity, found.stage) == ("problem", "log")
    assert "client 7: last call 66.7 min ago" in found.evidence
    assert "ray-canal unsubscribe orders 7" in found.advice
    store.update(disk_error="No space left on device", disk_failing_s=30.0)
    found = diagnose(running(store=store), [subscriber()])
    assert "No space left" in str(found)
    assert "store.spill_path" in found.advice
    assert "client 7: last call 66.7 min ago" in found.evidence
    waits = subscriber(entries_behind=5, unacked_batches=1, last_call_s=4000.0)
    found = diagnose(running(store=store), [waits], waits["client_id"])
    assert "does not ack" in found.reason  # what it has is its own affair


def test_a_full_log_of_which_nobody_reads_asks_for_a_subscriber() -> None:
    store = {"full_s": 90.0, "held_by": [], "subscribers": {}}
    found = diagnose(running(store=store, lag_bytes=5))
    assert (found.severity, found.stage) == ("wait", "log")
    assert "nobody has subscribed" in found.reason
    assert "CLIENT_ID" not in str(found)


@pytest.mark.parametrize(
    ("changes", "severity", "told"),
    [
        ({"failure": "PositionPurged: gone"}, "problem", "PositionPurged: gone"),
        ({"paused_at": 5}, "problem", "ray-canal subscriber orders 9 resume"),
        ({"detached": True}, "wait", "own replication stream"),
        ({"expired_at": 1}, "problem", "has expired"),
        ({"entries_behind": 5, "last_call_s": 600.0}, "problem", "does not ask"),
        ({"entries_behind": 5, "last_call_s": None}, "problem", "no call yet"),
        ({"entries_behind": 5, "last_call_s": 600.0, "unacked_batches": 2}, "problem",
         "2 batches handed out"),
        ({"entries_behind": 5, "filter": "shop.x"}, "ok", "'shop.x' admits none"),
    ],
)  # fmt: skip
def test_one_subscriber(changes: dict[str, Any], severity: str, told: str) -> None:
    found = diagnose(running(), [subscriber(), subscriber(9, **changes)], 9)
    assert (found.severity, found.stage) == (severity, "subscriber 9")
    assert told in str(found)


def test_who_cannot_be_served_is_told_of_files_that_were_read_to_their_end() -> None:
    failed = subscriber(9, failure="PositionPurged: gone")
    found = diagnose(running(state="finished"), [subscriber(), failed])
    assert (found.severity, found.stage) == ("problem", "subscriber 9")


def test_others_are_told_only_what_somebody_has_to_know() -> None:
    """A slow subscriber is its own affair; one that cannot be served is everybody's."""
    slow = subscriber(9, entries_behind=5, last_call_s=600.0)
    assert diagnose(running(), [subscriber(), slow]).severity == "ok"
    failed = subscriber(9, failure="PositionPurged: gone")
    found = diagnose(running(), [subscriber(), failed])
    assert (found.stage, len(found.evidence)) == ("subscriber 9", 2)
    more = [subscriber(number, failure="PositionPurged: gone") for number in (10, 11)]
    found = diagnose(running(), [failed, subscriber(), *more])
    assert (found.stage, found.evidence[-1]) == ("subscriber 9", "nor can 10, 11")
    assert diagnose(running(), []).reason == "nobody has subscribed"
    found = diagnose(running(), [subscriber()], 8)
    assert "no subscriber 8" in str(found)
    assert "subscribers: 7" in found.evidence


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"paused_at": 1_795_000_000, "entries_behind": 5}, "client 8: paused, 5 entries behind"),
        ({"detached": True, "entries_behind": None}, "client 8: catches up"),
        ({"expired_at": 1_795_000_000, "entries_behind": None}, "client 8: expired"),
        ({"entries_behind": 3}, "client 8: 3 entries behind"),
    ],
)
def test_what_was_not_delivered_to_all_is_not_said_to_be(
    changes: dict[str, Any], told: str
) -> None:
    answer = diagnose(running(), [subscriber(7), subscriber(8, **changes)])
    assert answer.severity == "ok"
    assert "not all of it was delivered" in answer.reason
    assert told in answer.evidence
    assert not any("client 7" in each for each in answer.evidence)
    whole = diagnose(running(), [subscriber(7), subscriber(8)])
    assert "read and delivered" in whole.reason


def _kinds(kind: type[Exception]) -> set[str]:
    return {kind.__name__, *(name for sub in kind.__subclasses__() for name in _kinds(sub))}


def test_every_failure_has_an_advice() -> None:
    """Each error that can end a generation, by its name, and names of errors that exist."""
    known = {name for name, _, _ in _ADVICE}
    assert known <= _kinds(errors.CanalError)
    for kind in (errors.SourceError, errors.DecodeError):
        leaves = {name for name in _kinds(kind) if not getattr(errors, name).__subclasses__()}
        assert leaves <= known
    for name in known:
        found = diagnose(running(state="failed", error=f"{name}: told", errors=3), [])
        assert found.stage == advice_on(name)[0]
        assert found.evidence == (f"{name}: told", "3 failures since its process started")
        retryable = getattr(errors, name).retryable
        assert found.severity == ("wait" if recovers(name) else "problem")
        assert retryable or not recovers(name)
    assert advice_on("Surprise: x")[0] == "process"


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"state": "failed"}, None),
        ({}, Bottleneck("source")),
        ({"lag_bytes": 5}, Bottleneck("server")),
        ({"lag_bytes": None}, None),
        ({"store": {"full_s": 1.0}}, Bottleneck("subscribers")),
        ({"stages": stages(fetch=30, parse=20, decode=45)}, Bottleneck("fetch+parse+decode", 95)),
        ({"stages": stages(fetch=80, decode=200), "decoders": 4}, Bottleneck("fetch", 80)),
        ({"stages": stages(fetch=80, decode=380), "decoders": 4}, Bottleneck("decode", 95)),
        ({"stages": {}, "lag_bytes": 0}, Bottleneck("source")),
        ({"stages": stages(fetch=35, decode=55)}, Bottleneck("fetch+parse+decode", 90)),
        ({"stages": stages(fetch=20, decode=60)}, Bottleneck("decode", 80)),
        ({"stages": stages(fetch=60, decode=20)}, Bottleneck("fetch", 80)),
        # A machine without a free CPU: no stage works all the time, and one is the limit.
        ({"stages": stages(fetch=40, decode=30), "decoders": 4, "lag_bytes": 5},
         Bottleneck("fetch", 40)),
        ({"stages": stages(fetch=40, decode=30), "decoders": 4}, Bottleneck("source")),
        ({"stages": stages(fetch=40, decode=100), "decoders": 8, "held_back_percent": 55.0,
          "lag_bytes": 5}, Bottleneck("decode", 55)),
        ({"stages": stages({"fetch": 60}, fetch=40, decode=30), "decoders": 4, "lag_bytes": 5},
         Bottleneck("server")),
        ({"stages": stages({"store": 60}, fetch=40, store=1), "lag_bytes": 5},
         Bottleneck("subscribers")),
    ],
)
def test_the_bottleneck(changes: dict[str, Any], wanted: Bottleneck | None) -> None:
    assert bottleneck(running(**changes)) == wanted


def test_the_slowest_subscriber() -> None:
    assert slowest({"store": {}}) is None
    places = {"1": place(bytes_behind=5), "2": place(bytes_behind=9)}
    assert slowest({"store": {"subscribers": places}}) == ("2", places["2"])
    places["3"] = place(detached=True, bytes_behind=None)
    assert slowest({"store": {"subscribers": places}}) == ("3", places["3"])
    places["1"] = place(failure="PositionPurged: gone")
    assert slowest({"store": {"subscribers": places}}) == ("1", places["1"])
