"""A spare's life: it lives while it is free or asked for, and becomes a fetcher."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
import ray

from ray_canal.actors.upstream import spare, spare_record
from ray_canal.config import kept_secrets
from ray_canal.errors import InstanceRestarted
from ray_canal.model.start import ALL_CURSORS
from tests.local_destination import binlog_files, instance
from tests.processes import wait_for
from tests.unit.actors.small_cluster import NODE, SmallCluster

LEASE_S = 0.6


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Set when it has ended itself; its process keeps its class name."""
    event = threading.Event()
    SmallCluster(monkeypatch)
    monkeypatch.setattr(ray, "kill", lambda actor: event.set())
    monkeypatch.setattr(spare, "load_everything", lambda: None)
    monkeypatch.setattr(spare, "_LEASE_S", LEASE_S)
    monkeypatch.setattr(spare, "_CHECK_PERIOD_S", 0.02)
    name = spare.FetcherActor.__name__
    yield event
    spare_record.take(NODE)
    assert event.wait(20), "its thread ends with it"
    spare.FetcherActor.__name__ = name


def test_a_free_one_lives_until_its_name_is_gone(ended: threading.Event) -> None:
    spare_record.offer(NODE, "spare-1")
    made = spare.FetcherActor("spare-1", NODE)
    assert spare_record.is_ready(NODE)
    assert type(made).__name__ == "Spare"
    assert not ended.wait(2 * LEASE_S)
    spare_record.kv_delete("ray_canal:spare:" + NODE)
    assert ended.wait(20)


def test_it_is_called_once_so_that_its_process_has_its_title(ended: threading.Event) -> None:
    spare_record.offer(NODE, "spare-4")
    spare.FetcherActor("spare-4", NODE)
    me = ray.get_runtime_context().current_actor
    wait_for(lambda: me.called("alive") == [[]], 20, "Ray titles a process after each call")
    spare_record.kv_delete("ray_canal:spare:" + NODE)
    assert ended.wait(20)


def test_its_watch_outlives_a_head_that_does_not_answer(
    ended: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With Ray's head fault tolerance a head comes back; who was adopted must still end with its
    owner."""
    spare_record.offer(NODE, "spare-3")
    failures = threading.Event()

    def away(node: str) -> str:
        failures.set()
        raise RuntimeError("Ray's head does not answer")

    with monkeypatch.context() as patched:
        patched.setattr(spare_record, "free_name", away)
        spare.FetcherActor("spare-3", NODE)
        assert failures.wait(20)
    spare_record.kv_delete("ray_canal:spare:" + NODE)
    assert ended.wait(20)


def test_one_that_was_taken_lives_as_long_as_somebody_asks(ended: threading.Event) -> None:
    spare_record.offer(NODE, "spare-2")
    made = spare.FetcherActor("spare-2", NODE)
    given, told = kept_secrets.handed_over(instance(binlog_files()[:1]))
    made.adopt(given.model_dump_json(), False, told)
    assert type(made).__name__ == "FetcherActor"
    made.open((), "", (), ALL_CURSORS)
    assert made.next_raw()[1] is not None, "it is the destination's fetcher"
    end_s = time.monotonic() + 2 * LEASE_S
    while time.monotonic() < end_s:
        made.alive()
        time.sleep(0.02)
    assert not ended.is_set()
    # Who stood still between finding it and taking it, while another one took it.
    with pytest.raises(InstanceRestarted, match="the fetcher of another destination"):
        made.adopt(given.model_dump_json(), False, told)
    assert made.next_raw()[1] is not None, "it is still the first one's"
    made.close()
    wait_for(ended.is_set, 20, "nobody asks for it")
