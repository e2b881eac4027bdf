"""Calls that fail: what may be repeated is, what may not is told, errors are those of the actor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import ray
from ray.exceptions import ActorUnavailableError, RayTaskError

from ray_canal.actors import calls
from ray_canal.actors.calls import DestinationCalls
from ray_canal.destination.api import AckRequest, DestinationApi, GetRequest
from ray_canal.errors import BatchNotFound, CanalError, InstanceRestarted, MetaUnavailable
from ray_canal.model.message import MessageHead

ACK = AckRequest(client_id=7, batch_id=5, epoch=1)
GET = GetRequest(client_id=7, batch_size=1, timeout=0.0)


class Handle:
    """The destination's; each call gets the next of `answers`."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.asked = list(answers), list[Any]()

    def begin(self, method: object, request: object) -> Any:
        self.asked.append(request)
        return self.answers.pop(0)


def away() -> Exception:
    return ActorUnavailableError("it restarts", None)


def raised(error: CanalError) -> Exception:
    return RayTaskError("call", "", error)


@pytest.fixture
def calls_of(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[DestinationCalls, Handle]]:
    def get(answer: Any, timeout: float | None = None) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(ray, "get", get)
    monkeypatch.setattr(calls, "_RETRY_PAUSE_S", 0.0)

    def made(*answers: Any, wait_s: float = 60.0) -> tuple[DestinationCalls, Handle]:
        handle = Handle(*answers)
        monkeypatch.setattr(calls, "find_store", lambda *_: handle)
        return DestinationCalls("orders", restart_wait_s=wait_s), handle

    return made


def test_what_may_be_repeated_waits_for_a_restart(calls_of: Any) -> None:
    one, handle = calls_of(away(), raised(MetaUnavailable("gone")), MessageHead(5, 1))
    assert one.call(DestinationApi.get_without_ack, GET).id == 5
    assert len(handle.asked) == 3
    late, handle = calls_of(away(), MessageHead(5, 1), wait_s=0.0)
    with pytest.raises(InstanceRestarted, match="went away during the call"):
        late.call(DestinationApi.get_without_ack, GET)
    assert len(handle.asked) == 1


def test_an_ack_is_not_repeated_and_its_batch_may_come_again(calls_of: Any) -> None:
    one, handle = calls_of(MessageHead(5, 1), away(), MessageHead(5, 1))
    one.call(DestinationApi.get_without_ack, GET)
    assert one.arrived_ids(7, [4, 5, 6]) == [4, 5]
    with pytest.raises(InstanceRestarted):
        one.call(DestinationApi.ack, ACK)
    assert one.arrived_ids(7, [4, 5, 6]) == [4]
    one.call(DestinationApi.get_without_ack, GET)
    first, _, again = handle.asked
    assert (first.caller.received, again.caller.received) == (0, 4)
    assert again.caller.number > first.caller.number


def test_errors_are_those_that_the_destination_raised(calls_of: Any) -> None:
    one, handle = calls_of(raised(BatchNotFound("batchId:5")), MessageHead(5, 1))
    with pytest.raises(BatchNotFound, match="batchId:5"):
        one.call(DestinationApi.ack, ACK)
    assert len(handle.answers) == 1  # it was not asked again
