"""What the thread of a broker's connection tells its owner."""

from __future__ import annotations

import threading

import pytest

from ray_canal.sinks.queues.broker_link import BrokerLink, LinkError


def test_the_first_error_ends_a_wait_and_stays() -> None:
    link = BrokerLink(30)
    assert not link.is_broken
    failing = threading.Timer(0.02, link._fail, [LinkError("cut", 320)])
    failing.start()
    with pytest.raises(LinkError, match="cut") as told:
        link._wait(lambda: False, "late")
    assert told.value.code == 320
    link._fail(LinkError("closed"))
    with pytest.raises(LinkError, match="cut"):
        link._raise()
    assert link.is_broken


def test_what_does_not_come_in_time_is_an_error_of_its_own() -> None:
    link = BrokerLink(0.02)
    link._wait(lambda: True, "late")
    with pytest.raises(LinkError, match="no confirm"):
        link._wait(lambda: False, "no confirm")
    with pytest.raises(LinkError, match="no answer"):
        BrokerLink(30)._wait(lambda: False, "no answer", 0.01)
    assert not link.is_broken, "the next wait may do better"
