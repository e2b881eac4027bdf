"""Contact with the source: connected or not, and a lag that grows in an outage."""

from __future__ import annotations

from ray_canal.destination.status.source_contact import SourceContact
from ray_canal.source.port import SourceStatus


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


AT_END = SourceStatus("b.000001", 4, connected=True, lag_bytes=0, last_event_time=100)
END = SourceStatus("b.000001", 4, connected=True, lag_bytes=10, last_event_time=990)
AWAY = SourceStatus("b.000001", 4, connected=False, last_event_time=100)


def test_lag_grows_while_the_source_is_away() -> None:
    """b3: an outage of hours is seen: not connected, and a lag that grows from its begin on."""
    clock = Clock()
    contact = SourceContact(clock)
    contact.note(AT_END, 100)
    assert (contact.connected, contact.lag_seconds) == (True, 0.0)
    for waited in (10.0, 3600.0):
        clock.now = 1_000.0 + waited
        contact.note(AWAY, 100)
        assert (contact.connected, contact.lag_seconds) == (False, waited)
    contact.note(AT_END, 100)
    assert (contact.connected, contact.lag_seconds) == (True, 0.0)


def test_an_upstream_that_failed_or_is_silent_is_not_connected() -> None:
    """b3: a status that comes too late, or never, does not keep the figures of the last one."""
    clock = Clock()
    contact = SourceContact(clock)
    contact.note(AT_END, 0)
    clock.now += 5
    contact.note(None, 0)  # busy: one call without an answer says nothing
    assert (contact.connected, contact.lag_seconds) == (True, 0.0)
    clock.now += 60
    contact.note(None, 0)
    assert (contact.connected, contact.lag_seconds) == (False, 65.0)
    contact.note(AT_END, 0)
    clock.now += 7
    contact.note(None, 0, failed=True)
    assert (contact.connected, contact.lag_seconds) == (False, 7.0)


def test_a_source_that_was_never_reached_has_a_lag_since_the_start() -> None:
    clock = Clock()
    contact = SourceContact(clock)
    clock.now += 12
    contact.note(None, 0, failed=True)
    assert (contact.connected, contact.lag_seconds) == (False, 12.0)


def test_what_is_behind_is_as_old_as_its_newest_event() -> None:
    clock = Clock()
    contact = SourceContact(clock)
    contact.note(END, 0)
    assert contact.lag_seconds == 10.0
    contact.note(END, 995)
    assert contact.lag_seconds == 5.0


def test_files_that_were_read_to_their_end_have_no_lag() -> None:
    clock = Clock()
    contact = SourceContact(clock)
    contact.note(END, 0)
    clock.now += 100
    contact.end(at_end=True)
    assert (contact.connected, contact.lag_seconds) == (False, 0.0)
    contact.end(at_end=False)
    assert contact.lag_seconds is None
